/** `sinkflex bench`: what is to be measured becomes cells, a table and a record, beside an older record if one is named. */
import { compare, needSame, settingOf } from "../bench/compare.js";
import { needPlace, readRecord, writeRecord } from "../bench/record.js";
import { benchRequest } from "../bench/request.js";
import { type BenchState, recordOf } from "../bench/state.js";
import type { BenchOptions } from "../options.js";
import { type Measured, measure } from "../process/bench.js";
import { lastWords } from "../process/ending.js";
import { resolvePython } from "../process/python.js";
import type { BenchRecord } from "../protocol/bench.js";
import { shownPath } from "../run/dir.js";
import { comparisonRows } from "../ui/bench/compare.js";
import { reportRows } from "../ui/bench/report.js";
import { benchPicture } from "../ui/bench/view.js";
import { plural } from "../ui/format.js";
import { screenFor } from "../ui/screens.js";

const HINT = "Ctrl-C: finish the cell, show what was measured and stop";
const WIDEST = 160;

export async function run(options: BenchOptions): Promise<number> {
  const request = benchRequest(options);
  const old = options.compare === undefined ? null : oldRecord(options.compare);
  if (old !== null) needSame(old.record, settingOf(request), old.shown);
  if (options.out !== undefined) needPlace(options.out, shownPath(options.out));
  const python = await resolvePython({ ...options, python: options.python });

  const screen = screenFor(process.stdout, process.stderr, options, process.env, HINT, benchPicture);
  const judge = ({ plan }: BenchState) => {
    if (old !== null && plan !== null) needSame(old.record, plan, old.shown);
  };
  let measured: Measured | undefined;
  try {
    measured = await measure(request, python.path, screen, judge);
  } finally {
    screen.close(measured?.state ?? benchPicture.initial);
  }
  const { state, exitCode, failure, log } = measured;
  // What was refused after the plan has nothing to show.
  const record = state.cells.length === 0 && failure !== null ? null : recordOf(state, request.command);
  if (record !== null) tell(record, state, options, old);
  if (failure !== null) {
    process.stderr.write(log === null ? "" : lastWords(failure, log));
    throw failure;
  }
  if (log !== null) people(options).write(`\n${failedCells(state)}The log is ${log}.\n`);
  return exitCode;
}

function failedCells({ cells }: BenchState): string {
  const failed = cells.filter((cell) => cell.status === "failed").length;
  return failed === 0 ? "" : `${failed} of ${plural(cells.length, "cell")} failed, so they have no figures. `;
}

interface OldRecord {
  record: BenchRecord;
  shown: string;
}

function oldRecord(path: string): OldRecord {
  const shown = shownPath(path);
  return { record: readRecord(path, shown), shown };
}

function people({ json }: BenchOptions): NodeJS.WriteStream {
  return json ? process.stderr : process.stdout;
}

/** The table, the comparison and the record. The record is written last, so that the figures are seen in any case. */
function tell(record: BenchRecord, state: BenchState, options: BenchOptions, old: OldRecord | null): void {
  const out = people(options);
  const look = {
    width: out.isTTY ? Math.min(out.columns ?? 80, WIDEST) : WIDEST,
    color: options.color && !options.json,
    quiet: options.quiet,
  };
  const blocks = [
    reportRows(record, state, look),
    ...(old === null ? [] : [comparisonRows(compare(old.record, record), old.shown, look)]),
  ];
  if (!options.quiet) out.write("\n");
  out.write(`${blocks.map((rows) => rows.map((row) => `${row}\n`).join("")).join("\n")}`);
  if (options.json) process.stdout.write(`${JSON.stringify(record)}\n`);
  if (options.out === undefined) return;
  writeRecord(options.out, shownPath(options.out), record);
  if (!options.quiet) out.write(`\nrecord    ${shownPath(options.out)}\n`);
}
