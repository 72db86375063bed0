/**
 * How fast a run goes and how long it still takes, from its own events. Pure.
 *
 * A step costs the median of the newest ones, evaluations apart; an evaluation as much for each of its episodes as the
 * last one. Until these are measured, the forecast of the plan stands in for them.
 */
import type { EventOf } from "../protocol/events.js";
import type { State } from "./state.js";

const RECENT = 9;
const SMOOTH = 0.3;

/** Seconds. */
export interface Pace {
  /** Per step of the warm start, smoothed. */
  sft: number | null;
  /** Per training step, of the newest ones. */
  steps: readonly number[];
  /** Per evaluated episode. */
  episode: number | null;
  /** In evaluations since the newest training step. */
  evaluating: number;
}

export const unpaced: Pace = { sft: null, steps: [], episode: null, evaluating: 0 };

/** Seconds per training step; null before the first. */
export function perStep({ steps }: Pace): number | null {
  if (steps.length === 0) return null;
  const sorted = [...steps].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] as number;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] as number) + upper) / 2;
}

const real = (seconds: number) => seconds >= 0 && Number.isFinite(seconds); // the counter or the clock may go back

export function pacedSft(pace: Pace, seconds: number): Pace {
  if (!real(seconds)) return pace;
  return { ...pace, sft: pace.sft === null ? seconds : pace.sft + SMOOTH * (seconds - pace.sft) };
}

/** After a step `count` steps and `since` seconds behind the one before it, evaluations included. */
export function pacedStep(pace: Pace, since: number, count: number): Pace {
  const seconds = (since - pace.evaluating) / count;
  const steps = real(seconds) ? [...pace.steps, seconds].slice(-RECENT) : pace.steps;
  return { ...pace, steps, evaluating: 0 };
}

/** After the phase `was` ended at `t`. */
export function pacedPhase(pace: Pace, was: EventOf<"phase"> | null, t: number): Pace {
  if (was?.phase !== "eval" || !real(t - was.t)) return pace;
  return { ...pace, evaluating: pace.evaluating + t - was.t };
}

export function pacedEval(pace: Pace, phase: EventOf<"phase"> | null, event: EventOf<"eval">): Pace {
  const seconds = phase?.phase === "eval" ? (event.t - phase.t) / (event.tasks * event.trials) : Number.NaN;
  return event.agent === "policy" && real(seconds) ? { ...pace, episode: seconds } : pace;
}

/** What the plan expects, or, where nobody knows what to expect, the most that it can be. */
function foreseen(plan: EventOf<"plan"> | null) {
  return plan?.forecast?.expected ?? plan?.forecast?.most ?? null;
}

/** Episodes that evaluations of the steps from `done` on will play; those that have been reported are over. */
function toEvaluate({ plan, evals }: State, done: number, total: number): { left: number; all: number } {
  const every = plan?.evaluation?.every ?? 0;
  let [left, all] = [0, 0];
  const due = new Set([
    0,
    total,
    ...Array.from({ length: every ? Math.floor(total / every) : 0 }, (_, n) => (n + 1) * every),
  ]);
  for (const step of due) {
    const ends = step === 0 || step === total;
    const episodes = (ends ? plan?.evaluation?.report_episodes : plan?.evaluation?.episodes) ?? 0;
    all += episodes;
    if (step >= done && !evals.some((one) => one.agent === "policy" && one.step === step)) left += episodes;
  }
  return { left, all };
}

/** Seconds until the last training step and its evaluation are done; null while nothing is known. */
export function remaining(state: State): number | null {
  const newest = state.rows.at(-1);
  const total = newest?.total ?? state.plan?.steps;
  const forecast = foreseen(state.plan);
  const step = perStep(state.pace) ?? forecast?.step_s ?? null;
  if (total === undefined || step === null) return null;
  const done = newest?.step ?? 0;
  const { left, all } = toEvaluate(state, done, total);
  const episode = state.pace.episode ?? (forecast === null || all === 0 ? 0 : (forecast.eval_s ?? 0) / all);
  return step * Math.max(0, total - done) + episode * left;
}
