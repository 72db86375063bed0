/** What is said when a run is over: how it ended, what it learned, where things are, and what to type next. Pure. */
import type { EventOf } from "../protocol/events.js";
import type { State } from "../run/state.js";
import { controlsOf, rewardEnds } from "../run/summary.js";
import { bytes, clip, duration, fixed, type Paint, painter, plural, printable, wrapText } from "./format.js";
import { evalText } from "./view.js";

export interface Place {
  /** How it ended, where the events do not say: a command line that was killed writes no `end`. */
  status?: string;
  /** The run as it is named on the command line: its id, or `latest`. */
  run: string;
  /** The run directory as a person would type it. */
  dir: string;
  /** Options that find it again, such as ` --runs elsewhere`; empty for the default. */
  options: string;
}

const LABEL = 12;
/** Rows with a path, like the commands below them, are left whole: they are there to be copied. */
const PATHS = new Set(["checkpoint", "run"]);

export function summaryRows(state: State, place: Place, look: { width: number; color: boolean }): string[] {
  const paint = painter(look.color);
  const rows: [label: string, text: string][] = [
    ["ended", ended(state, place)],
    ...reward(state),
    ...heldOut(state),
    ...controls(state),
    ...checkpoint(state, place),
    ["run", place.dir],
  ];
  const body = rows.flatMap(([label, text]) =>
    wrapText(printable(text), PATHS.has(label) ? Number.MAX_SAFE_INTEGER : look.width - LABEL).map((row, index) => {
      const shown = index === 0 ? label.padEnd(LABEL) : " ".repeat(LABEL);
      return `${paint("dim", shown)}${label === "ended" ? paint("bold", row) : row}`;
    }),
  );
  const next = commands(state, place).map((command, index) => nextRow(command, index, paint));
  return [...body, "", ...next];
}

function nextRow(command: string, index: number, paint: Paint): string {
  return `${paint("dim", (index === 0 ? "next" : "").padEnd(LABEL))}${paint("cyan", command)}`;
}

function ended(state: State, place: Place): string {
  const done = state.rows.at(-1)?.step ?? 0;
  const total = state.rows.at(-1)?.total ?? state.plan?.steps;
  const steps = total === undefined ? "before the first step" : `${done} of ${plural(total, "step")}`;
  const status = place.status ?? state.end?.status ?? "interrupted";
  return `${status}, ${steps}, ${duration(state.before + state.t)}`;
}

function reward(state: State): [string, string][] {
  const ends = rewardEnds(state);
  if (ends === null) return [];
  const over = ends.over > 1 ? `means of the first and last ${ends.over} steps` : "first and last step";
  return [["reward", `${fixed(ends.first, 3)} to ${fixed(ends.last, 3)} in training (${over})`]];
}

function heldOut(state: State): [string, string][] {
  const own = state.evals.filter((one) => one.agent === "policy");
  return [...new Set(own.map((one) => one.suite))].map((suite) => {
    const list = own.filter((one) => one.suite === suite);
    const [first, last] = [list[0] as EventOf<"eval">, list.at(-1) as EventOf<"eval">];
    const how = `${suite}, ${last.tasks} ${last.split} tasks x ${last.trials}, ${last.score_mode}`;
    if (first === last) return ["held out", `${evalText(last)} at step ${last.step} (${how})`];
    const other = first.split === last.split ? "" : `, step ${first.step} on ${first.tasks} ${first.split} tasks`;
    const values = `${evalText(first)} at step ${first.step} to ${evalText(last)} at step ${last.step}`;
    return ["held out", `${values} (${how}${other})`];
  });
}

function controls(state: State): [string, string][] {
  const { noop, sft_only: sftOnly } = controlsOf(state);
  const parts = [
    ...(noop === undefined ? [] : [`doing nothing ${fixed(noop, 3)}`]),
    ...(sftOnly === undefined ? [] : [`warm start alone ${fixed(sftOnly, 3)}`]),
  ];
  return parts.length === 0 ? [] : [["controls", parts.join(", ")]];
}

function checkpoint(state: State, place: Place): [string, string][] {
  const last = state.checkpoint;
  if (last === null) return [["checkpoint", "none was written"]];
  return [["checkpoint", `${place.dir}/${last.path} (step ${last.step}, ${bytes(last.bytes)})`]];
}

function commands(state: State, { run, options }: Place): string[] {
  const show = state.example === null ? "" : ` --episode ${clip(printable(state.example.id), 200)}`;
  const look = `sinkflex runs show ${run}${show}${options}`;
  if (state.end?.status === "completed" || state.checkpoint === null) return [look];
  return [`sinkflex train --resume ${run}${options}`, look];
}
