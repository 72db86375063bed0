/**
 * What a run looks like at one moment: `reduce(state, event) -> state`, pure.
 *
 * The live view, `runs show`, `runs tail` and the tests all walk this one path. A state never grows with the length of
 * the run: of the steps it keeps the newest rows and a history of the reward in at most HISTORY buckets (full buckets
 * are merged in pairs), of the warnings one per code with a count. Evaluations are kept, they are few.
 *
 * After a resume the step counter may go back. What comes later replaces what it repeats here; nothing is dropped from
 * events.jsonl.
 */
import type { Event, EventOf } from "../protocol/events.js";
import { type Pace, pacedEval, pacedPhase, pacedSft, pacedStep, unpaced } from "./pace.js";
import { type Warning, warned } from "./warnings.js";

export type Status = "starting" | "running" | "completed" | "stopped" | "failed";
export type Metrics = EventOf<"step">["metrics"];

export interface StepRow {
  stage: "sft" | "rl";
  step: number;
  total: number;
  t: number;
  metrics: Metrics;
}

/** `count` consecutive steps from `step` on; `sum` of their rewards. */
export interface Bucket {
  step: number;
  count: number;
  sum: number;
}

export interface State {
  run: string;
  seed: number | null;
  attempt: number;
  status: Status;
  phase: EventOf<"phase"> | null;
  plan: EventOf<"plan"> | null;
  sft: StepRow | null;
  sftFirstLoss: number | null;
  rows: readonly StepRow[];
  history: readonly Bucket[];
  evals: readonly EventOf<"eval">[];
  warnings: readonly Warning[];
  beat: EventOf<"beat"> | null;
  checkpoint: EventOf<"checkpoint"> | null;
  /** The newest scored episode: something to show. */
  example: { id: string; step: number; reward: number } | null;
  episodes: { total: number; infra: number; truncated: number };
  end: EventOf<"end"> | null;
  /** Worker seconds of this attempt at the newest event, and of all attempts before. */
  t: number;
  before: number;
  pace: Pace;
  events: number;
}

/** What a state of any verb can say about itself. */
export interface Standing {
  /** Worker seconds at the newest event. */
  t: number;
  /** The worker has said its end. */
  ended: boolean;
  /** Where it is, as in "ended by SIGKILL (in phase rollout, after step 4)". */
  where: string;
  step: number | null;
  checkpoint: string | null;
}

const ROWS = 64;
const HISTORY = 256;

export const initialState: State = {
  run: "",
  seed: null,
  attempt: 1,
  status: "starting",
  phase: null,
  plan: null,
  sft: null,
  sftFirstLoss: null,
  rows: [],
  history: [],
  evals: [],
  warnings: [],
  beat: null,
  checkpoint: null,
  example: null,
  episodes: { total: 0, infra: 0, truncated: 0 },
  end: null,
  t: 0,
  before: 0,
  pace: unpaced,
  events: 0,
};

/** A metric as a number; null when absent, not finite or not a number. */
export function metric(row: StepRow | null | undefined, name: string): number | null {
  const value = row?.metrics[name];
  return typeof value === "number" ? value : null;
}

function pushReward(history: readonly Bucket[], step: number, reward: number | null): readonly Bucket[] {
  const kept = history.filter((bucket) => bucket.step < step);
  if (reward === null) return kept;
  const last = kept.at(-1);
  const size = kept[0]?.count ?? 1;
  if (last !== undefined && last.count < size) {
    kept[kept.length - 1] = { step: last.step, count: last.count + 1, sum: last.sum + reward };
    return kept;
  }
  kept.push({ step, count: 1, sum: reward });
  if (kept.length <= HISTORY) return kept;
  const merged: Bucket[] = [];
  for (let at = 0; at < kept.length; at += 2) {
    const [a, b] = [kept[at] as Bucket, kept[at + 1]];
    merged.push(b === undefined ? a : { step: a.step, count: a.count + b.count, sum: a.sum + b.sum });
  }
  return merged;
}

