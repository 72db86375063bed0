import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { needPlace, readRecord, writeRecord } from "../../../src/bench/record.js";
import { UserError } from "../../../src/errors.js";
import { benchRecord, cell } from "../../fixtures/bench.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "sinkflex-record-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

function refused(run: () => unknown): UserError {
  try {
    run();
  } catch (error) {
    if (error instanceof UserError) return error;
    throw error;
  }
  throw new Error("it was not refused");
}

const record = benchRecord([cell(2048, "flash")], { later: { kept: true } });

describe("a record that is read", () => {
  const read = (content: string) => {
    writeFileSync(join(dir, "old.json"), content);
    return readRecord(join(dir, "old.json"), "old.json");
  };

  it("is what was written, with fields that this version does not know", () => {
    writeRecord(join(dir, "new.json"), "new.json", record);
    expect(readRecord(join(dir, "new.json"), "new.json")).toEqual(record);
    expect(readFileSync(join(dir, "new.json"), "utf8")).toBe(`${JSON.stringify(record, null, 2)}\n`);
  });

  it("may be what --json wrote: the record is its last line", () => {
    expect(read(`{"v":1,"seq":0,"t":0,"type":"hello"}\n${JSON.stringify(record)}\n`)).toEqual(record);
  });

  it.each([
    ["text", "no JSON at all", "is not JSON"],
    ["nothing", "", "is not JSON"],
    ["half of it", '{"type":"bench",\n"what":', "is not JSON"],
    ["events without a record", '{"v":1,"seq":0}\n{"v":1,"type":"end"}\n', "is not the record of a benchmark"],
    ["a list", "[]", "is not the record of a benchmark"],
    ["a config", '{"name":"x"}', "is not the record of a benchmark"],
    ["another type", '{"type":"eval","what":"x","cells":[]}', "is not the record of a benchmark"],
    ["no cells", '{"type":"bench","what":"attention"}', "is not the record of a benchmark"],
  ])("%s is refused", (_, content, what) => {
    const error = refused(() => read(content));
    expect(error.exitCode).toBe(2);
    expect(error.problems[0]).toMatchObject({ code: "SF-BENCH-RECORD", what: `old.json ${what}.` });
  });

  it("a broken cell is named", () => {
    const broken = JSON.stringify({ ...record, cells: [record.cells[0], { ...record.cells[0], seq: "long" }] });
    expect(refused(() => read(broken)).problems[0]?.why).toContain("`cells.1.seq`");
  });

  it("a missing file and a directory are named", () => {
    expect(refused(() => readRecord(join(dir, "no.json"), "no.json")).problems[0]).toMatchObject({
      what: "no.json can't be read.",
      why: "There is no such file.",
    });
    expect(refused(() => readRecord(dir, "d")).problems[0]?.why).toBe("It is a directory.");
  });
});

describe("a place for a record", () => {
  it("that can be written is left as it is", () => {
    needPlace(join(dir, "new.json"), "new.json");
    expect(readdirSync(dir)).toEqual([]);
    writeFileSync(join(dir, "old.json"), "x");
    needPlace(join(dir, "old.json"), "old.json");
    expect(readFileSync(join(dir, "old.json"), "utf8")).toBe("x");
  });

  it.each([
    ["a directory", "d", "It is a directory."],
    ["a place under a file", "f/x.json", "A part of the path is a file, not a directory."],
    ["a missing directory", "no/x.json", "There is no such directory."],
    ["a name that is too long", `${"x".repeat(300)}.json`, "The path is too long."],
  ])("%s is refused before measuring", (_, name, why) => {
    mkdirSync(join(dir, "d"));
    writeFileSync(join(dir, "f"), "");
    const error = refused(() => needPlace(join(dir, name), name));
    expect(error.exitCode).toBe(2);
    expect(error.problems[0]).toMatchObject({ code: "SF-BENCH-OUT", what: `Can't write ${name}.`, why });
    expect(readdirSync(dir).sort()).toEqual(["d", "f"]);
  });

  it("that went away meanwhile is a failure, and the old record is unharmed", () => {
    const error = refused(() => writeRecord(join(dir, "no", "x.json"), "x.json", record));
    expect(error.exitCode).toBe(1);
  });
});
