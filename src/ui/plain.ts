/**
 * Lines for a log: no escape bytes but colour that was asked for, no carriage returns, at most one line a step.
 *
 * Of a long run every N-th step is written, so that a log stays readable; what was written never changes.
 */
import type { Event, EventOf } from "../protocol/events.js";
import { metric, type State } from "../run/state.js";
import {
  bytes,
  compact,
  duration,
  fixed,
  labelRows,
  type Paint,
  painter,
  printable,
  sentences,
  small,
} from "./format.js";
import { stage } from "./header.js";
import { planRows } from "./plan.js";
import type { Output, Screen, Taste } from "./screen.js";
import { evalText } from "./view.js";

const MOST_LINES = { sft: 20, rl: 200 } as const;
/** Seconds of silence after which a beat that waits for something is worth a line. */
const SILENCE = 60;

function step(state: State, event: EventOf<"step">): string {
  const row = { ...event };
  const at = stage(state);
  const left = at?.left ? `, ${duration(at.left)} left` : "";
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

export class PlainScreen implements Screen {
  readonly #out: Output;
  readonly #taste: Taste;
  readonly #paint: Paint;
  #lastLine = 0;

  constructor(out: Output, taste: Taste) {
    this.#out = out;
    this.#taste = taste;
    this.#paint = painter(taste.color);
  }

  lines(): void {}

  event(state: State, event: Event): void {
    if (event.type === "warn") {
      const warning = state.warnings.find((other) => other.code === event.code);
      if (warning?.count === 1) this.#warn(event);
    }
    if (this.#taste.quiet) return;
    const rows = this.#rows(state, event);
    if (rows.length === 0) return;
    this.#lastLine = event.t;
    for (const row of rows) this.#out.write(`${row}\n`);
  }

  notice(text: string): void {
    this.#out.write(`${text}\n`);
  }

  close(): void {}

  #warn(event: EventOf<"warn">): void {
    this.#out.write(`${this.#paint("yellow", "warning")}  ${printable(sentences(event.what, event.fix))}\n`);
  }

  #rows(state: State, event: Event): string[] {
    switch (event.type) {
      case "attempt":
        return [`attempt ${event.attempt} goes on from step ${event.step}`];
      case "hello":
        this.#lastLine = event.t;
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
      case "beat": {
        const silent = event.t - this.#lastLine >= SILENCE;
        return silent && event.waiting_for
          ? [printable(`waiting for ${event.waiting_for} (${event.phase}, step ${event.step})`)]
          : [];
      }
      case "checkpoint":
        return this.#taste.verbose ? [`checkpoint ${event.path} (${bytes(event.bytes)})`] : [];
      case "phase":
        return this.#taste.verbose
          ? [printable(`phase ${event.phase}, step ${event.step}${event.detail ? `: ${event.detail}` : ""}`)]
          : [];
      default:
        return [];
    }
  }
}
