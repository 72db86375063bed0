/**
 * The picture of a run: `view(state, look) -> rows`, pure. No row is wider than `look.width`.
 *
 * From top to bottom: what is running and how far it is, what was chosen, warnings, the newest steps, the curve of the
 * reward, the newest evaluation, and what is being waited for. What does not fit is left out by priority: columns of
 * the table from its right end, facts from the end of their line, old steps when the window is low.
 */
import type { EventOf } from "../protocol/events.js";
import { metric, type State, type Warning } from "../run/state.js";
import {
  ABSENT,
  bar,
  bytes,
  clip,
  compact,
  duration,
  fixed,
  type Paint,
  painter,
  plural,
  printable,
  small,
  sparkline,
  wrapText,
} from "./format.js";
import { stepTable } from "./table.js";

export interface Look {
  width: number;
  color: boolean;
  /** Rows of the window; the table is shortened to fit. */
  height?: number;
  /** Seconds since the first attempt began, when a clock runs; otherwise the time of the newest event is shown. */
  elapsed?: number;
  /** One sentence from the command line, such as what Ctrl-C will do. */
  notice?: string;
  /** The command line has asked for the end. */
  stopping?: boolean;
  /** The run left no `end` and nobody works on it any more. */
  interrupted?: boolean;
}

const MOST_ROWS = 12;
const LABEL = 11;

const PHASES: Record<string, string> = {
  loading: "loading",
  warm_start: "warm start",
  rollout: "rollout",
  update: "update",
  eval: "evaluation",
  checkpoint: "saving a checkpoint",
  stopping: "stopping",
};

const STATUS_STYLE = {
  starting: "cyan",
  running: "cyan",
  completed: "green",
  stopped: "yellow",
  failed: "red",
} as const;

export function view(state: State, look: Look): string[] {
  const paint = painter(look.color);
  const head = [title(state, look, paint), ...progress(state, look, paint), ...facts(state, look, paint)];
  const warnings = state.warnings.slice(-4).flatMap((warning) => warningRows(warning, look.width, paint));
  const foot = [...curve(state, look, paint), ...evaluations(state, look, paint), ...waiting(state, look, paint)];
  if (look.notice !== undefined) foot.push(paint(look.stopping ? "yellow" : "dim", clip(look.notice, look.width)));
  const taken = head.length + gap(warnings) + gap(foot) + 3;
  const room = look.height === undefined ? MOST_ROWS : Math.max(1, Math.min(MOST_ROWS, look.height - taken));
  return join([head, warnings, steps(state, look, paint, room), foot]);
}

function gap(rows: string[]): number {
  return rows.length > 0 ? rows.length + 1 : 0;
}

function join(blocks: string[][]): string[] {
  return blocks.filter((block) => block.length > 0).flatMap((block, index) => (index === 0 ? block : ["", ...block]));
}

/** Left part, right part at the right edge; the left part is cut when both do not fit. */
function edges(
  left: string,
  right: string,
  width: number,
  paint: [(text: string) => string, (text: string) => string],
) {
  const shownRight = clip(right, width);
  const shownLeft = clip(left, width - shownRight.length - 2);
  const blanks = " ".repeat(Math.max(0, width - shownLeft.length - shownRight.length));
  return shownLeft === "" ? paint[1](shownRight) : `${paint[0](shownLeft)}${blanks}${paint[1](shownRight)}`;
}

export function statusText(state: State, look: Pick<Look, "stopping" | "interrupted"> = {}): string {
  if (state.end === null && look.interrupted) return "interrupted";
  if (state.end === null && look.stopping) return "stopping";
  const phase = state.phase === null ? undefined : (PHASES[state.phase.phase] ?? state.phase.phase);
  if (state.status === "starting") return "starting";
  if (state.status !== "running") return state.status;
  return phase === undefined ? "starting" : phase === "stopping" ? phase : `running: ${phase}`;
}

function title(state: State, look: Look, paint: Paint): string {
  const style = look.interrupted || look.stopping ? "yellow" : STATUS_STYLE[state.status];
  const attempt = state.attempt > 1 ? ` (attempt ${state.attempt})` : "";
  return edges(
    `${state.run || "run"}${attempt}`,
    look.stopping && state.end === null ? "stopping" : statusText(state),
    look.width,
    [(text) => paint("bold", text), (text) => paint(["bold", style], text)],
  );
}

interface Stage {
  name: string;
  done: number;
  total: number;
  left: number | null;
}

/** Where the run is: the warm start until the first training step, then the training steps. */
export function stage(state: State): Stage | null {
  const newest = state.rows.at(-1);
  const warming = newest === undefined && state.phase?.phase === "warm_start";
  const total = newest?.total ?? state.plan?.steps;
  if (warming && (state.plan?.sft_steps ?? 0) > 0) {
    const sftTotal = state.sft?.total ?? state.plan?.sft_steps ?? 0;
    const done = state.sft?.step ?? 0;
    const left = state.pace.sft === null ? null : state.pace.sft * (sftTotal - done);
    return { name: "warm start", done, total: sftTotal, left };
  }
  if (total === undefined) return null;
  const done = newest?.step ?? 0;
  return { name: "step", done, total, left: state.pace.rl === null ? null : state.pace.rl * Math.max(0, total - done) };
}

