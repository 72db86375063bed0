import { appendFileSync, mkdtempSync, renameSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { tail } from "../../../src/process/tail.js";
import { LineSplitter } from "../../../src/protocol/decode.js";

let dir: string;
let file: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "sinkflex-tail-"));
  file = join(dir, "events.jsonl");
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

/** Follows the file; `acts` are done one after another, each when the end of the file has been reached. */
async function follow(acts: (() => void)[]): Promise<{ lines: string[]; restarts: number }> {
  const waiting = [...acts];
  let splitter = new LineSplitter();
  const lines: string[] = [];
  let restarts = 0;
  const over = () => {
    const act = waiting.shift();
    act?.();
    return act === undefined;
  };
  for await (const { bytes, fresh } of tail(file, { over, pollMs: 1 })) {
    if (fresh) {
      restarts += 1;
      splitter = new LineSplitter();
    }
    lines.push(...splitter.push(bytes).map(String));
  }
  lines.push(...splitter.end().map(String));
  return { lines, restarts };
}

describe("following a file", () => {
  it("reads what is there and what is added, half lines and halves of characters included", async () => {
    const cup = Buffer.from("☕\n");
    writeFileSync(file, "one\ntw");
    const { lines, restarts } = await follow([
      () => appendFileSync(file, "o\n"),
      () => appendFileSync(file, cup.subarray(0, 2)),
      () => appendFileSync(file, cup.subarray(2)),
      () => appendFileSync(file, "last"),
    ]);
    expect(lines).toEqual(["one", "two", "☕", "last"]);
    expect(restarts).toBe(0);
  });

  it("waits for a file that is not there yet, and ends when it never comes", async () => {
    expect((await follow([() => {}, () => writeFileSync(file, "one\n")])).lines).toEqual(["one"]);
    rmSync(file);
    expect((await follow([() => {}])).lines).toEqual([]);
  });

  it("begins again when the file was cut", async () => {
    writeFileSync(file, "one\ntwo\n");
    const { lines, restarts } = await follow([
      () => {
        truncateSync(file, 0);
        appendFileSync(file, "new\n");
      },
    ]);
    expect(lines).toEqual(["one", "two", "new"]);
    expect(restarts).toBe(1);
  });

  it("begins again when the file was replaced by another, even a longer one", async () => {
    writeFileSync(file, "one\n");
    const { lines, restarts } = await follow([
      () => {
        writeFileSync(`${file}.2`, "other and longer\n");
        renameSync(`${file}.2`, file);
      },
    ]);
    expect(lines).toEqual(["one", "other and longer"]);
    expect(restarts).toBe(1);
  });

  it("reads what is written just before the writer ends", async () => {
    writeFileSync(file, "");
    let over = false;
    const lines: string[] = [];
    const ask = () => {
      if (!over) appendFileSync(file, "the end\n");
      over = true;
      return over;
    };
    for await (const { bytes } of tail(file, { over: ask, pollMs: 1 })) lines.push(bytes.toString());
    expect(lines).toEqual(["the end\n"]);
  });

  it("stops when it is told to", async () => {
    writeFileSync(file, "one\n");
    const leave = new AbortController();
    for await (const _ of tail(file, { over: () => false, signal: leave.signal, pollMs: 60_000 })) {
      setTimeout(() => leave.abort(), 20);
    }
    expect(leave.signal.aborted).toBe(true);
  });
});
