import { describe, expect, it } from "vitest";
import { perStep, remaining } from "../../../src/run/pace.js";
import { evaluation, plan, Script } from "../../fixtures/events.js";

const most = { step_s: 90, eval_s: 600, warm_start_s: 0, total_s: 1140 };
const expected = { step_s: 40, eval_s: 230, warm_start_s: 0, total_s: 470 };
/** Six steps with evaluations at 0, 4 and 6: 10, 3 and 10 episodes, 23 in all. */
const six = { ...plan, steps: 6, sft_steps: 0, evaluation: { every: 4, episodes: 3, report_episodes: 10 } };

function evaluated(script: Script, step: number, tasks: number, seconds: number) {
  script.add("phase", { phase: "eval", step, total: 6 }, 0);
  script.add("eval", { ...evaluation(step, 0.5), tasks }, seconds);
}

function step(script: Script, n: number, seconds: number) {
  script.add("phase", { phase: "rollout", step: n, total: 6 }, 0);
  script.add("step", { stage: "rl", step: n, total: 6, metrics: { step_s: seconds } }, seconds);
}

describe("the time that is left", () => {
  it("before the first step is the forecast, the expected one where there is one", () => {
    expect(remaining(new Script().add("plan", six).state)).toBeNull();
    const bounded = new Script().add("plan", { ...six, forecast: { expected: null, most } });
    expect(remaining(bounded.state)).toBeCloseTo(6 * 90 + 600);
    const script = new Script().add("plan", { ...six, forecast: { expected, most } });
    expect(remaining(script.state)).toBeCloseTo(6 * 40 + 230);
    evaluated(script, 0, 10, 50); // measured: 5 seconds an episode, and 13 episodes to come
    expect(remaining(script.state)).toBeCloseTo(6 * 40 + 5 * 13);
  });

  it("is the median of recent steps, evaluations counted apart", () => {
    const script = new Script().add("plan", { ...six, forecast: { expected, most } });
    evaluated(script, 0, 10, 50);
    for (const [n, seconds] of [10, 11, 70].entries()) step(script, n + 1, seconds); // one that was disturbed
    expect(perStep(script.state.pace)).toBeCloseTo(11);
    expect(remaining(script.state)).toBeCloseTo(3 * 11 + 5 * 13);
    step(script, 4, 12);
    expect(remaining(script.state)).toBeCloseTo(2 * 11.5 + 5 * 13); // the evaluation of step 4 has yet to come
    evaluated(script, 4, 3, 30);
    script.add("phase", { phase: "checkpoint", step: 4, total: 6 }, 0);
    expect(remaining(script.state)).toBeCloseTo(2 * 11.5 + 10 * 10);
    step(script, 5, 11); // 41 seconds after step 4, 30 of them an evaluation
    expect(perStep(script.state.pace)).toBeCloseTo(11);
    step(script, 6, 11);
    expect(remaining(script.state)).toBeCloseTo(10 * 10);
    evaluated(script, 6, 10, 90);
    expect(remaining(script.state)).toBe(0);
  });

  it("after a resume counts only what this attempt has measured", () => {
    const script = new Script().add("plan", { ...six, forecast: { expected, most } });
    evaluated(script, 0, 10, 50);
    for (const n of [1, 2, 3]) step(script, n, 10);
    script.t = 0;
    script.add("attempt", { attempt: 2, step: 2, checkpoint: "c" }, 0);
    expect(perStep(script.state.pace)).toBeNull();
    expect(remaining(script.state)).toBeCloseTo(4 * 40 + 10 * 13);
    step(script, 3, 20);
    expect(perStep(script.state.pace)).toBeCloseTo(20);
  });
});
