/**
 * Errors that a person can act on.
 *
 * A UserError holds one or more problems. Each says what is wrong, where, why, and what to do, under a code that never
 * changes its meaning. Anything else that is thrown is a bug in SinkFlex and is shown as one (exit code 70).
 * This file only builds text; cli.ts prints it.
 */
import { styleText } from "node:util";
import { distance } from "fastest-levenshtein";

export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  environment: 3,
  input: 4,
  bug: 70,
  interrupted: 130,
  terminated: 143,
} as const;

/** Every code with its exit code. A code may be added; it is never renamed, reused or removed. */
const EXIT_OF_CODE = {
  // the command line
  "SF-USAGE-COMMAND": EXIT.usage,
  "SF-USAGE-OPTION": EXIT.usage,
  "SF-USAGE-ARGUMENT": EXIT.usage,
  // the config file as a file
  "SF-CONFIG-FILE-MISSING": EXIT.usage,
  "SF-CONFIG-FILE-DIRECTORY": EXIT.usage,
  "SF-CONFIG-FILE-UNREADABLE": EXIT.usage,
  "SF-CONFIG-FILE-ENCODING": EXIT.usage,
  "SF-CONFIG-FILE-TOO-LARGE": EXIT.usage,
  // the config file as YAML
  "SF-CONFIG-EMPTY": EXIT.usage,
  "SF-CONFIG-NOT-A-MAPPING": EXIT.usage,
  "SF-CONFIG-SYNTAX": EXIT.usage,
  "SF-CONFIG-TAB": EXIT.usage,
  "SF-CONFIG-DUPLICATE-KEY": EXIT.usage,
  "SF-CONFIG-MERGE-KEY": EXIT.usage,
  "SF-CONFIG-ALIAS": EXIT.usage,
  "SF-CONFIG-AMBIGUOUS": EXIT.usage,
  "SF-CONFIG-NO-VALUE": EXIT.usage,
  // the config against its schema
  "SF-CONFIG-UNKNOWN-KEY": EXIT.usage,
  "SF-CONFIG-MISPLACED-KEY": EXIT.usage,
  "SF-CONFIG-MISSING-KEY": EXIT.usage,
  "SF-CONFIG-TYPE": EXIT.usage,
  "SF-CONFIG-RANGE": EXIT.usage,
  "SF-CONFIG-CHOICE": EXIT.usage,
  "SF-CONFIG-CONFLICT": EXIT.usage,
  "SF-CONFIG-PATH": EXIT.usage,
  "SF-CONFIG-SET": EXIT.usage,
  // a run and its directory
  "SF-RUN-NOT-FOUND": EXIT.usage,
  "SF-RUN-NOT-A-RUN": EXIT.usage,
  "SF-RUN-NO-CHECKPOINT": EXIT.usage,
  "SF-RUN-ACTIVE": EXIT.usage,
  "SF-RUN-COMPLETE": EXIT.usage,
  "SF-RUN-OTHER-CONFIG": EXIT.usage,
  "SF-RUN-EPISODE-NOT-FOUND": EXIT.usage,
  "SF-RUN-CANNOT-WRITE": EXIT.failed,
  "SF-OUTPUT-DISK-FULL": EXIT.failed,
  // a benchmark's record
  "SF-BENCH-OUT": EXIT.usage,
  "SF-BENCH-RECORD": EXIT.usage,
  "SF-BENCH-OTHER": EXIT.usage,
  // an evaluation
  "SF-EVAL-CHECKPOINT": EXIT.usage,
  "SF-EVAL-NO-RESULTS": EXIT.usage,
  "SF-EVAL-NO-TRIAL": EXIT.usage,
  "SF-EVAL-NO-AGENT": EXIT.input,
  "SF-EVAL-NO-PERSON": EXIT.input,
  "SF-EVAL-PERSON": EXIT.usage,
  // a model
  "SF-MODEL-UNKNOWN": EXIT.usage,
  "SF-MODEL-GONE": EXIT.usage,
  "SF-MODEL-GET-FAILED": EXIT.environment,
  "SF-EXPORT": EXIT.usage,
  // the worker
  "SF-WORKER-FAILED": EXIT.failed,
  "SF-WORKER-DIED": EXIT.failed,
  "SF-WORKER-PROTOCOL": EXIT.failed,
  // the environment
  "SF-PYTHON-NOT-FOUND": EXIT.environment,
  "SF-PYTHON-TOO-OLD": EXIT.environment,
  "SF-PYTHON-NO-TORCH": EXIT.environment,
  "SF-ENV-MISSING": EXIT.environment,
  "SF-ENV-BUILD-FAILED": EXIT.environment,
} as const satisfies Record<string, number>;

export type ErrorCode = keyof typeof EXIT_OF_CODE;

/** A place in a file or in a command-line argument. Lines and columns count from 1. */
export interface Place {
  /** As the user named it; for an argument, the option's name, such as `--set`. */
  file: string;
  /** 0 for an argument: it has no lines. */
  line: number;
  col: number;
  /** How many characters the caret underlines. */
  length?: number;
  /** The text of the line, for the frame. */
  source?: string;
}

export interface Problem {
  code: ErrorCode;
  what: string;
  where?: Place | undefined;
  why?: string | undefined;
  fix?: string | undefined;
}

export class UserError extends Error {
  override readonly name = "UserError";
  readonly problems: readonly Problem[];
  readonly exitCode: number;
  /** What state was left behind, when that is worth a sentence. */
  readonly left: string | undefined;

