/** The parts that pictures of any verb are built from: edges of a row, facts that fit, warnings, blocks. Pure. */
import type { Warning } from "../run/warnings.js";
import { clip, type Paint, printable, sentences, wrapText } from "./format.js";

/** Left part, right part at the right edge; the left part is cut when both do not fit. */
export function edges(
  left: string,
  right: string,
  width: number,
  paint: [(text: string) => string, (text: string) => string],
): string {
  const shownRight = clip(right, width);
  const shownLeft = clip(left, width - shownRight.length - 2);
  const blanks = " ".repeat(Math.max(0, width - shownLeft.length - shownRight.length));
  return shownLeft === "" ? paint[1](shownRight) : `${paint[0](shownLeft)}${blanks}${paint[1](shownRight)}`;
}

/** As many parts as fit into `width`, in their order. */
export function fitting(parts: readonly string[], separator: string, width: number): string {
  let line = "";
  for (const part of parts) {
    const longer = line === "" ? part : `${line}${separator}${part}`;
    if (longer.length > width) break;
    line = longer;
  }
  return line === "" ? clip(parts[0] ?? "", width) : line;
}

/** Blocks of rows with a blank row between them. */
export function join(blocks: readonly (readonly string[])[]): string[] {
  return blocks.filter((block) => block.length > 0).flatMap((block, index) => (index === 0 ? block : ["", ...block]));
}

/** How many rows a block takes in `join`, behind another. */
export function gap(rows: readonly string[]): number {
  return rows.length > 0 ? rows.length + 1 : 0;
}

/** The newest warnings, oldest first; in a window at most a quarter of its rows, so that the table stays in sight. */
export function warningBlock(
  warnings: readonly Warning[],
  { width, height }: { width: number; height?: number },
  paint: Paint,
): string[] {
  const most = height === undefined ? Number.POSITIVE_INFINITY : Math.max(2, Math.floor(height / 4));
  const blocks = warnings.map((warning) => warningRows(warning, width, paint)).reverse();
  let shown: string[] = [];
  for (const block of blocks) {
    if (shown.length > 0 && shown.length + block.length > most) break;
    shown = [...block, ...shown];
  }
  if (shown.length <= most) return shown;
  return [...shown.slice(0, most - 1), `${" ".repeat(9)}…`];
}

function warningRows(warning: Warning, width: number, paint: Paint): string[] {
  const times = warning.count > 1 ? `(${warning.count} times)` : "";
  const text = printable(sentences(warning.what, warning.fix, times));
  return wrapText(text, width - 9).map(
    (row, index) => `${index === 0 ? paint("yellow", "warning") : " ".repeat(7)}  ${row}`,
  );
}
