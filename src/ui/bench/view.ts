/** A benchmark while it goes on: the live window, what was chosen, and the lines of a log. Pure. */
import { type BenchState, cellName, initialBench, type Underway } from "../../bench/state.js";
import type { Cell } from "../../protocol/bench.js";
import type { BenchEventOf, Event } from "../../protocol/events.js";
import { edges, fitting, gap, join, warningBlock } from "../blocks.js";
import { bar, bytes, clip, duration, labelRows, type Paint, painter, plural, printable } from "../format.js";
import { SILENCE } from "../lines.js";
import type { Look, Picture, Since } from "../screen.js";
import { byProcessor, cellTable, figure, mib, type Pending, percent, spreadOf, timeOf, words } from "./table.js";

export const benchPicture: Picture<BenchState> = {
  initial: initialBench,
  view,
  above: (event) => (event.type === "bench" && event.kind === "plan" ? chosen(event) : []),
  lines,
};

type Plan = BenchEventOf<"plan">;

/** What the worker chose, in sentences. */
function chosen(plan: Plan): [label: string, text: string][] {
  const rows: [string, string][] = [
    ["bench", `${plan.what} on ${deviceText(plan)}, ${plan.dtype}, ${geometryText(plan.geometry)}`],
    ["cells", `${plan.impls.join(", ")} at ${plan.lengths.join(", ")} tokens`],
    ...plan.notes.map((note): [string, string] => ["note", note]),
  ];
  return rows.map(([label, text]) => [label, printable(text).replaceAll("\n", " ")]);
}

function deviceText({ device, device_name, threads }: Plan): string {
  const parts = [device, ...(device_name ? [device_name] : [])];
  return `${parts.join(" ")}${threads && device === "cpu" ? `, ${plural(threads, "thread")}` : ""}`;
}

/** The sizes in few words; a model that has a name is described by a note. */
function geometryText({ name, train, num_q_heads: queries, num_kv_heads: keys, ...rest }: Record<string, unknown>) {
  if (name !== undefined) return [`${name}`, ...(train ? [`training ${train}`] : [])].join(", ");
  const heads = queries !== undefined && keys !== undefined ? [`heads ${queries}/${keys}`] : [];
  const others = Object.entries({ ...rest, train }).flatMap(([key, value]) => {
    if (value === true) return [key];
    return typeof value === "number" || typeof value === "string" ? [`${key} ${value}`] : [];
  });
  return [...heads, ...others].join(", ");
}

/** The live window. Nothing of it stays: the whole table is printed when the benchmark is over. */
function view(state: BenchState, look: Look): string[] {
  if (state.end !== null) return [];
  const paint = painter(look.color);
  const elapsed = look.elapsed ?? state.t;
  const head = [title(state, look, paint), progress(state, look, elapsed, paint)];
  const warnings = warningBlock(state.warnings, look, paint);
  const foot =
    look.notice === undefined ? [] : [paint(look.stopping ? "yellow" : "dim", clip(look.notice, look.width))];
  const taken = head.length + gap(warnings) + gap(foot) + 3; // a blank row, the table's head and the cell under way
  const room = look.height === undefined ? state.cells.length : Math.max(1, look.height - taken);
  const rows = join([head, warnings, table(state, look.width, elapsed, room, paint), foot]);
  const tight = look.height !== undefined && rows.length > look.height;
  const shown = tight ? rows.filter((row) => row !== "").slice(-(look.height ?? 0)) : rows;
  return shown.map((row) => clip(row, look.width));
}

function title(state: BenchState, look: Look, paint: Paint): string {
  const doing = look.stopping ? "stopping" : state.plan === null ? "starting" : "measuring";
  return edges(`bench ${state.plan?.what ?? ""}`.trim(), doing, look.width, [
    (text) => paint("bold", text),
    (text) => paint(["bold", look.stopping ? "yellow" : "cyan"], text),
  ]);
}

function progress(state: BenchState, look: Look, elapsed: number, paint: Paint): string {
  const time = duration(elapsed);
  if (state.total === null) {
    const waits = state.phase === null ? "waiting for Python to start" : "preparing";
    return fitting([waits, time], "  ", look.width);
  }
  const label = `${state.cells.length} of ${plural(state.total, "cell")}`;
  const room = Math.min(50, look.width - label.length - time.length - 4);
  if (room < 6) return clip(`${label}  ${time}`, look.width);
  const [done, rest] = bar(state.total === 0 ? 1 : state.cells.length / state.total, room);
  return `${label}  ${paint("cyan", done)}${paint("dim", rest)}  ${time}`;
}

function table(state: BenchState, width: number, elapsed: number, room: number, paint: Paint): string[] {
  const { cells, underway, plan } = state;
  if (plan === null || (cells.length === 0 && underway === null)) return [];
  const pending = underway === null ? null : waiting(underway, elapsed);
  const look = { what: plan.what, processor: byProcessor(plan), width, paint };
  return cellTable(cells.slice(-room), look, { all: cells, pending });
}

function waiting(underway: Underway, elapsed: number): Pending {
  return { ...underway, text: `${stageText(underway)}, ${duration(elapsed - underway.since)}` };
}

function stageText({ stage, done, of }: Underway): string {
  if (stage === null) return "starting";
  return printable(of === null ? stage : `${stage} ${done ?? 0} of ${of}`);
}

/** One line a finished cell, and a sign of life in a long silence. */
function lines(state: BenchState, event: Event, { verbose, silent }: Since): string[] {
  switch (event.type) {
    case "bench":
      if (event.kind === "plan") return labelRows(chosen(event), Number.MAX_SAFE_INTEGER);
      if (event.kind === "cell") return [cellLine(state, event.cell)];
      return event.kind === "cell_started" && verbose ? [`measuring ${cellName({ ...event, seq: event.length })}`] : [];
    case "beat": {
      if (silent < SILENCE) return [];
      const { underway } = state;
      const memory = event.rss_bytes ? `, memory ${bytes(event.rss_bytes)}` : "";
      const at = underway === null ? event.waiting_for : `${cellName(underway)}: ${stageText(underway)}`;
      return at ? [printable(`still measuring ${at}, ${duration(state.t)}${memory}`)] : [];
    }
    case "phase":
      return verbose ? [printable(`phase ${event.phase}${event.detail ? `: ${event.detail}` : ""}`)] : [];
    default:
      return [];
  }
}

function cellLine(state: BenchState, cell: Cell): string {
  const total = state.total ?? state.cells.length;
  const at = `${String(state.cells.length).padStart(String(total).length)}/${total}`;
  const time = state.took === null ? "" : `  (${duration(state.took)})`;
  return `cell ${at}  ${printable(cellName(cell))}  ${outcome(cell, state.plan?.what === "model")}${time}`;
}

function outcome(cell: Cell, step: boolean): string {
  if (cell.status !== "ok") return words(cell);
  const times = step
    ? [`step ${figure(timeOf(cell))} ms`]
    : [`forward ${figure(cell.fwd_ms)} ms`, `backward ${figure(cell.bwd_ms)} ms`];
  return [...times, `spread ${percent(spreadOf(cell))}`, `peak ${mib(cell.peak_bytes)} MiB`].join("  ");
}
