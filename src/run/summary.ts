/** summary.json: how a run ended, in names that scripts rely on (they are never renamed). Pure. */
import type { EventOf, Failure } from "../protocol/events.js";
import type { State } from "./state.js";

export interface Evaluation {
  suite: string;
  split: string;
  step: number;
  agent: string;
  tasks: number;
  trials: number;
  mean: number | null;
  ci_low: number | null;
  ci_high: number | null;
  score_mode: string;
}

export interface Summary {
  run: string;
  suite: string | null;
  status: "completed" | "stopped" | "failed";
  exit_code: number;
  attempt: number;
  steps: number;
  steps_planned: number | null;
  wall_s: number;
  seed: number | null;
  device: string | null;
  attention_impl: string | null;
  /** Mean training reward over the first and the last few steps. */
  reward: RewardEnds | null;
  /** Step 0 is before reinforcement learning, after a warm start. */
  evals: Evaluation[];
  /** Only what was measured. */
  controls: { noop?: number; sft_only?: number };
  /** Relative to the run directory; null when none was written. */
  checkpoint: string | null;
  config_sha256: string;
  error: Failure | null;
}

export interface RewardEnds {
  first: number;
  last: number;
  /** How many steps each is the mean of. */
  over: number;
}

const ENDS = 5;

export function rewardEnds(state: Pick<State, "history">): RewardEnds | null {
  const { history } = state;
  if (history.length === 0) return null;
  const count = Math.max(1, Math.min(ENDS, Math.floor(history.length / 2)));
  const mean = (part: State["history"]) =>
    part.reduce((sum, bucket) => sum + bucket.sum, 0) / part.reduce((sum, bucket) => sum + bucket.count, 0);
  const head = history.slice(0, count);
  return {
    first: mean(head),
    last: mean(history.slice(-count)),
    over: head.reduce((sum, bucket) => sum + bucket.count, 0),
  };
}

function evaluation(one: EventOf<"eval">): Evaluation {
  const { suite, split, step, agent, tasks, trials, mean, ci_low, ci_high, score_mode } = one;
  return { suite, split, step, agent, tasks, trials, mean, ci_low, ci_high, score_mode };
}

export function controlsOf(state: State): Summary["controls"] {
  const measured = (agent: string) => state.evals.findLast((one) => one.agent === agent)?.mean;
  const noop =
    measured("noop") ??
    state.evals.findLast((one) => typeof one.noop_mean === "number")?.noop_mean ??
    state.plan?.noop_mean;
  const sftOnly = measured("sft_only");
  return {
    ...(typeof noop === "number" ? { noop } : {}),
    ...(typeof sftOnly === "number" ? { sft_only: sftOnly } : {}),
  };
}

export interface Facts {
  run: string;
  seed: number;
  attempt: number;
  config_sha256: string;
  exitCode: number;
  status: Summary["status"];
  /** Relative to the run directory, as found on disk. */
  checkpoint: string | null;
}

export function summarise(state: State, facts: Facts): Summary {
  const newest = state.rows.at(-1);
  return {
    run: facts.run,
    suite: state.plan?.suite ?? null,
    status: facts.status,
    exit_code: facts.exitCode,
    attempt: facts.attempt,
    steps: newest?.step ?? 0,
    steps_planned: newest?.total ?? state.plan?.steps ?? null,
    wall_s: Math.round((state.before + state.t) * 1000) / 1000,
    seed: state.seed ?? facts.seed,
    device: state.plan?.device ?? null,
    attention_impl: state.plan?.attention_impl ?? null,
    reward: rewardEnds(state),
    evals: state.evals.map(evaluation),
    controls: controlsOf(state),
    checkpoint: facts.checkpoint,
    config_sha256: facts.config_sha256,
    error: state.end?.error ?? null,
  };
}
