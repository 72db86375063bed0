/** How the end of a worker becomes an exit code and, where it failed, an error for people. */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { type ErrorCode, EXIT, type Problem, UserError } from "../errors.js";
import type { EventOf } from "../protocol/events.js";

/** Of a worker that was asked to stop: 130 for a person's Ctrl-C, 143 for a signal from outside. */
export function stoppedCode(end: EventOf<"end">, stoppedBy: NodeJS.Signals | null): number {
  const fromOutside = stoppedBy === "SIGTERM" || stoppedBy === "SIGHUP";
  const terminated = fromOutside || (stoppedBy === null && end.exit_code === EXIT.terminated);
  return terminated ? EXIT.terminated : EXIT.interrupted;
}

/** The failure that the worker told; `fix` is for one that told none, `left` says what state was left. */
export function failureOf(end: EventOf<"end"> | null, fix: string | undefined, left: string): UserError {
  const error = end?.error;
  const problem: Problem = {
    code: (error?.code ?? "SF-WORKER-FAILED") as ErrorCode,
    what: error?.what ?? "The worker failed and did not say why.",
    where: error?.where ? { file: error.where, line: 0, col: 0 } : undefined,
    why: error?.why ?? undefined,
    fix: error?.fix ?? fix,
  };
  const known = end?.exit_code === EXIT.usage || end?.exit_code === EXIT.environment;
  return new UserError(problem, { left, exitCode: known ? end.exit_code : EXIT.failed });
}

/** Failures that explain themselves in full; after any other the end of the log is shown. */
const EXPLAINED = /^SF-(?!BUG$|WORKER-)/;
const LOG_LINES = 50;
const TAIL_BYTES = 64 * 1024;

/** The end of the log as text to print below a failure; empty where the failure explains itself. */
export function lastWords(failure: UserError, log: string): string {
  if (failure.problems.every((problem) => EXPLAINED.test(problem.code))) return "";
  const lines = lastLines(log, LOG_LINES);
  if (lines.length === 0) return "";
  return `The last ${lines.length} lines of ${log}:\n${lines.map((line) => `  ${line}\n`).join("")}\n`;
}

function lastLines(path: string, count: number): string[] {
  try {
    const file = openSync(path, "r");
    try {
      const { size } = fstatSync(file);
      const buffer = Buffer.alloc(Math.min(size, TAIL_BYTES));
      readSync(file, buffer, 0, buffer.length, size - buffer.length);
      return buffer.toString("utf8").trimEnd().split("\n").slice(-count);
    } finally {
      closeSync(file);
    }
  } catch {
    return [];
  }
}