  constructor(
    problems: Problem | readonly Problem[],
    options: { left?: string | undefined; exitCode?: number | undefined; cause?: unknown } = {},
  ) {
    const list = Array.isArray(problems) ? (problems as readonly Problem[]) : [problems as Problem];
    super(list.map((problem) => problem.what).join("\n"), { cause: options.cause });
    this.problems = list;
    this.exitCode = options.exitCode ?? (list[0] ? EXIT_OF_CODE[list[0].code] : EXIT.usage);
    this.left = options.left;
  }
}

export interface Look {
  color: boolean;
  columns: number;
}

type Style = Parameters<typeof styleText>[0];

const LABEL_WIDTH = 7;

/** For people: what, place, frame with a caret, why, what to do, and the state that was left. */
export function renderError(error: UserError, look: Look): string {
  const blocks = error.problems.map((problem) => renderProblem(problem, look));
  const count = error.problems.length;
  const closing = [count > 1 ? `${count} problems.` : "", error.left ?? ""].filter(Boolean).join(" ");
  if (closing) blocks.push(wrap(printable(closing), look.columns).join("\n"));
  return `${blocks.join("\n\n")}\n`;
}

/** For --json: one line a problem and nothing else, so that stderr can be searched by code. stdout stays pure events. */
export function renderErrorLines(error: UserError): string {
  const lines = error.problems.map(({ code, what, where, why, fix }) => {
    const place = where ? `${placeText(where)}: ` : "";
    return [`${place}error ${code}: ${what}`, why && `why: ${why}`, fix && `fix: ${fix}`].filter(Boolean).join(" · ");
  });
  if (error.left) lines.push(error.left);
  return lines.map((line) => `${printable(line.replace(/\s*\n\s*/g, " "))}\n`).join("");
}

/** For anything thrown that is not a UserError. */
export function renderBug(error: unknown, look: Look): string {
  const intro =
    "This is a bug in SinkFlex, not in your input. Please report it with the lines below and the command typed.";
  const detail = error instanceof Error ? (error.stack ?? String(error)) : `thrown: ${String(error)}`;
  return `${labelled("bug", ["bold", "red"], intro, look).join("\n")}\n\n${printable(detail)}\n`;
}

/** The candidate nearest to a mistyped word, or undefined when none is near enough to have been meant. */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  const plain = (text: string) => text.toLowerCase().replaceAll("-", "_");
  const typed = plain(word);
  const continued = typed.length >= 3 ? candidates.filter((candidate) => plain(candidate).startsWith(typed)) : [];
  if (continued.length === 1) return continued[0];
  let best: string | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    const other = plain(candidate);
    const gap = distance(typed, other);
    // Words that begin alike may differ more: `shwo` is show, but `base` is not name and `gpu` is not cpu.
    const alike = typed[0] === other[0];
    const allowed = typed.length < 4 ? (alike ? 1 : 0) : alike ? Math.ceil(typed.length * 0.4) : 1;
    if (gap <= allowed && gap < least) [best, least] = [candidate, gap];
  }
  return best;
}

function renderProblem({ code, what, where, why, fix }: Problem, look: Look): string {
  const lines = labelled("error", ["bold", "red"], what, look);
  const place = where ? `${paint("cyan", printable(placeText(where)), look)}  ` : "";
  lines.push(`${" ".repeat(LABEL_WIDTH)}${place}${paint("dim", code, look)}`);
  if (where?.source !== undefined) lines.push("", ...frame(where, where.source, look), ...(why || fix ? [""] : []));
  if (why) lines.push(...labelled("why", "bold", why, look));
  if (fix) lines.push(...labelled("fix", ["bold", "green"], fix, look));
  return lines.join("\n");
}

/** A label in its own column; a line of the text that starts with a blank is an example and is not wrapped. */
function labelled(label: string, style: Style, text: string, look: Look): string[] {
  const width = look.columns - LABEL_WIDTH;
  const lines = printable(text)
    .split("\n")
    .flatMap((line) => (line.startsWith(" ") ? [line] : wrap(line, width)));
  const head = paint(style, label, look) + " ".repeat(LABEL_WIDTH - label.length);
  return lines.map((line, i) => (i === 0 ? head : " ".repeat(LABEL_WIDTH)) + line);
}

/** The source line with carets under the place; a line too long for the window is cut around it. */
function frame(where: Place, source: string, look: Look): string[] {
  const gutter = where.line > 0 ? `${where.line}` : "";
  const room = Math.max(20, look.columns - gutter.length - 6);
  const start = Math.min(where.col - 1, source.length);
  const from = source.length <= room ? 0 : Math.max(0, Math.min(start - 10, source.length - room + 1));
  const front = from > 0 ? "…" : "";
  const part = source.slice(from, from + room - front.length);
  const cut = from + part.length < source.length;
  const shown = `${front}${printable(cut ? part.slice(0, -1) : part)}${cut ? "…" : ""}`;
  const at = start - from + front.length;
  const carets = "^".repeat(Math.max(1, Math.min(where.length ?? 1, shown.length - at)));
  const bar = paint("dim", "|", look);
  return [
    `   ${paint("dim", gutter, look)} ${bar} ${shown}`,
    `   ${" ".repeat(gutter.length)} ${bar} ${" ".repeat(at)}${paint(["bold", "red"], carets, look)}`,
  ];
}

function placeText(where: Place): string {
  return where.line > 0 ? `${where.file}:${where.line}:${where.col}` : where.file;
}

/** Breaks at blanks, but not inside `a quoted command`. */
function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.match(/(?:`[^`]*`|[^ `])+|`/g) ?? [""]) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** Text from files may hold escape or direction characters: they are shown as a mark, never obeyed. */
function printable(text: string): string {
  return text.replaceAll("\t", " ").replace(/[^\n\P{C}]/gu, "\u{fffd}");
}

function paint(style: Style, text: string, look: Look): string {
  return look.color && text ? styleText(style, text, { validateStream: false }) : text;
}
