import { describe, expect, it } from "vitest";
import type { Event } from "../../../src/protocol/events.js";
import { perStep } from "../../../src/run/pace.js";
import { initialState, reduce, type State } from "../../../src/run/state.js";
import { rewardEnds } from "../../../src/run/summary.js";
import { evaluation, hello, metrics, Script, trained } from "../../fixtures/events.js";

function step(n: number, total: number, reward: number | null, t = n): Event {
  return { v: 1, seq: n, t, type: "step", stage: "rl", step: n, total, metrics: { reward } };
}

function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(frozen);
  }
  return value;
}

describe("reduce", () => {
  it("changes neither the state nor the event", () => {
    let state = frozen(initialState);
    for (const event of trained(25).events) state = frozen(reduce(state, frozen(event)));
    expect(state.rows.at(-1)?.step).toBe(25);
  });

  it("reaches the same state from the same events", () => {
    expect(trained(30).state).toEqual(trained(30).state);
  });

  it("follows a run from the first word to the last", () => {
    const script = trained(0);
    expect(script.state).toMatchObject({
      status: "running",
      run: hello.run,
      seed: 7,
      attempt: 1,
      phase: { phase: "eval" },
    });
    expect(script.state.sft?.step).toBe(800);
    expect(script.state.evals.map((one) => one.mean)).toEqual([0.185]);
    const done = trained(60).add("end", { status: "completed", exit_code: 0, step: 60, checkpoint: "c", error: null });
    expect(done.state).toMatchObject({
      status: "completed",
      checkpoint: { step: 60 },
      episodes: { total: 60, infra: 0 },
    });
    expect(done.state.example).toEqual({ id: "rl-000060-t00-s0", step: 60, reward: 1 });
  });

  it("counts warnings under their code, the newest words last", () => {
    const script = new Script();
    for (const n of [1, 2, 3]) script.add("warn", { code: "zero_variance", what: `step ${n}`, fix: null });
    script.add("warn", { code: "other", what: "else", fix: "do" });
    expect(script.state.warnings).toEqual([
      { code: "zero_variance", what: "step 3", fix: null, count: 3 },
      { code: "other", what: "else", fix: "do", count: 1 },
    ]);
  });

  it("never shows an episode without a reward as one with reward 0", () => {
    const body = { step: 1, split: "train", task_id: "x", owner: "env", reason: null, truncated: true };
    const script = new Script().add("episode", { id: "a", ...body, reward: null, outcome: "infra_error" });
    expect(script.state.example).toBeNull();
    expect(script.state.episodes).toEqual({ total: 1, infra: 1, truncated: 1 });
  });

  it("knows the pace per step, also when only every hundredth step is reported", () => {
    expect(trained(0).state.pace.sft).toBeCloseTo(0.12, 2);
    let state = initialState;
    for (let n = 100; n <= 2000; n += 100) state = reduce(state, step(n, 4000, 0.5, n * 2.5));
    expect(perStep(state.pace)).toBeCloseTo(2.5, 5);
  });

  it("does not grow with the run: 100 000 steps, warnings and episodes", () => {
    let state: State = initialState;
    for (let n = 1; n <= 100_000; n++) {
      state = reduce(state, step(n, 100_000, n / 100_000));
      if (n % 100 === 0) state = reduce(state, { v: 1, seq: n, t: n, type: "warn", code: `c${n}`, what: "w" });
    }
    expect(state.events).toBe(101_000);
    expect(state.rows.length).toBeLessThanOrEqual(64);
    expect(state.history.length).toBeLessThanOrEqual(256);
    expect(state.warnings.length).toBeLessThanOrEqual(32);
    expect(JSON.stringify(state).length).toBeLessThan(40_000);
    const steps = state.history.reduce((sum, bucket) => sum + bucket.count, 0);
    const mean = state.history.reduce((sum, bucket) => sum + bucket.sum, 0) / steps;
    expect(steps).toBe(100_000);
    expect(mean).toBeCloseTo(0.500005, 6);
  });
});

describe("a resume", () => {
  it("B106 step 10, an evaluation of step 5, step 11, then on from 8: nothing is refused, the newest counts", () => {
    const script = new Script().add("hello", hello);
    for (let n = 6; n <= 10; n++) script.add("step", { stage: "rl", step: n, total: 20, metrics: { reward: 0.1 } });
    script.add("eval", evaluation(5, 0.3));
    script.add("step", { stage: "rl", step: 11, total: 20, metrics: { reward: 0.1 } });
    script.add("attempt", { attempt: 2, step: 8, checkpoint: "checkpoints/step-000008" }, 0);
    for (let n = 9; n <= 12; n++) script.add("step", { stage: "rl", step: n, total: 20, metrics: { reward: 0.9 } });
    const { state } = script;
    expect(state.events).toBe(13);
    expect(state.rows.map((row) => [row.step, row.metrics.reward])).toEqual([
      [6, 0.1],
      [7, 0.1],
      [8, 0.1],
      [9, 0.9],
      [10, 0.9],
      [11, 0.9],
      [12, 0.9],
    ]);
    expect(state.history.map((bucket) => bucket.step)).toEqual([6, 7, 8, 9, 10, 11, 12]);
    expect(state.evals.map((one) => one.step)).toEqual([5]);
  });

  it("begins a fresh clock and remembers the old one", () => {
    const script = trained(20);
    const before = script.state.t;
    script.t = 0;
    script.add("attempt", { attempt: 2, step: 20, checkpoint: "c" }, 0);
    script.add("hello", { ...hello, attempt: 2 }, 0.2);
    expect(script.state).toMatchObject({ attempt: 2, status: "running", before, t: 0.2, end: null, warnings: [] });
    script.add("step", { stage: "rl", step: 21, total: 60, metrics: metrics(21) }, 3);
    script.add("step", { stage: "rl", step: 22, total: 60, metrics: metrics(22) }, 3);
    expect(perStep(script.state.pace)).toBeCloseTo(2.75, 5); // the clock began anew: 2.5 by the step's own word, then 3
  });

  it("replaces an evaluation that is measured again", () => {
    const script = new Script().add("eval", evaluation(10, 0.4)).add("eval", evaluation(10, 0.5));
    expect(script.state.evals.map((one) => one.mean)).toEqual([0.5]);
  });
});

describe("the ends of the reward curve", () => {
  it.each([
    [[], null],
    [[0.25], { first: 0.25, last: 0.25, over: 1 }],
    [[0, 1, 2, 3], { first: 0.5, last: 2.5, over: 2 }],
    [[0, 0, 0, 0, 1, 5, 1, 1, 1, 1, 2], { first: 0.2, last: 1.2, over: 5 }],
  ])("of %j", (rewards, ends) => {
    const state = rewards.reduce((now, reward, n) => reduce(now, step(n + 1, 99, reward)), initialState);
    expect(rewardEnds(state)).toEqual(ends);
  });
});
