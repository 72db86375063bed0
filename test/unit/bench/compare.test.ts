import { describe, expect, it } from "vitest";
import { compare, needSame, settingOf } from "../../../src/bench/compare.js";
import { benchRequest } from "../../../src/bench/request.js";
import { UserError } from "../../../src/errors.js";
import { benchPlan, benchRecord, cell, without } from "../../fixtures/bench.js";

describe("cells of two records", () => {
  const old = cell(4096, "flash", { fwd_ms: 100, fwd_spread: 0.1, bwd_ms: 200, bwd_spread: 0.02, peak_bytes: 1000 });

  it.each([
    [100, 0.1, "same"],
    [91, 0.05, "same"], // within the old spread
    [89, 0.05, "less"],
    [109, 0.05, "same"],
    [111, 0.05, "more"],
    [120, 0.2, "same"], // within the new spread
    [111, null, "no spread"],
  ])("a forward of 100 ms +- 10 %% that becomes %d with spread %j is %s", (now, spread, verdict) => {
    const [one] = compare(benchRecord([old]), benchRecord([{ ...old, fwd_ms: now, fwd_spread: spread }])).cells;
    expect(one?.changes[0]).toEqual({ name: "forward", old: 100, now, ratio: now / 100, verdict });
  });

  it.each([
    [100, 101.9, "same"],
    [100, 102.1, "more"],
    [100, 90, "less"],
    [10, 10.9, "same"], // 9 %, but less than 1 MiB
    [10, 11.1, "more"],
    [10, 8.9, "less"],
    [0.1, 0.9, "same"],
  ])("a peak of %d MiB that becomes %d is %s", (before, now, verdict) => {
    const peak = (mib: number) => benchRecord([{ ...old, peak_bytes: mib * 1024 * 1024 }]);
    const [one] = compare(peak(before), peak(now)).cells;
    expect(one?.changes.map(({ name }) => name)).toEqual(["forward", "backward", "peak"]);
    expect(one?.changes[2]?.verdict).toBe(verdict);
    expect(one?.changes[2]?.ratio).toBeCloseTo(now / before);
  });

  it.each([
    ["length", { seq: 8192 }],
    ["implementation", { impl: "eager" }],
    ["device", { device: "cuda" }],
    ["dtype", { dtype: "bfloat16" }],
    ["window", { window: 128 }],
  ])("of another %s are not compared, but listed", (_, changes) => {
    const now = { ...old, ...changes };
    const found = compare(benchRecord([old]), benchRecord([now]));
    expect(found.cells).toEqual([]);
    expect([found.onlyOld, found.onlyNew]).toEqual([[old], [now]]);
  });

  it("no window and none said are the same", () => {
    const { window: _, ...bare } = old;
    expect(compare(benchRecord([bare]), benchRecord([old])).cells).toHaveLength(1);
  });

  it("without figures on either side say what became of them", () => {
    const gone = without(4096, "flash", "does_not_fit", "tried");
    const red = without(4096, "flash", "failed", "parity");
    const status = (a: typeof gone, b: typeof gone) => compare(benchRecord([a]), benchRecord([b])).cells[0]?.status;
    expect(status(gone, old)).toBe("ok, was does not fit");
    expect(status(old, red)).toBe("failed, was ok");
    expect(status(gone, gone)).toBe("does not fit, as before");
  });

  it("a machine, threads or versions that differ are noted; what passes is not", () => {
    const then = benchRecord([old], {
      threads: 2,
      machine: { cpu: "Xeon", cores: 2, free_bytes: 1, load_average: [9] },
    });
    const { notes } = compare({ ...then, versions: { torch: "2.12.0", python: "3.11.7" } }, benchRecord([old]));
    expect(notes).toEqual([
      "other threads then: threads 2, not 1",
      "other machine then: cpu Xeon, not AMD EPYC",
      "other versions then: torch 2.12.0, not 2.13.0",
    ]);
    expect(compare(benchRecord([old]), benchRecord([old])).notes).toEqual([]);
  });
});

describe("a record of something else", () => {
  const old = benchRecord([cell(2048, "flash")], { command: "sinkflex bench --seq 2048" });
  const refusal = (check: () => void) => {
    try {
      check();
    } catch (error) {
      if (error instanceof UserError) return error;
      throw error;
    }
    return null;
  };

  it.each([
    [{ what: "model" }, "what attention, not model"],
    [{ device: "cuda" }, "device cpu, not cuda"],
    [{ dtype: "bfloat16" }, "dtype float32, not bfloat16"],
    [{ heads: "64/8" }, "num_q_heads 16, not 64, num_kv_heads 2, not 8"],
    [{ headDim: "128" }, "head_dim 64, not 128"],
  ])("is refused before measuring when the request says %j", (typed, what) => {
    const error = refusal(() => needSame(old, settingOf(benchRequest(typed)), "old.json"));
    expect(error?.exitCode).toBe(2);
    expect(error?.problems[0]).toMatchObject({
      code: "SF-BENCH-OTHER",
      what: `old.json was measured otherwise: ${what}.`,
    });
    expect(error?.problems[0]?.fix).toContain("`sinkflex bench --seq 2048`");
  });

  it("is refused by the plan for what the request left open", () => {
    expect(refusal(() => needSame(old, settingOf(benchRequest({})), "old.json"))).toBeNull();
    expect(refusal(() => needSame(old, benchPlan, "old.json"))).toBeNull();
    const other = { ...benchPlan, geometry: { ...benchPlan.geometry, head_dim: 128 } };
    expect(refusal(() => needSame(old, other, "old.json"))?.message).toContain("head_dim 64, not 128");
    expect(refusal(() => needSame(old, { ...benchPlan, device: "cuda" }, "old.json"))?.message).toContain("not cuda");
  });

  it("other lengths, windows and implementations are no other setting", () => {
    const request = benchRequest({ seq: ["16"], impl: ["eager"], window: "8", device: "cpu", heads: "16/2" });
    expect(refusal(() => needSame(old, settingOf(request), "old.json"))).toBeNull();
  });
});
