import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { BenchFolder, flat } from "../fixtures/bench-folder.js";

let bench: BenchFolder;
beforeEach(() => {
  bench = new BenchFolder();
});
afterEach(() => bench.clear());

describe("--compare", () => {
  beforeEach(async () => {
    await bench.run("--seq 1024 2048 --out old.json -q");
  });

  it("shows old, new and ratio of each cell, and what is only in one of them", async () => {
    const { code, stdout } = await bench.run("--seq 2048 4096 --compare old.json", { scale: 0.8 });
    expect(code).toBe(0);
    const text = stdout.slice(stdout.indexOf("compared with old.json"));
    expect(text).toMatch(
      /flash at 2048 tokens\n {2}forward ms +8\.39 +6\.71 +0\.80x {2}faster\n {2}backward ms .*faster\n/,
    );
    expect(text).toMatch(/eager at 2048 tokens\n {2}forward ms +33\.6 +33\.6 +1\.00x {2}no change\n/);
    expect(text).toMatch(/peak MiB +17\.6 +17\.6 +1\.00x {2}no change\n/);
    expect(text).toContain("only in the old record: eager at 1024 tokens; flash at 1024 tokens.");
    expect(text).toContain("not in the old record: eager at 4096 tokens; flash at 4096 tokens.");
  });

  it("the record may be replaced by the new one", async () => {
    const before = readFileSync(join(bench.path, "old.json"), "utf8");
    const { stdout } = await bench.run("--seq 1024 --compare old.json --out old.json", { scale: 2 });
    expect(stdout).toMatch(/forward ms +2\.10 +4\.19 +2\.00x {2}slower/);
    expect(readFileSync(join(bench.path, "old.json"), "utf8")).not.toBe(before);
  });

  it.each([
    ["--compare no.json", "SF-BENCH-RECORD", "There is no such file."],
    ["--compare text.json", "SF-BENCH-RECORD", "text.json is not JSON."],
    ["--compare config.json", "SF-BENCH-RECORD", "config.json is not the record of a benchmark."],
    ["--compare old.json --what model", "SF-BENCH-OTHER", "what attention, not model"],
    ["--compare old.json --head-dim 32", "SF-BENCH-OTHER", "head_dim 64, not 32"],
    ["--compare old.json --dtype float16", "SF-BENCH-OTHER", "dtype float32, not float16"],
    ["--compare old.json --device cuda", "SF-BENCH-OTHER", "device cpu, not cuda"],
  ])("%s is refused before Python is started", async (args, error, why) => {
    writeFileSync(join(bench.path, "text.json"), "what?");
    writeFileSync(join(bench.path, "config.json"), '{"name": "x"}');
    const env = { SINKFLEX_PYTHON: join(bench.path, "no-such-python") };
    const { code, stdout, stderr } = await bench.run(args, {}, env);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(error);
    expect(flat(stderr)).toContain(why);
  });

  it("a difference that only the plan shows is refused then, before a cell is measured", async () => {
    const old = JSON.parse(readFileSync(join(bench.path, "old.json"), "utf8"));
    writeFileSync(
      join(bench.path, "old.json"),
      JSON.stringify({ ...old, geometry: { ...old.geometry, head_dim: 128 } }),
    );
    const { code, stdout, stderr } = await bench.run("--seq 1024 --compare old.json --json", { cell_s: 60 });
    expect(code).toBe(2);
    expect(stderr).toContain("error SF-BENCH-OTHER: old.json was measured otherwise: head_dim 128, not 64.");
    expect(stdout).not.toContain('"kind":"cell"');
    expect(stdout).not.toContain('{"type":"bench"');
    expect(bench.left()).toEqual([]);
  });
});
