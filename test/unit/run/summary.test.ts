import { describe, expect, it } from "vitest";
import { initialState } from "../../../src/run/state.js";
import { summarise } from "../../../src/run/summary.js";
import { evaluation, trained } from "../../fixtures/events.js";

const facts = {
  run: "demo-1",
  seed: 7,
  attempt: 1,
  config_sha256: "ab",
  exitCode: 0,
  status: "completed" as const,
  checkpoint: "checkpoints/step-000060",
};

describe("summary.json", () => {
  it("has the names that scripts rely on", () => {
    const script = trained(60).add("end", {
      status: "completed",
      exit_code: 0,
      step: 60,
      checkpoint: "c",
      error: null,
    });
    const summary = summarise(script.state, facts);
    expect(summary).toMatchObject({
      status: "completed",
      exit_code: 0,
      steps: 60,
      seed: 7,
      device: "cpu",
      attention_impl: "flash",
      controls: { noop: 0 },
      checkpoint: "checkpoints/step-000060",
      config_sha256: "ab",
      error: null,
    });
    expect(summary.wall_s).toBeCloseTo(script.state.t, 3);
    expect(summary.evals[0]).toEqual({
      suite: "mini-shop",
      split: "report",
      step: 0,
      agent: "policy",
      tasks: 200,
      trials: 1,
      mean: 0.185,
      ci_low: 0.135,
      ci_high: 0.235,
      score_mode: "exact",
    });
    expect(summary.evals.map((one) => one.step)).toEqual([0, 10, 20, 30, 40, 50, 60]);
  });

  it("says only what was measured", () => {
    expect(summarise(initialState, { ...facts, status: "failed", exitCode: 3, checkpoint: null })).toMatchObject({
      status: "failed",
      exit_code: 3,
      steps: 0,
      device: null,
      reward: null,
      evals: [],
      controls: {},
      checkpoint: null,
    });
  });

  it("takes controls from agents that were evaluated", () => {
    const script = trained(1).add("eval", { ...evaluation(0, 0.76), agent: "sft_only" });
    script.add("eval", { ...evaluation(0, 0.01), agent: "noop" });
    expect(summarise(script.state, facts).controls).toEqual({ noop: 0.01, sft_only: 0.76 });
  });

  it("keeps the reason of a failure", () => {
    const error = { owner: "infra", code: "SF-X", what: "w", why: "y", fix: "f" };
    const script = trained(3).add("end", { status: "failed", exit_code: 1, step: 3, checkpoint: null, error });
    expect(summarise(script.state, { ...facts, status: "failed", exitCode: 1 }).error).toEqual(error);
  });
});