function progress(state: State, look: Look, paint: Paint): string[] {
  const elapsed = duration(look.elapsed ?? state.before + state.t);
  const at = stage(state);
  if (at === null) return [clip(`${state.phase?.detail ?? "waiting for the worker"}  ${elapsed}`, look.width)];
  const label = `${at.name} ${at.done} of ${at.total}`;
  const live = state.end === null && !look.interrupted;
  const times = live && at.left !== null && at.left > 0 ? `${elapsed}, ${duration(at.left)} left` : elapsed;
  const room = Math.min(50, look.width - label.length - times.length - 4);
  if (room < 6) return [clip(`${label}  ${times}`, look.width)];
  const [done, rest] = bar(at.total === 0 ? 1 : at.done / at.total, room);
  return [`${label}  ${paint("cyan", done)}${paint("dim", rest)}  ${times}`];
}

/** As many parts as fit into `width`, in their order. */
function fitting(parts: readonly string[], separator: string, width: number): string {
  let line = "";
  for (const part of parts) {
    const longer = line === "" ? part : `${line}${separator}${part}`;
    if (longer.length > width) break;
    line = longer;
  }
  return line === "" ? clip(parts[0] ?? "", width) : line;
}

function facts(state: State, look: Look, paint: Paint): string[] {
  const plan = state.plan;
  if (plan === null) return [];
  const device =
    plan.device === "cpu" && plan.threads !== null ? `cpu, ${plural(plan.threads, "thread")}` : plan.device;
  const parts = [
    device,
    `attention ${plan.attention_impl}`,
    plan.suite,
    `${plan.tasks_per_step} tasks x ${plan.group_size}`,
    plan.dtype,
    `${plan.model.name} ${compact(plan.model.parameters)}`,
    `seed ${state.seed ?? ABSENT}`,
    ...(plan.device === "cpu" || !plan.device_name ? [] : [plan.device_name]),
  ];
  return [paint("dim", fitting(parts.map(printable), " · ", look.width))];
}

export function warningRows(warning: Warning, width: number, paint: Paint): string[] {
  const times = warning.count > 1 ? ` (${warning.count} times)` : "";
  const fix = warning.fix === null ? "" : ` ${warning.fix}`;
  const text = printable(`${warning.what}${fix}${times}`);
  return wrapText(text, width - 9, true).map(
    (row, index) => `${index === 0 ? paint("yellow", "warning") : " ".repeat(7)}  ${row}`,
  );
}

function steps(state: State, look: Look, paint: Paint, room: number): string[] {
  if (state.rows.length > 0) return stepTable(state.rows.slice(-room), look.width, paint);
  const row = state.sft;
  if (row === null) return [];
  const agent = row.metrics.agent;
  const parts = [
    `loss ${fixed(metric(row, "loss"), 3)}`,
    `from ${fixed(state.sftFirstLoss, 3)}`,
    `lr ${small(metric(row, "lr"))}`,
    ...(typeof agent === "string" ? [`demonstrations of ${printable(agent)}`] : []),
    `${compact(metric(row, "tokens_per_second"))} tokens/s`,
    `grad norm ${small(metric(row, "grad_norm"))}`,
  ];
  return [`${"warm start".padEnd(LABEL)}  ${fitting(parts, "  ", look.width - LABEL - 2)}`];
}

function labelled(label: string, text: string, paint: Paint): string {
  return `${paint("dim", label.padEnd(LABEL))}  ${text}`;
}

function curve(state: State, look: Look, paint: Paint): string[] {
  const means = state.history.map((bucket) => bucket.sum / bucket.count);
  const [first, last] = [means[0], means.at(-1)];
  if (first === undefined || last === undefined || look.width < 40) return [];
  const ends = `${fixed(first, 2)} to ${fixed(last, 2)}`;
  const line = sparkline(means, Math.min(60, look.width - LABEL - ends.length - 4));
  return [labelled("reward", `${paint("green", line)}  ${ends}`, paint)];
}

export function evalText(one: EventOf<"eval">): string {
  const interval =
    one.ci_low === null || one.ci_high === null ? "" : ` [${fixed(one.ci_low, 2)}, ${fixed(one.ci_high, 2)}]`;
  return `${fixed(one.mean, 3)}${interval}`;
}

/** The newest evaluation of the policy on every suite, beside the one before training and doing nothing. */
function evaluations(state: State, look: Look, paint: Paint): string[] {
  const policy = state.evals.filter((one) => one.agent === "policy");
  const suites = [...new Set(policy.map((one) => one.suite))];
  return suites.slice(0, 3).map((suite) => {
    const own = policy.filter((one) => one.suite === suite);
    const [first, last] = [own[0] as EventOf<"eval">, own.at(-1) as EventOf<"eval">];
    const noop = last.noop_mean ?? state.plan?.noop_mean;
    const parts = [
      `${evalText(last)}`,
      `step ${last.step}`,
      ...(last === first ? [] : [`before ${fixed(first.mean, 3)}`]),
      `${last.tasks} ${last.split} tasks x ${last.trials}`,
      ...(noop === null || noop === undefined ? [] : [`doing nothing ${fixed(noop, 3)}`]),
      ...(suites.length > 1 ? [suite] : []),
      last.score_mode,
    ];
    return labelled("held out", fitting(parts.map(printable), " · ", look.width - LABEL - 2), paint);
  });
}

function waiting(state: State, look: Look, paint: Paint): string[] {
  const beat = state.beat;
  if (beat === null || !beat.waiting_for || state.end !== null || look.interrupted) return [];
  const parts = [printable(beat.waiting_for), ...(beat.rss_bytes ? [`memory ${bytes(beat.rss_bytes)}`] : [])];
  return [labelled("waiting for", fitting(parts, " · ", look.width - LABEL - 2), paint)];
}
