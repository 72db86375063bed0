/** What is said when an evaluation is over, and how two of them compare. Pure. */
import type { Comparison, Report } from "../../protocol/eval.js";
import { join } from "../blocks.js";
import { compact, fixed, labelRows, type Paint, painter, plural, printable, wrapText } from "../format.js";
import { levelsOf } from "./view.js";

interface Look {
  width: number;
  color: boolean;
}

type Pair = [label: string, text: string];

export function evalReportRows(report: Report, look: Look & { quiet: boolean; folder: string }): string[] {
  const paint = painter(look.color);
  const head = headline(report, paint);
  if (look.quiet) return [head];
  const rows = labelRows(
    [...scores(report), ...reliability(report), ...behaviour(report), ...meaning(report), ["results", look.folder]],
    look.width,
  );
  return join([wrapText(head, look.width), rows, advice(report, look.width)]);
}

function headline(report: Report, paint: Paint): string {
  const mean =
    report.mean === null || report.mean === undefined ? "nothing scored" : `pass^1 ${fixed(report.pass_hat["1"], 3)}`;
  const interval = range(report.ci_low, report.ci_high);
  const part = report.complete ? "" : "  incomplete";
  return `${paint("bold", printable(`${report.suite} ${report.split}${levelsOf(report)}, ${report.agent}: ${mean}`))}${interval}${paint("yellow", part)}`;
}

function range(low: number | null | undefined, high: number | null | undefined): string {
  return typeof low === "number" && typeof high === "number" ? ` [${fixed(low, 3)}, ${fixed(high, 3)}]` : "";
}

function scores(report: Report): Pair[] {
  const hats = Object.entries(report.pass_hat)
    .slice(1)
    .map(([k, value]): Pair => {
      const [low, high] = report.pass_hat_ci[k] ?? [];
      return [`pass^${k}`, `${fixed(value, 3)}${range(low, high)}`];
    });
  const noop: Pair[] =
    typeof report.noop_mean === "number"
      ? [["doing nothing", `${fixed(report.noop_mean, 3)}, passes ${named(report.noop_ids)}`]]
      : [];
  const parts = Object.entries(report.components).map(([name, value]) => `${name} ${fixed(value, 3)}`);
  return [...hats, ...noop, ...(parts.length > 0 ? [["components", parts.join(", ")] as Pair] : [])];
}

/** Ids in few words. */
function named(ids: readonly string[]): string {
  if (ids.length === 0) return "no task";
  const shown = ids.slice(0, 20).join(" ");
  return ids.length > 20 ? `${shown} and ${ids.length - 20} more` : shown;
}

function reliability(report: Report): Pair[] {
  const faults = Object.entries(report.infra_errors).map(([owner, count]) => `${count} of ${owner}`);
  const short = report.tasks_with_too_few_trials;
  return [
    ["coverage", `${fixed(100 * report.coverage, 1)} % of ${plural(report.tasks * report.trials, "trial")} scored`],
    ...(faults.length > 0 ? [["faults", `${faults.join(", ")}; not scored`] as Pair] : []),
    ...(short.length > 0 ? [["too few", `trials for pass^${report.trials}: tasks ${named(short)}`] as Pair] : []),
  ];
}

function behaviour(report: Report): Pair[] {
  const counts: [string, number | null | undefined][] = [
    ["tool calls", report.tool_calls],
    ["tool errors", report.tool_errors],
    ["unreadable answers", report.parse_failures],
    ["calls of the user's tools", report.user_owned_calls],
    ["answers cut by length", report.length_finishes],
  ];
  const seen = counts
    .filter(([name, count]) => count || name === "tool calls")
    .map(([name, count]) => `${count ?? 0} ${name}`);
  const cut = Object.entries(report.truncated).map(([why, count]) => `${count} ${why.replaceAll("_", " ")}`);
  const tokens = Object.entries(report.tokens).map(([name, count]) => `${compact(count)} ${name.replaceAll("_", " ")}`);
  const cost =
    tokens.length === 0
      ? []
      : [report.cost === null || report.cost === undefined ? "cost unknown" : `$${report.cost.toFixed(4)}`];
  return [
    ["turns", `${fixed(report.turns_mean, 1)} on average; ${seen.join(", ")}`],
    ...(cut.length > 0 ? [["cut short", cut.join(", ")] as Pair] : []),
    ...(tokens.length > 0 ? [["tokens", [...tokens, ...cost].join(", ")] as Pair] : []),
  ];
}

/** What a reader must know to compare the score with another. */
function meaning(report: Report): Pair[] {
  const dropped = Object.entries(report.dropped_components).map(
    ([name, tasks]) => `${name} of ${plural(tasks, "task")}`,
  );
  const odd = Object.keys(report.known_odd);
  const user = report.scripted_user
    ? "scripted; not comparable with scores of users that are language models"
    : report.user === "human"
      ? "human; not comparable with scores of simulated users"
      : report.user;
  return [
    ["user", `${user}${report.prompt_sha256 ? `, prompt ${report.prompt_sha256.slice(0, 12)}` : ""}`],
    ["score mode", `${report.score_mode ?? "-"}${dropped.length > 0 ? `; left out: ${dropped.join(", ")}` : ""}`],
    ["data", `${report.data_sha256?.slice(0, 12) ?? "-"}, ${report.version ?? "-"}`],
    ...(odd.length > 0 ? [["known odd", odd.join(" ")] as Pair] : []),
  ].map(([label, text]) => [label as string, printable(text as string)]);
}

function advice(report: Report, width: number): string[] {
  if (report.trials >= 4 || report.agent_kind === "scripted" || report.agent_kind === "human") return [];
  const text =
    "Two equal runs of a sampled agent differ by several points: --trials 4 or more, and `sinkflex eval compare`.";
  return wrapText(text, width);
}

export function evalComparisonRows(found: Comparison, look: Look): string[] {
  const paint = painter(look.color);
  const sure =
    typeof found.ci_low === "number" && typeof found.ci_high === "number" && found.ci_low * found.ci_high > 0;
  const verdict =
    found.tasks === 0
      ? "they have no scored task in common"
      : sure
        ? "a difference beyond the interval"
        : "no difference beyond the interval";
  const difference =
    typeof found.difference === "number" ? `${found.difference >= 0 ? "+" : ""}${fixed(found.difference, 3)}` : "-";
  const rows: Pair[] = [
    ["base", `${found.base}: ${fixed(found.base_mean, 3)}`],
    ["candidate", `${found.candidate}: ${fixed(found.candidate_mean, 3)}`],
    [
      "difference",
      `${difference}${range(found.ci_low, found.ci_high)} over ${plural(found.tasks, "task")}; ${verdict}`,
    ],
    ["gained", named(found.gained)],
    ["lost", named(found.lost)],
    ...(found.only_base.length > 0 ? [["only base", named(found.only_base)] as Pair] : []),
    ...(found.only_candidate.length > 0 ? [["only candidate", named(found.only_candidate)] as Pair] : []),
    ...found.warnings.map((text): Pair => ["warning", text]),
  ];
  const title = paint("bold", printable(`${found.suite}: paired by task`));
  return [
    title,
    ...labelRows(
      rows.map(([label, text]): Pair => [label, printable(text)]),
      look.width,
    ),
  ];
}
