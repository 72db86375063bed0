import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { BenchFolder, flat, lastLine } from "../fixtures/bench-folder.js";
import { real } from "../fixtures/sinkflex.js";

let bench: BenchFolder;
beforeEach(() => {
  bench = new BenchFolder();
});
afterEach(() => bench.clear());

it("the real worker measures two cells; the table, the record and the event stream agree", async () => {
  const args = "--device cpu --seq 512 --impl eager flash --heads 4/2 --head-dim 32 --window 128 --repeat 1";
  const { code, stdout, stderr } = await bench.run(`${args} --json --out new.json`, {}, real());
  expect(code, stderr).toBe(0);
  const events = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(events.slice(0, -1).map((event) => event.seq)).toEqual(events.slice(0, -1).map((_, n) => n));
  const record = lastLine(stdout);
  expect(record).toEqual(JSON.parse(readFileSync(join(bench.path, "new.json"), "utf8")));
  expect(record).toMatchObject({
    type: "bench",
    what: "attention",
    device: "cpu",
    geometry: { num_q_heads: 4, num_kv_heads: 2, head_dim: 32 },
    command: `sinkflex bench ${args.replace("--device cpu --seq 512 --impl eager flash", "--seq 512 --impl eager flash --device cpu")}`,
    stopped: false,
  });
  expect(record.cells).toHaveLength(2);
  for (const cell of record.cells) {
    expect(cell).toMatchObject({ seq: 512, window: 128, device: "cpu", dtype: "float32", status: "ok", reason: null });
    for (const name of ["fwd_ms", "bwd_ms", "cpu_ms", "peak_bytes", "floor_bytes"])
      expect(cell[name]).toBeGreaterThan(0);
    for (const [name, limit] of Object.entries(cell.parity_limit))
      expect(cell.error[name]).toBeLessThanOrEqual(limit as number);
  }
  expect(stderr).toMatch(/^ +512 +128 +eager .* 1\.00x +1\.00x /m);
  expect(stderr).toMatch(/^ +512 +128 +flash /m);
  expect(bench.left()).toEqual([]);
});

it("the real worker refuses what this machine has no device for", async () => {
  const { code, stdout, stderr } = await bench.run("--device cpu --impl flex", {}, real());
  expect([code, stdout]).toEqual([3, ""]);
  expect(flat(stderr)).toContain("SF-BENCH-DEVICE");
  expect(bench.left()).toEqual([]);
});
