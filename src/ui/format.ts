/** Numbers, times, bars and colours as text. Pure: no clock, no environment, no stream. */
import { styleText } from "node:util";
import Table from "cli-table3";
import wrapAnsi from "wrap-ansi";

export type Style = Parameters<typeof styleText>[0];
export type Paint = (style: Style, text: string) => string;

/** A painter that colours, or one that leaves every text as it is. */
export function painter(color: boolean): Paint {
  if (!color) return (_style, text) => text;
  return (style, text) => (text === "" ? "" : styleText(style, text, { validateStream: false }));
}

export const ABSENT = "-";

/** Fixed decimals; "-" for null. */
export function fixed(value: number | null | undefined, decimals: number): string {
  return value === null || value === undefined ? ABSENT : value.toFixed(decimals);
}

/** Small numbers where the exponent matters: 0, 0.013, 1.2e-5. */
export function small(value: number | null | undefined): string {
  if (value === null || value === undefined) return ABSENT;
  if (value === 0) return "0";
  const plain = Math.abs(value) >= 0.001 && Math.abs(value) < 1000;
  return plain ? String(Number(value.toPrecision(2))) : value.toExponential(1);
}

/** Large counts: 812, 9.8k, 1.2M. */
export function compact(value: number | null | undefined): string {
  if (value === null || value === undefined) return ABSENT;
  for (const [size, unit] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    if (Math.abs(value) >= size * 0.9995) {
      const scaled = value / size;
      return `${scaled.toFixed(Math.abs(scaled) < 99.95 ? 1 : 0)}${unit}`;
    }
  }
  return value.toFixed(Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : 1);
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return ABSENT;
  for (const [size, unit] of [
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "kB"],
  ] as const) {
    if (value >= size) return `${(value / size).toFixed(value / size < 10 ? 1 : 0)} ${unit}`;
  }
  return `${value} B`;
}

/** Seconds as 8 s, 1 m 42 s, 2 h 05 m, 3 d 4 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return ABSENT;
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${String(s % 60).padStart(2, "0")} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} m`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** Seconds that are an estimate, with no more digits than it deserves: about 40 s, about 9 m, about 2 h 10 m. */
export function roughly(seconds: number): string {
  const step = seconds < 60 ? 5 : seconds < 300 ? 10 : seconds < 600 ? 30 : seconds < 3600 ? 60 : 600;
  const rounded = Math.max(step, Math.round(seconds / step) * step);
  return `about ${duration(rounded).replace(/ 00 [sm]$/, "")}`;
}

/** Age in one unit: 40 s, 12 m, 3 h, 5 d. */
export function age(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Parts as sentences in one line; a full stop is added where one is missing. */
export function sentences(...parts: readonly (string | null | undefined)[]): string {
  return parts
    .filter((part) => part)
    .map((part) => (/[.!?)]$/.test(part as string) ? part : `${part}.`))
    .join(" ")
    .replaceAll("\n", " ");
}

const LEVELS = "▁▂▃▄▅▆▇█";

/** The newest values as blocks, averaged into at most `width` columns. Inside 0 to 1 the scale is 0 to 1, so that noise looks like noise. */
export function sparkline(values: readonly number[], width: number): string {
  if (values.length === 0 || width < 1) return "";
  const columns: number[] = [];
  const count = Math.min(width, values.length);
  for (let column = 0; column < count; column++) {
    const from = Math.floor((column * values.length) / count);
    const to = Math.max(from + 1, Math.floor(((column + 1) * values.length) / count));
    const part = values.slice(from, to);
    columns.push(part.reduce((sum, value) => sum + value, 0) / part.length);
  }
  const low = Math.min(...columns);
  const high = Math.max(...columns);
  const [bottom, top] = low >= 0 && high <= 1 ? [0, 1] : [low, high];
  const span = top - bottom || 1;
  return columns.map((value) => LEVELS[Math.min(7, Math.floor(((value - bottom) / span) * 8))]).join("");
}

/** A progress bar of `width` columns; the done part first. */
export function bar(share: number, width: number): [done: string, rest: string] {
  const done = Math.round(Math.min(1, Math.max(0, share)) * width);
  return ["━".repeat(done), "─".repeat(Math.max(0, width - done))];
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: a style may close behind the blanks.
const TRAILING_BLANKS = / +((?:\x1b\[[0-9;]*m)*)$/;
const CONTROL = /(?![\n\t])[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu;

const BARE = Object.fromEntries(
  ["top", "top-mid", "top-left", "top-right", "bottom", "bottom-mid", "bottom-left", "bottom-right"]
    .concat(["left", "left-mid", "mid", "mid-mid", "right", "right-mid", "middle"])
    .map((name) => [name, ""]),
);

export interface Column {
  align?: "left" | "right";
  /** Display columns; a longer cell is cut to it. */
  width: number;
}

/**
 * Cells side by side without borders, two blanks between columns, as lines without trailing blanks. A cell is cut to its
 * column with an ellipsis; wide characters count as two columns.
 */
export function columns(rows: readonly (readonly string[])[], spec: readonly Column[]): string[] {
  if (rows.length === 0) return [];
  const table = new Table({
    chars: { ...BARE, middle: "  " },
    style: { head: [], border: [], "padding-left": 0, "padding-right": 0, compact: true },
    colWidths: spec.map((column) => column.width),
    colAligns: spec.map((column) => column.align ?? "left"),
  });
  for (const row of rows) table.push([...row]);
  return table
    .toString()
    .split("\n")
    .map((line) => line.replace(TRAILING_BLANKS, "$1"));
}

/** One text wrapped to `width` display columns; longer words are broken. Only the blanks at a new break are dropped. */
export function wrapText(text: string, width: number): string[] {
  return text.split("\n").flatMap((line) => {
    const rows = wrapAnsi(line, Math.max(1, width), { hard: true, trim: false }).split("\n");
    return rows.map((row, index) => {
      const start = index === 0 ? row : row.replace(/^ +/, "");
      return index === rows.length - 1 ? start : start.trimEnd();
    });
  });
}

/** "label  text" rows, the labels in a column of their own, long texts wrapped beside it. */
export function labelRows(pairs: readonly (readonly [label: string, text: string])[], width: number): string[] {
  const column = Math.max(...pairs.map(([label]) => label.length)) + 2;
  return pairs.flatMap(([label, text]) =>
    wrapText(text, width - column).map((row, index) => `${(index === 0 ? label : "").padEnd(column)}${row}`),
  );
}

/** One line cut to `width` display columns, with an ellipsis where something is missing. */
export function clip(text: string, width: number): string {
  if (width < 1) return "";
  const line = text.replaceAll("\n", " ");
  const [first = "", more] = wrapAnsi(line, width, { hard: true, trim: false, wordWrap: false }).split("\n");
  if (more === undefined) return first;
  return `${wrapAnsi(line, Math.max(1, width - 1), { hard: true, trim: false, wordWrap: false }).split("\n")[0]}…`;
}

/** Text from elsewhere may hold escape sequences; they are shown as U+FFFD, not obeyed. Newlines and tabs stay. */
export function printable(text: string): string {
  return text.replace(CONTROL, "\u{fffd}");
}
