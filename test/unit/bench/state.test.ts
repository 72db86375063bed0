import { describe, expect, it } from "vitest";
import { initialBench, isWhole, recordOf, reduceBench, standingOfBench } from "../../../src/bench/state.js";
import { benched, benchRecord, cell, stateOf, without } from "../../fixtures/bench.js";

const cells = [
  cell(2048, "eager"),
  cell(2048, "flash"),
  without(4096, "eager", "does_not_fit", "tried: out of memory"),
];

function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(frozen);
  }
  return value;
}

describe("the state of a benchmark", () => {
  it("changes neither itself nor the event", () => {
    let state = frozen(initialBench);
    for (const event of benched(cells).events) state = frozen(reduceBench(state, frozen(event)));
    expect(state.cells).toEqual(cells);
  });

  it("knows the cell under way, its stage and since when", () => {
    const script = benched(cells.slice(0, 1), 4);
    script.add("bench", { kind: "cell_started", index: 1, total: 4, length: 2048, impl: "flash", window: 128 }, 1);
    script.add("bench", { kind: "progress", index: 1, stage: "time", done: 2, total: 7 }, 2);
    const { underway, total, t } = stateOf(script);
    expect(total).toBe(4);
    expect(underway).toEqual({ seq: 2048, impl: "flash", window: 128, since: t - 2, stage: "time", done: 2, of: 7 });
    expect(stateOf(script.add("bench", { kind: "cell", index: 1, cell: cell(2048, "flash") })).underway).toBeNull();
  });

  it("knows how long the newest cell took", () => {
    expect(stateOf(benched(cells)).took).toBeCloseTo(10);
  });

  it("counts a warning once a code, with its newest text", () => {
    const script = benched([]);
    for (const n of [1, 2]) script.add("warn", { code: "a", what: `what ${n}` });
    expect(stateOf(script).warnings).toEqual([{ code: "a", what: "what 2", fix: null, count: 2 }]);
  });

  it("passes over progress that comes without a cell, and events of a training run", () => {
    const script = benched([]).add("bench", { kind: "progress", index: 0, stage: "parity", done: null, total: null });
    script.add("checkpoint", { step: 1, path: "p", bytes: 1 });
    expect(stateOf(script).underway).toBeNull();
  });
});

describe("where it stands when the worker dies", () => {
  it("before anything, in a phase, in a cell", () => {
    expect(standingOfBench(initialBench)).toMatchObject({ ended: false, where: "before its first event", step: null });
    expect(standingOfBench(stateOf(benched([]))).where).toBe("in phase loading");
    const script = benched(cells, 4);
    script.add("bench", { kind: "cell_started", index: 3, total: 4, length: 4096, impl: "flash", window: 128 });
    expect(standingOfBench(stateOf(script)).where).toBe("while measuring flash at 4096 tokens, window 128");
    expect(standingOfBench(stateOf(script.add("end", { status: "completed", exit_code: 0 }))).ended).toBe(true);
  });
});

describe("the record", () => {
  const result = { ...benchRecord(cells), slopes: [{ impl: "eager", mb_per_token: 0.1 }], later: { kept: true } };

  it("is what the worker wrote, whole, with fields that this version does not know", () => {
    const script = benched(cells)
      .add("bench", { kind: "result", result })
      .add("end", { status: "completed", exit_code: 0 });
    expect(isWhole(stateOf(script))).toBe(true);
    expect(recordOf(stateOf(script), "sinkflex bench")).toEqual({ ...result, stopped: false });
  });

  it("is made of the plan and the cells when the result did not fit into a line", () => {
    for (const cut of [null, { ...result, cells: null }]) {
      const script = benched(cells).add("bench", { kind: "result", result: cut });
      const record = recordOf(stateOf(script.add("end", { status: "completed", exit_code: 0 })), "sinkflex bench");
      expect(record).toMatchObject({ type: "bench", what: "attention", device: "cpu", stopped: false });
      expect(record?.cells).toEqual(cells);
    }
  });

  it("of a worker that died holds what was measured, and says that cells are missing", () => {
    const record = recordOf(stateOf(benched(cells, 8)), "sinkflex bench --seq 2048");
    expect(record).toMatchObject({
      type: "bench",
      command: "sinkflex bench --seq 2048",
      geometry: { head_dim: 64 },
      versions: { torch: "2.13.0" },
      stopped: true,
    });
    expect(record?.cells).toHaveLength(3);
  });

  it("is none before there was a plan", () => expect(recordOf(initialBench, "sinkflex bench")).toBeNull());
});
