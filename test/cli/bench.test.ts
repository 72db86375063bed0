import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { BenchFolder, flat, lastLine } from "../fixtures/bench-folder.js";

let bench: BenchFolder;
beforeEach(() => {
  bench = new BenchFolder();
});
afterEach(() => bench.clear());

describe("sinkflex bench", () => {
  it("chooses, measures, shows one table, and leaves nothing behind", async () => {
    const { code, stdout, stderr } = await bench.run("");
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toContain("bench  attention on cpu stub processor, 1 thread, float32, heads 16/2, head_dim 64\n");
    expect(stdout).toContain("note   16 query heads: what this machine measures in a minute\n");
    expect(stdout.match(/^cell \d\/4 .* forward [\d.]+ ms {2}backward/gm)).toHaveLength(4);
    expect(stdout.match(/^tokens {2}impl .*time ratio/gm)).toHaveLength(1);
    expect(stdout).toMatch(/^ {2}4096 {2}flash +33\.6 +80\.5 .* 0\.25x +0\.034x /m);
    expect(stdout).toContain("counted   Times are medians of 5 repetitions");
    expect(bench.left()).toEqual([]);
    expect(existsSync(bench.folder.runs)).toBe(false);
  });

  it("hands the worker what was asked for, in numbers, and null for the rest", async () => {
    const { stdout } = await bench.run(
      "--json --seq 512 1024 --seq 512 --impl flash --heads 8/4 --head-dim 32 --window 128 --dtype float32 --threads 2 --repeat 3",
    );
    const plan = stdout.split("\n").map((line) => line && JSON.parse(line))[2];
    expect(plan).toMatchObject({ kind: "plan", lengths: [512, 1024], impls: ["flash"] });
    expect(plan.geometry).toEqual({ num_q_heads: 8, num_kv_heads: 4, head_dim: 32 });
    const record = lastLine(stdout);
    expect(record.cells.map((cell: { window: number }) => cell.window)).toEqual([128, 128]);
    expect(record.command).toBe(
      "sinkflex bench --seq 512 1024 512 --impl flash --dtype float32 --heads 8/4 --head-dim 32 --window 128 --repeat 3 --threads 2",
    );
  });

  it.each([
    ["a pipe", {}],
    ["CI", { CI: "true" }],
    ["NO_COLOR", { NO_COLOR: "1" }],
    ["a width of 20", { COLUMNS: "20" }],
  ])("B119 in %s writes no escape bytes and one line a cell", async (_, env) => {
    const { stdout, stderr } = await bench.run("", {}, env);
    expect(stdout + stderr).not.toMatch(/\p{Cc}(?<!\n)/u);
    expect(stdout.match(/^cell /gm)).toHaveLength(4);
  });

  it("--quiet is the table alone", async () => {
    const { stdout } = await bench.run("--quiet --seq 1024");
    expect(stdout.split("\n").filter(Boolean)).toHaveLength(3);
  });

  it("--what log-prob and model are measured and shown in their own words", async () => {
    const head = await bench.run("--what log-prob --seq 1024 --vocabulary 1000");
    expect(head.stdout).toContain("vocabulary 1000, hidden 2880, head frozen");
    expect(head.stdout).toMatch(/^ {2}1024 {2}linear .* 0\.25x/m);
    const model = await bench.run("--what model --seq 1024 2048 --layers 2 --train full");
    expect(model.stdout).toMatch(/^tokens {2}impl +step ms .* tokens\/s +peak MiB/m);
    expect(model.stdout).toMatch(/^MB per token +all/m);
    expect(model.stdout).toMatch(/^cell 2\/4 {2}ours at 1024 tokens {2}step 7\.13 ms/m);
  });

  it("a cell that does not fit is a result", async () => {
    const { code, stdout } = await bench.run("--seq 2048 4096", { fit: 3000 });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^ {2}4096 {2}eager {2}does not fit: predicted: 2 GB, and 21 GB are free$/m);
    expect(stdout).toMatch(/^ {2}4096 {2}flash .* - +- +dq/m); // nothing to compare with
    expect(bench.left()).toEqual([]);
  });

  it("a cell whose parity is red has no figures and makes the exit code 1; the log is kept and named", async () => {
    const { code, stdout, stderr } = await bench.run("--seq 2048", { red: ["flash"] });
    expect([code, stderr]).toEqual([1, ""]);
    expect(stdout).toMatch(/^ {2}2048 {2}flash {2}failed: parity at 2048 tokens: dq 3\.0e-04, at most 1\.0e-05$/m);
    const [dir = ""] = bench.left();
    expect(stdout).toContain(`1 of 2 cells failed, so they have no figures. The log is ${join(dir, "stderr.log")}.\n`);
    expect(readFileSync(join(dir, "stderr.log"), "utf8")).toContain("stub: ");
  });
});

