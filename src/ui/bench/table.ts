/**
 * The table of measured cells. Pure. A row is one length, window and implementation; a cell without figures says in
 * words why. Columns that do not fit are left out, the highest rank first; a column without a figure is not shown.
 */
import { baseline } from "../../bench/choices.js";
import type { Cell } from "../../protocol/bench.js";
import { ABSENT, clip, columns, compact, type Paint, printable } from "../format.js";
import { fitted, type RankedColumn } from "../table.js";

type Maybe = number | null | undefined;

const MIB = 1024 * 1024;

/** Three digits: 0.052, 1.23, 12.3, 1234. */
export function figure(value: Maybe): string {
  if (value === null || value === undefined) return ABSENT;
  const size = Math.abs(value);
  if (size > 0 && size < 0.095) return value.toPrecision(2);
  return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

export function mib(bytes: Maybe): string {
  return typeof bytes === "number" ? figure(bytes / MIB) : ABSENT;
}

export function times(ratio: Maybe): string {
  return typeof ratio === "number" ? `${figure(ratio)}x` : ABSENT;
}

export function percent(share: Maybe): string {
  if (typeof share !== "number") return ABSENT;
  return `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** Milliseconds of one training step, or of forward and backward; null where a part is missing. */
export function timeOf({ step_ms: step, fwd_ms: forward, bwd_ms: backward }: Cell): number | null {
  if (typeof step === "number") return step;
  return typeof forward === "number" && typeof backward === "number" ? forward + backward : null;
}

/** The largest of a cell's spreads. */
export function spreadOf({ fwd_spread: forward, bwd_spread: backward }: Cell): number | null {
  const known = [forward, backward].filter((one) => typeof one === "number");
  return known.length === 0 ? null : Math.max(...known);
}

/** The error nearest to its limit, or the largest where no limits are told. */
function worstError({ error, parity_limit: limits }: Cell): string {
  const known = Object.entries(error ?? {}).filter((entry): entry is [string, number] => typeof entry[1] === "number");
  const share = ([name, value]: [string, number]) => value / (limits?.[name] || 1);
  const worst = known.sort((a, b) => share(b) - share(a))[0];
  return worst === undefined ? ABSENT : `${printable(worst[0])} ${worst[1].toExponential(1)}`;
}

/**
 * Whether time ratios are of process-CPU time: on one thread that is the same work, and other processes that want the
 * core do not falsify it as they do wall time.
 */
export function byProcessor({ device, threads }: { device?: string | null | undefined; threads?: Maybe }): boolean {
  return device === "cpu" && threads === 1;
}

interface Row {
  cell: Cell;
  /** The time that is compared. */
  time: Maybe;
  baseTime: Maybe;
  /** Of the implementation that the others are compared with, at the same length and window. */
  base: Cell | undefined;
}

function ratio(own: Maybe, base: Maybe): number | null {
  return typeof own === "number" && typeof base === "number" && base > 0 ? own / base : null;
}

function tokensPerSecond(cell: Cell): Maybe {
  const time = timeOf(cell);
  return cell.tokens_per_second ?? (time ? (cell.seq / time) * 1000 : null);
}

const column = (name: string, short: string, width: number, rank: number, text: (row: Row) => string) => ({
  name,
  short,
  width,
  rank,
  text,
});

/** The columns that every subject has, in their places. */
function figures(times_: readonly RankedColumn<Row>[], speed: readonly RankedColumn<Row>[]): RankedColumn<Row>[] {
  return [
    ...times_,
    column("spread", "spread", 6, 8, ({ cell }) => percent(spreadOf(cell))),
    ...speed,
    column("peak MiB", "peak MiB", 8, 2, ({ cell }) => mib(cell.peak_bytes)),
    column("x floor", "x floor", 7, 6, ({ cell }) =>
      times(cell.floor_bytes ? (cell.peak_bytes ?? Number.NaN) / cell.floor_bytes : null),
    ),
    column("time ratio", "time x", 6, 3, ({ time, baseTime }) => times(ratio(time, baseTime))),
    column("memory ratio", "mem x", 6, 4, ({ cell, base }) => times(ratio(cell.peak_bytes, base?.peak_bytes))),
    column("worst error", "error", 12, 5, ({ cell }) => worstError(cell)),
    column("CPU ms", "CPU ms", 6, 7, ({ cell }) => figure(cell.cpu_ms)),
  ];
}

const OPERATOR = figures(
  [
    column("forward ms", "fwd ms", 6, 1, ({ cell }) => figure(cell.fwd_ms)),
    column("backward ms", "bwd ms", 6, 1, ({ cell }) => figure(cell.bwd_ms)),
  ],
  [
    column("TFLOP/s fwd", "TF fwd", 6, 9, ({ cell }) => figure(cell.tflops_fwd)),
    column("TFLOP/s", "TF", 6, 9, ({ cell }) => figure(cell.tflops)),
    column("TFLOP/s bwd", "TF bwd", 6, 10, ({ cell }) => figure(cell.tflops_bwd)),
  ],
);

const MODEL = figures(
  [column("step ms", "step ms", 7, 1, ({ cell }) => figure(timeOf(cell)))],
  [column("tokens/s", "tok/s", 6, 2, ({ cell }) => compact(tokensPerSecond(cell)))],
);

/** What a cell without figures is, in words, and why. */
export function words(cell: Cell): string {
  const what = cell.status === "failed" ? "failed" : "does not fit";
  return printable(cell.reason ? `${what}: ${cell.reason}` : what).replaceAll("\n", " ");
}

/** A row that has no figures yet. */
export interface Pending {
  seq: number;
  impl: string;
  window: number | null;
  text: string;
}

/** By length, then without a window first, then the order in which the implementations were asked for. */
export function inOrder(cells: readonly Cell[], impls: readonly string[]): Cell[] {
  const window = (cell: Cell) => cell.window ?? Number.MAX_SAFE_INTEGER;
  return [...cells].sort(
    (a, b) => a.seq - b.seq || window(b) - window(a) || impls.indexOf(a.impl) - impls.indexOf(b.impl),
  );
}

export interface TableLook {
  what: string;
  /** See byProcessor. */
  processor: boolean;
  width: number;
  paint: Paint;
}

/** Rows in the order of `cells`; ratios look for their base among `all`. */
export function cellTable(
  cells: readonly Cell[],
  { what, processor, width, paint }: TableLook,
  { all = cells, pending }: { all?: readonly Cell[]; pending?: Pending | null } = {},
): string[] {
  const timed = (cell: Cell | undefined) => cell && (processor && cell.cpu_ms ? cell.cpu_ms : timeOf(cell));
  const baseOf = (cell: Cell) =>
    all.find(
      (one) =>
        one.impl === baseline(what) &&
        one.status === "ok" &&
        one.seq === cell.seq &&
        (one.window ?? null) === (cell.window ?? null),
    );
  const rows = cells.map((cell): Row => {
    const base = baseOf(cell);
    return { cell, base, time: timed(cell), baseTime: timed(base) };
  });
  const names = [...cells, ...(pending ? [pending] : [])];
  const labels = labelColumns(names);
  const labelWidth = labels.spec.reduce((sum, { width: one }) => sum + one + 2, -2);
  const room = Math.max(10, width - labelWidth - 2);

  const measured = rows.filter(({ cell }) => cell.status === "ok");
  const filled = (what === "model" ? MODEL : OPERATOR).filter(({ text }) =>
    measured.some((row) => text(row) !== ABSENT),
  );
  const shown = filled.length === 0 ? [] : fitted(filled, room);
  const spec = shown.map((one) => ({ width: one.width, align: "right" as const }));
  const [head = "", ...figureRows] =
    shown.length === 0
      ? []
      : columns([shown.map(({ name }) => name), ...rows.map((row) => shown.map(({ text }) => text(row)))], spec);

  const body = rows.map(({ cell }, index) => {
    if (cell.status === "ok") return figureRows[index] ?? "";
    return paint(cell.status === "failed" ? "red" : "yellow", clip(words(cell), room));
  });
  if (pending) body.push(paint("cyan", clip(pending.text, room)));
  const [labelHead = "", ...labelRows] = labels.rows;
  const table = [
    paint("dim", `${labelHead.padEnd(labelWidth)}  ${head}`.trimEnd()),
    ...labelRows.map((label, index) => `${label.padEnd(labelWidth)}  ${body[index]}`),
  ];
  return table.map((row) => clip(row, width)); // in a window of a few columns even the labels are too wide
}

interface Named {
  seq: number;
  impl: string;
  window?: number | null | undefined;
}

function labelColumns(cells: readonly Named[]) {
  const windows = cells.some((cell) => cell.window);
  const texts = [
    ["tokens", ...(windows ? ["window"] : []), "impl"],
    ...cells.map((cell) => [
      String(cell.seq),
      ...(windows ? [cell.window ? String(cell.window) : "full"] : []),
      printable(cell.impl),
    ]),
  ];
  const widest = (at: number) => Math.max(...texts.map((row) => (row[at] ?? "").length));
  const spec = (texts[0] as string[]).map((name, at) => ({
    width: widest(at),
    align: name === "impl" ? ("left" as const) : ("right" as const),
  }));
  return { spec, rows: columns(texts, spec) };
}
