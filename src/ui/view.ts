/**
 * The picture of a run: `view(state, look) -> rows`, pure. No row is wider than `look.width`.
 *
 * From top to bottom: what is running and how far it is, what was chosen, warnings, the newest steps, the curve of the
 * reward, the newest evaluation, and what is being waited for. What does not fit is left out by priority: columns of
 * the table from its right end, facts from the end of their line, old steps when the window is low.
 */
import type { EventOf } from "../protocol/events.js";
import { metric, type State } from "../run/state.js";
import { fitting, gap, join, warningBlock } from "./blocks.js";
import { bytes, clip, compact, fixed, type Paint, painter, printable, small, sparkline } from "./format.js";
import { header, PHASES } from "./header.js";
import type { Look } from "./screen.js";
import { stepTable } from "./table.js";

const MOST_ROWS = 12;
const LABEL = 10;

export function view(state: State, look: Look): string[] {
  const paint = painter(look.color);
  const head = header(state, look, paint);
  const warnings = warningBlock(state.warnings, look, paint);
  const foot = [...curve(state, look, paint), ...evaluations(state, look, paint), ...now(state, look, paint)];
  if (look.notice !== undefined) foot.push(paint(look.stopping ? "yellow" : "dim", clip(look.notice, look.width)));
  const taken = head.length + gap(warnings) + gap(foot) + 3;
  const room = look.height === undefined ? MOST_ROWS : Math.max(1, Math.min(MOST_ROWS, look.height - taken));
  // In a window of a few columns even labels are too wide.
  return join([head, warnings, steps(state, look, paint, room), foot]).map((row) => clip(row, look.width));
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

/** What goes on right now, and what is being waited for when a beat of this very phase says so. */
function now(state: State, look: Look, paint: Paint): string[] {
  const { phase, beat } = state;
  if (phase === null || state.end !== null || look.interrupted) return [];
  const at = phase.phase === "warm_start" ? "" : `, step ${phase.step}`; // the warm start counts in steps of its own
  const waits = beat?.waiting_for && beat.phase === phase.phase && beat.step === phase.step;
  const parts = [
    `${PHASES[phase.phase] ?? phase.phase}${at}${phase.detail ? `: ${phase.detail}` : ""}`,
    ...(waits ? [`waiting for ${beat.waiting_for}`] : []),
    ...(beat?.rss_bytes ? [`memory ${bytes(beat.rss_bytes)}`] : []),
  ];
  return [labelled("now", fitting(parts.map(printable), " · ", look.width - LABEL - 2), paint)];
}