function onStep(state: State, event: EventOf<"step">): State {
  const { stage, step, total, t, metrics } = event;
  const row: StepRow = { stage, step, total, t, metrics };
  if (stage === "sft") {
    const { sft } = state;
    const pace = sft === null ? state.pace : pacedSft(state.pace, (t - sft.t) / (step - sft.step));
    const sftFirstLoss = state.sftFirstLoss ?? metric(row, "loss");
    return { ...state, sft: row, sftFirstLoss, pace };
  }
  const previous = state.rows.at(-1);
  const kept = state.rows.filter((other) => other.step < step).slice(1 - ROWS);
  const follows = previous !== undefined && !Number.isNaN(previous.t);
  const before = follows ? state.pace : { ...state.pace, evaluating: 0 };
  const [since, count] = follows ? [t - previous.t, step - previous.step] : [metric(row, "step_s") ?? Number.NaN, 1];
  const history = pushReward(state.history, step, metric(row, "reward"));
  return { ...state, rows: [...kept, row], history, pace: pacedStep(before, since, count) };
}

function onEval(state: State, event: EventOf<"eval">): State {
  const same = (other: EventOf<"eval">) =>
    other.suite === event.suite &&
    other.split === event.split &&
    other.step === event.step &&
    other.agent === event.agent;
  const pace = pacedEval(state.pace, state.phase, event);
  return { ...state, evals: [...state.evals.filter((other) => !same(other)), event], pace };
}

function onEpisode(state: State, event: EventOf<"episode">): State {
  const { total, infra, truncated } = state.episodes;
  const episodes = {
    total: total + 1,
    infra: infra + (event.outcome === "infra_error" ? 1 : 0),
    truncated: truncated + (event.truncated === true ? 1 : 0),
  };
  const example = event.reward === null ? state.example : { id: event.id, step: event.step, reward: event.reward };
  return { ...state, episodes, example };
}

/** A new attempt begins: what is over is over, what was learned stays. */
function onAttempt(state: State, event: EventOf<"attempt">): State {
  return {
    ...state,
    attempt: event.attempt,
    status: "starting",
    phase: null,
    beat: null,
    end: null,
    warnings: [],
    // The clock starts again: a row of an earlier attempt says nothing about the pace of this one.
    rows: state.rows.filter((row) => row.step <= event.step).map((row) => ({ ...row, t: Number.NaN })),
    history: state.history.filter((bucket) => bucket.step <= event.step),
    evals: state.evals.filter((one) => one.step <= event.step),
    pace: unpaced,
    before: state.before + state.t,
    t: 0,
  };
}

function apply(state: State, event: Event): State {
  switch (event.type) {
    case "attempt":
      return onAttempt(state, event);
    case "hello":
      return {
        ...state,
        run: event.run ?? state.run,
        seed: event.seed ?? state.seed,
        attempt: event.attempt ?? state.attempt,
        status: "running",
      };
    case "phase":
      return { ...state, phase: event, pace: pacedPhase(state.pace, state.phase, event.t) };
    case "plan":
      return { ...state, plan: event };
    case "step":
      return onStep(state, event);
    case "episode":
      return onEpisode(state, event);
    case "eval":
      return onEval(state, event);
    case "checkpoint":
      return { ...state, checkpoint: event };
    case "beat":
      return { ...state, beat: event };
    case "warn":
      return { ...state, warnings: warned(state.warnings, event) };
    case "end":
      return { ...state, end: event, status: event.status };
    default: // of other verbs
      return state;
  }
}

/** How far the run has come, for the end of a worker that did not tell it. */
export function standing(state: State): Standing {
  const step = state.rows.at(-1)?.step ?? null;
  const phase = state.phase === null ? "before its first event" : `in phase ${state.phase.phase}`;
  return {
    t: state.t,
    ended: state.end !== null,
    where: step === null ? phase : `${phase}, after step ${step}`,
    step,
    checkpoint: state.checkpoint?.path ?? null,
  };
}

export function reduce(state: State, event: Event): State {
  const next = apply(state, event);
  const t = event.type === "attempt" ? next.t : Math.max(state.t, event.t);
  return { ...next, t, events: state.events + 1 };
}
