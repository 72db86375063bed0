/** What a person who takes part is shown, as rows. Pure. */
import type { EventOf } from "../../protocol/events.js";
import { type Paint, painter, printable, type Style, wrapText } from "../format.js";

interface Look {
  width: number;
  color: boolean;
}

/** Wider lines are hard to read. */
const WIDEST = 100;
const INDENT = "  ";
const SPEAKERS: Record<string, string> = { assistant: "agent", user: "customer", env: "environment" };
const STYLES: Record<string, Style> = { note: "dim", problem: "yellow", error: "red" };

export const PROMPT = "you> ";

/** A blank row, who or what speaks, and the text; a row that is broken keeps its indent. */
export function saidRows({ what, title, text }: EventOf<"human">, look: Look): string[] {
  const paint = painter(look.color);
  const kind = what ?? "note";
  const head = title ?? SPEAKERS[kind];
  const heading = head === undefined ? [] : [paint("bold", printable(head))];
  const words = printable(text ?? "")
    .trimEnd()
    .replaceAll("\t", INDENT);
  const rows = words.split("\n").flatMap((line) => indented(line, Math.min(look.width, WIDEST)));
  return ["", ...heading, ...styled(rows, STYLES[kind], paint)];
}

function indented(line: string, width: number): string[] {
  const text = line.trim();
  if (text === "") return [""];
  const own = (/^ */.exec(line)?.[0] ?? "").slice(0, Math.max(0, width - 30));
  const indent = `${INDENT}${own}`;
  return wrapText(text, Math.max(10, width - indent.length)).map((row) => `${indent}${row}`);
}

function styled(rows: readonly string[], style: Style | undefined, paint: Paint): string[] {
  return style === undefined ? [...rows] : rows.map((row) => paint(style, row));
}
