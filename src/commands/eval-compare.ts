/** `sinkflex eval compare A B`: two results folders, paired by task. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { resultsFolder } from "../eval/trials.js";
import type { EvalCompareOptions } from "../options.js";
import { playEvaluation } from "../process/eval.js";
import { resolvePython } from "../process/python.js";
import { defaultRoot } from "../run/dir.js";
import { evalComparisonRows } from "../ui/eval/report.js";

const WIDEST = 120;

export async function run(options: EvalCompareOptions): Promise<number> {
  const root = options.runs ?? defaultRoot();
  const compare = { base: resultsFolder(root, options.base), candidate: resultsFolder(root, options.candidate) };
  const python = await resolvePython({ ...options, python: options.python });
  const dir = mkdtempSync(join(tmpdir(), "sinkflex-eval-"));
  try {
    writeFileSync(join(dir, "compare.json"), JSON.stringify({ v: 1, verb: "eval", compare }));
    const silent = { lines: () => {}, event: () => {}, notice: () => {} };
    const { state, exitCode, failure } = await playEvaluation(
      { dir, file: "compare.json", again: "" },
      python.path,
      silent,
    );
    if (failure !== null) throw failure;
    if (state.comparison === null) return exitCode;
    const width = process.stdout.isTTY ? Math.min(process.stdout.columns ?? 80, WIDEST) : WIDEST;
    const rows = options.json
      ? [JSON.stringify(state.comparison)]
      : evalComparisonRows(state.comparison, { width, color: options.color });
    process.stdout.write(`${rows.join("\n")}\n`);
    return exitCode;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