describe("--json", () => {
  it("is the event stream, and as its last line the bare record with every field of the worker's", async () => {
    const { code, stdout, stderr } = await bench.run("--json --seq 1024");
    expect(code).toBe(0);
    const lines = stdout.trimEnd().split("\n");
    const events = lines.slice(0, -1).map((line) => JSON.parse(line));
    expect(events.map((event) => event.seq)).toEqual(events.map((_, n) => n));
    expect(events.at(-1)).toMatchObject({ type: "end", status: "completed" });
    const { result } = events.find((event) => event.kind === "result");
    expect(lastLine(stdout)).toEqual(result);
    expect(result).toMatchObject({ type: "bench", what: "attention", device: "cpu", later: { kept: true } });
    expect(stderr).toMatch(/^ {2}1024 {2}flash /m);
    expect(stderr).not.toMatch(/^cell /m);
  });

  it("a result that is too long for a line is put together from the cells", async () => {
    const { stdout } = await bench.run("--json --seq 1024", { cut: true });
    const record = lastLine(stdout);
    expect(record).toMatchObject({ type: "bench", command: "sinkflex bench --seq 1024", stopped: false });
    expect(record.cells).toHaveLength(2);
  });

  it("a usage error leaves stdout empty", async () => {
    const { code, stdout, stderr } = await bench.run("--json --seq 0");
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/^error SF-USAGE-ARGUMENT: /);
  });
});

describe("--out", () => {
  it("writes the record, pretty and whole, and says where", async () => {
    const { code, stdout } = await bench.run("--seq 1024 --out my/../new.json");
    expect(code).toBe(0);
    expect(stdout).toContain("\nrecord    new.json\n");
    const text = readFileSync(join(bench.path, "new.json"), "utf8");
    expect(text).toBe(`${JSON.stringify(JSON.parse(text), null, 2)}\n`);
    expect(JSON.parse(text)).toMatchObject({
      type: "bench",
      command: "sinkflex bench --seq 1024",
      later: { kept: true },
    });
    expect(readdirSync(bench.path)).toEqual(["new.json"]);
  });

  it.each([
    ["a directory", "d", "It is a directory."],
    ["a place under a file", "f/x.json", "is a file, not a directory"],
    ["a directory that is not there", "no/x.json", "There is no such directory."],
  ])("%s is refused before anything is measured", async (_, path, why) => {
    mkdirSync(join(bench.path, "d"));
    writeFileSync(join(bench.path, "f"), "");
    const { code, stdout, stderr } = await bench.run(`--out ${path}`);
    expect([code, stdout]).toEqual([2, ""]);
    expect(flat(stderr)).toContain(why);
    expect(stderr).toContain("SF-BENCH-OUT");
  });

  it("on a disk that is full by then: the figures are shown, one message, exit 1", async () => {
    const env = {
      NODE_OPTIONS: `--import=${new URL("../fixtures/full-disk.mjs", import.meta.url)}`,
      SF_FULL: "new\\.json",
    };
    const { code, stdout, stderr } = await bench.run("--seq 1024 --out new.json --json", {}, env);
    expect(code).toBe(1);
    expect(lastLine(stdout)).toMatchObject({ type: "bench" });
    expect(stderr.match(/SF-BENCH-OUT/g)).toHaveLength(1);
    expect(existsSync(join(bench.path, "new.json"))).toBe(false);
  });
});
