/**
 * An evaluation at one moment: `reduce(state, event) -> state`, pure. The live window, the lines of a log and the final
 * report are drawn from this state.
 */
import type { Comparison, Report } from "../protocol/eval.js";
import type { Event, EventOf } from "../protocol/events.js";
import type { Standing } from "../run/state.js";
import { type Warning, warned } from "../run/warnings.js";

/** One trial, under way or finished. */
export interface TrialRow {
  task: string;
  trial: number;
  turn: number;
  /** Worker seconds at its start. */
  since: number;
  waitingFor: string | null;
  done: boolean;
  reward: number | null;
  outcome: string | null;
  owner: string | null;
  reason: string | null;
  error: string | null;
}

export interface EvalState {
  plan: EventOf<"eval_plan"> | null;
  underway: readonly TrialRow[];
  /** The newest finished trials, oldest first. */
  finished: readonly TrialRow[];
  /** Finished in this attempt: how many, how many of them scored, and the sum of their rewards. */
  done: number;
  scored: number;
  sum: number;
  report: Report | null;
  comparison: Comparison | null;
  phase: EventOf<"phase"> | null;
  beat: EventOf<"beat"> | null;
  warnings: readonly Warning[];
  end: EventOf<"end"> | null;
  /** Worker seconds at the newest event. */
  t: number;
  before: 0;
}

/** How many finished trials are kept for the window. */
const KEPT = 60;

export const initialEval: EvalState = {
  plan: null,
  underway: [],
  finished: [],
  done: 0,
  scored: 0,
  sum: 0,
  report: null,
  comparison: null,
  phase: null,
  beat: null,
  warnings: [],
  end: null,
  t: 0,
  before: 0,
};

export function reduceEval(state: EvalState, event: Event): EvalState {
  return { ...apply(state, event), t: Math.max(state.t, event.t) };
}

function apply(state: EvalState, event: Event): EvalState {
  switch (event.type) {
    case "eval_plan":
      return { ...state, plan: event };
    case "trial":
      return onTrial(state, event);
    case "eval_report":
      return { ...state, report: event.report };
    case "eval_comparison":
      return { ...state, comparison: event.comparison };
    case "phase":
      return { ...state, phase: event };
    case "beat":
      return { ...state, beat: event };
    case "warn":
      return { ...state, warnings: warned(state.warnings, event) };
    case "end":
      return { ...state, end: event, underway: [] };
    default:
      return state;
  }
}

function onTrial(state: EvalState, event: EventOf<"trial">): EvalState {
  const same = (row: TrialRow) => row.task === event.task_id && row.trial === event.trial;
  const before = state.underway.find(same);
  const row: TrialRow = {
    task: event.task_id,
    trial: event.trial,
    turn: event.turn,
    since: before?.since ?? event.t,
    waitingFor: event.waiting_for ?? null,
    done: event.kind === "finished",
    reward: event.reward ?? null,
    outcome: event.outcome ?? null,
    owner: event.owner ?? null,
    reason: event.reason ?? null,
    error: event.error ?? null,
  };
  if (!row.done) {
    const underway = before ? state.underway.map((one) => (same(one) ? row : one)) : [...state.underway, row];
    return { ...state, underway };
  }
  return {
    ...state,
    underway: state.underway.filter((one) => !same(one)),
    finished: [...state.finished, row].slice(-KEPT),
    done: state.done + 1,
    scored: state.scored + (row.reward === null ? 0 : 1),
    sum: state.sum + (row.reward ?? 0),
  };
}

/** Where it stood, for the end of a worker that told none. */
export function standingOfEval(state: EvalState): Standing {
  const where = state.plan === null ? "before the first trial" : `after ${state.done} of ${state.plan.total} trials`;
  return { t: state.t, ended: state.end !== null, where, step: null, checkpoint: null };
}
