/** A training run as lines of a log. Of a long run every N-th step is written, so that a log stays readable. Pure. */
import type { Event, EventOf } from "../protocol/events.js";
import { metric, type State } from "../run/state.js";
import { bytes, compact, duration, fixed, labelRows, printable, roughly, small } from "./format.js";
import { stage } from "./header.js";
import { planRows } from "./plan.js";
import type { Since } from "./screen.js";
import { evalText } from "./view.js";

const MOST_LINES = { sft: 20, rl: 200 } as const;
/** Seconds of silence after which a beat that waits for something is worth a line. */
export const SILENCE = 60;

export function runLines(state: State, event: Event, { verbose, silent }: Since): string[] {
  switch (event.type) {
    case "attempt":
      return [`attempt ${event.attempt} goes on from step ${event.step}`];
    case "hello":
      return [`run ${event.run}, seed ${event.seed}, Python ${event.python}, process ${event.pid}`];
    case "plan":
      return labelRows(planRows(event), Number.MAX_SAFE_INTEGER);
    case "step": {
      const every = Math.max(1, Math.ceil(event.total / MOST_LINES[event.stage]));
      const shown = event.step <= 1 || event.step >= event.total || event.step % every === 0;
      return shown ? [step(state, event)] : [];
    }
    case "eval":
      return [evaluation(event)];
    case "beat":
      return silent >= SILENCE && event.waiting_for
        ? [printable(`waiting for ${event.waiting_for} (${event.phase}, step ${event.step})`)]
        : [];
    case "checkpoint":
      return verbose ? [`checkpoint ${event.path} (${bytes(event.bytes)})`] : [];
    case "phase":
      return verbose
        ? [printable(`phase ${event.phase}, step ${event.step}${event.detail ? `: ${event.detail}` : ""}`)]
        : [];
    default:
      return [];
  }
}

function step(state: State, event: EventOf<"step">): string {
  const row = { ...event };
  const at = stage(state);
  const left = at?.left ? `, ${roughly(at.left)} left` : "";
  const time = `${duration(state.before + state.t)}${left}`;
  if (event.stage === "sft") {
    const speed = `${compact(metric(row, "tokens_per_second"))} tokens/s`;
    return `warm start ${event.step}/${event.total}  loss ${fixed(metric(row, "loss"), 3)}  ${speed}  ${time}`;
  }
  return [
    `step ${String(event.step).padStart(String(event.total).length)}/${event.total}`,
    `reward ${fixed(metric(row, "reward"), 3)}`,
    `success ${fixed(metric(row, "success"), 3)}`,
    `std ${fixed(metric(row, "reward_std"), 3)}`,
    `zero-var ${fixed(metric(row, "frac_reward_zero_std"), 2)}`,
    `entropy ${fixed(metric(row, "entropy"), 3)}`,
    `gap ${small(metric(row, "logprob_gap"))}`,
    `grad ${fixed(metric(row, "grad_norm"), 2)}`,
    `${compact(metric(row, "tokens_per_second"))} tokens/s`,
    time,
  ].join("  ");
}

function evaluation(event: EventOf<"eval">): string {
  const noop =
    event.noop_mean === null || event.noop_mean === undefined ? "" : `, doing nothing ${fixed(event.noop_mean, 3)}`;
  const tasks = `${event.tasks} ${event.split} tasks x ${event.trials}, ${event.score_mode}${noop}`;
  const who = event.agent === "policy" ? "" : ` (${event.agent})`;
  return printable(`held out at step ${event.step}${who}  ${event.suite} ${evalText(event)}  ${tasks}`);
}
