/** One benchmark: a folder for its request and its log, the worker, the stop ladder; watched to its end. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BenchRequest } from "../bench/request.js";
import { type BenchState, initialBench, reduceBench, standingOfBench } from "../bench/state.js";
import { EXIT, UserError } from "../errors.js";
import type { Event } from "../protocol/events.js";
import type { Watcher } from "./attempt.js";
import { failureOf, stoppedCode } from "./ending.js";
import { StopLadder } from "./ladder.js";
import { startWorker } from "./start.js";
import { supervise } from "./supervise.js";

export interface Measured {
  state: BenchState;
  exitCode: number;
  failure: UserError | null;
  /** The worker's log, where it was kept. */
  log: string | null;
}

const NOTICES = [
  "Finishing this cell; Ctrl-C again to stop now",
  "Stopping now; this cell is lost, finished ones stay",
  "Killing the worker",
] as const;

/** `judge` may refuse a benchmark once the worker has told its plan, by throwing a UserError. */
export async function measure(
  request: BenchRequest,
  python: string,
  watcher: Watcher<BenchState>,
  judge: (state: BenchState) => void,
): Promise<Measured> {
  const ladder = new StopLadder((presses) => watcher.notice(NOTICES[presses - 1] ?? NOTICES[2], true));
  const dir = mkdtempSync(join(tmpdir(), "sinkflex-bench-"));
  const log = join(dir, "stderr.log");
  let keep = false;
  try {
    writeFileSync(join(dir, "bench.json"), `${JSON.stringify(request, null, 2)}\n`);
    const worker = await startWorker(python, "bench", { dir, file: "bench.json", log });
    ladder.attach(worker);
    let refusal: UserError | null = null;
    const event = (state: BenchState, event: Event) => {
      watcher.event(state, event);
      if (event.type !== "bench" || event.kind !== "plan") return;
      try {
        judge(state);
      } catch (error) {
        if (!(error instanceof UserError)) throw error;
        refusal = error;
        worker.terminate();
      }
    };
    const story = { start: initialBench, reduce: reduceBench, standing: standingOfBench };
    const { state } = await supervise(worker, story, log, {
      record: () => {}, // the record of a benchmark is its result
      lines: (bytes) => watcher.lines(bytes),
      event,
      stoppedBy: () => ladder.first,
    });
    const { exitCode, failure } = refusal === null ? verdict(state, ladder.first, log) : refused(refusal);
    keep = exitCode === EXIT.failed; // a refusal explains itself
    return { state, exitCode, failure, log: keep ? log : null };
  } finally {
    ladder.dispose();
    if (!keep) rmSync(dir, { recursive: true, force: true });
  }
}

function refused(failure: UserError) {
  return { exitCode: failure.exitCode, failure };
}

/** A completed benchmark with a cell that failed its parity has exit code 1 and no error: its table says why. */
function verdict({ end }: BenchState, stoppedBy: NodeJS.Signals | null, log: string) {
  if (end === null || end.status === "failed") {
    const failure = failureOf(end, undefined, `The log is ${log}.`);
    return refused(
      failure.exitCode === EXIT.failed ? failure : new UserError(failure.problems, { exitCode: failure.exitCode }),
    );
  }
  return { exitCode: end.status === "completed" ? end.exit_code : stoppedCode(end, stoppedBy), failure: null };
}
