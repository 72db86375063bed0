/** A benchmark beside an older one: a row a figure, old, new, their ratio, and whether that is a change at all. Pure. */
import { type Change, type Comparison, PEAK_NOISE, type Verdict } from "../../bench/compare.js";
import { cellName } from "../../bench/state.js";
import type { Cell } from "../../protocol/bench.js";
import { clip, columns, painter, printable, type Style, wrapText } from "../format.js";
import { figure, mib, times } from "./table.js";

interface Look {
  width: number;
  color: boolean;
}

const STYLE: Partial<Record<Verdict, Style>> = { less: "green", more: "red" };
const SPEC = [11, 8, 8, 6, 16].map((width, at) => ({
  width,
  align: at >= 1 && at <= 3 ? ("right" as const) : ("left" as const),
}));

/** `old` names the record as a person would type it. */
export function comparisonRows(comparison: Comparison, old: string, { width, color }: Look): string[] {
  const paint = painter(color);
  const changes = comparison.cells.flatMap((one) => one.changes);
  const [head = "", ...rows] = columns([["", "old", "new", "ratio", ""], ...changes.map(changeRow)], SPEC);
  const painted = rows.map((row, at) => {
    const style = STYLE[changes[at]?.verdict ?? "same"];
    return style === undefined ? row : paint(style, row);
  });
  let next = 0;
  const cells = comparison.cells.flatMap(({ cell, changes: own, status }) => {
    const name = printable(cellName(cell));
    if (status !== null) return wrapText(`${name}: ${status}`, width);
    next += own.length;
    return [clip(name, width), ...painted.slice(next - own.length, next).map((row) => `  ${row}`)];
  });
  const text = [
    ...missing("only in the old record", comparison.onlyOld),
    ...missing("not in the old record", comparison.onlyNew),
    ...comparison.notes.map((one) => `${one}.`),
    "A time has changed when the medians differ by more than both spreads, a peak when it differs by more than " +
      `${PEAK_NOISE.share * 100} % and ${mib(PEAK_NOISE.bytes)} MiB.`,
  ];
  return [
    paint("bold", clip(printable(`compared with ${old}`), width)),
    ...(changes.length > 0 ? [paint("dim", `  ${head}`)] : []),
    ...cells,
    ...text.flatMap((line) => wrapText(printable(line), width)),
  ];
}

function changeRow({ name, old, now, ratio, verdict }: Change): string[] {
  const [shown, unit] = name === "peak" ? [mib, "MiB"] : [figure, "ms"];
  return [`${name} ${unit}`, shown(old), shown(now), times(ratio), words(verdict, name === "peak")];
}

function words(verdict: Verdict, memory: boolean): string {
  if (verdict === "same") return "no change";
  if (verdict === "no spread") return "spread unknown";
  if (memory) return verdict;
  return verdict === "less" ? "faster" : "slower";
}

function missing(label: string, cells: readonly Cell[]): string[] {
  return cells.length === 0 ? [] : [`${label}: ${cells.map(cellName).join("; ")}.`];
}
