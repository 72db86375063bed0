import { describe, expect, it } from "vitest";
import type { EventOf } from "../../../src/protocol/events.js";
import { roughly } from "../../../src/ui/format.js";
import { planRows } from "../../../src/ui/plan.js";
import { plan } from "../../fixtures/events.js";

const rowOf = (label: string, changes: Partial<typeof plan>) =>
  planRows({ v: 1, seq: 0, t: 0, type: "plan", ...plan, ...changes } as EventOf<"plan">).filter(([l]) => l === label);
const most = { step_s: 74, eval_s: 600, warm_start_s: 0, total_s: 6000 };
const expected = { step_s: 42.4, eval_s: 540, warm_start_s: 0, total_s: 3240 };

describe("the plan", () => {
  it("says how long the run will take, and in which case", () => {
    expect(rowOf("time", {})).toEqual([]);
    expect(rowOf("time", { forecast: { expected, most } })).toEqual([
      [
        "time",
        "about 40 s a step, about 54 m in all, played as the expert plays; with every turn at its token limit about 1 m 10 s a step, about 1 h 40 m in all (from a short probe; measured steps replace it)",
      ],
    ]);
    expect(rowOf("time", { forecast: { expected: null, most } })[0]?.[1]).toMatch(/^at most about 1 m 10 s a step/);
  });

  it("says what was measured of threads, and what was taken", () => {
    const measured = [
      { threads: 1, decode_per_second: 41.3, update_per_second: 220 },
      { threads: 2, decode_per_second: 76.9, update_per_second: 400 },
    ];
    expect(rowOf("threads", {})).toEqual([]);
    expect(rowOf("threads", { threads: 2, threads_measured: measured })).toEqual([
      ["threads", "2, measured in tokens/s: decode 41.3, update 220 with 1; decode 76.9, update 400 with 2"],
    ]);
  });
});

describe("rough times", () => {
  it.each([
    [2, "about 5 s"],
    [43, "about 45 s"],
    [60, "about 1 m"],
    [103, "about 1 m 40 s"],
    [552, "about 9 m"],
    [3241, "about 54 m"],
    [7500, "about 2 h 10 m"],
  ])("%i seconds", (seconds, text) => expect(roughly(seconds)).toBe(text));
});
