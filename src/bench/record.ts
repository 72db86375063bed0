/** Records of benchmarks as files: read for a comparison, written with --out. */
import { readFileSync, statSync } from "node:fs";
import { EXIT, UserError } from "../errors.js";
import { type BenchRecord, recordSchema } from "../protocol/bench.js";
import { replaceFile, tryPlace, whyNot } from "../run/whole.js";

/** `shown` is the path as a person would type it. */
export function readRecord(path: string, shown: string): BenchRecord {
  const refuse = (what: string, why: string, cause?: unknown) => {
    const fix = "Name a record that `sinkflex bench --out FILE` or `sinkflex bench --json` wrote.";
    return new UserError({ code: "SF-BENCH-RECORD", what, why, fix }, { cause, left: "Nothing was measured." });
  };
  let value: unknown;
  try {
    value = lastObject(readFileSync(path, "utf8"));
  } catch (error) {
    if (error instanceof SyntaxError) throw refuse(`${shown} is not JSON.`, `${error.message}.`, error);
    const { code } = error as NodeJS.ErrnoException;
    const why = code === "ENOENT" ? "There is no such file." : whyNot(error);
    throw refuse(`${shown} can't be read.`, why, error);
  }
  const parsed = recordSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const place = issue?.path.length ? `\`${issue.path.join(".")}\`: ` : "";
  throw refuse(`${shown} is not the record of a benchmark.`, `${place}${issue?.message ?? "It has another shape"}.`);
}

/** A whole JSON file, or what `--json` wrote: then the record is the last line. */
function lastObject(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const lines = text.trimEnd().split("\n");
    if (lines.length === 1 || !lines[0]?.startsWith('{"v":')) throw error;
    return JSON.parse(lines.at(-1) ?? "");
  }
}

/** Refuses a place for the record before anything is measured. */
export function needPlace(path: string, shown: string): void {
  try {
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) throw Object.assign(new Error(), { code: "EISDIR" });
    tryPlace(path);
  } catch (error) {
    throw cannotWrite(shown, error, EXIT.usage, "Nothing was measured.");
  }
}

export function writeRecord(path: string, shown: string, record: BenchRecord): void {
  try {
    replaceFile(path, `${JSON.stringify(record, null, 2)}\n`);
  } catch (error) {
    throw cannotWrite(shown, error, EXIT.failed, "The figures are above; the record was not written.");
  }
}

function cannotWrite(shown: string, cause: unknown, exitCode: number, left: string): UserError {
  const problem = {
    code: "SF-BENCH-OUT",
    what: `Can't write ${shown}.`,
    why: whyNot(cause),
    fix: "Choose another file with --out FILE.",
  } as const;
  return new UserError(problem, { cause, exitCode, left });
}
