/** One evaluation, or the comparison of two: the worker, the stop ladder; watched to its end. */
import { join } from "node:path";
import { EXIT, UserError } from "../errors.js";
import { type EvalState, initialEval, reduceEval, standingOfEval } from "../eval/state.js";
import type { Watcher } from "./attempt.js";
import { failureOf, stoppedCode } from "./ending.js";
import { StopLadder } from "./ladder.js";
import { startWorker } from "./start.js";
import { supervise } from "./supervise.js";

export interface Played {
  state: EvalState;
  exitCode: number;
  failure: UserError | null;
  log: string;
}

/** How a person who takes part is heard. */
export interface Voice {
  say(line: string): void;
  /** As by Ctrl-C. */
  stop(): void;
}

const NOTICES = [
  "Stopping after this turn; Ctrl-C again to stop now",
  "Stopping now; trials under way are lost, finished ones stay",
  "Killing the worker",
] as const;

/**
 * `dir` holds the request as `file`; the worker's log goes there too. `again` says how to go on after a failure. `listen`
 * is handed the voice of whoever takes part once somebody listens to it.
 */
export async function playEvaluation(
  { dir, file, again }: { dir: string; file: string; again: string },
  python: string,
  watcher: Watcher<EvalState>,
  listen: (voice: Voice) => void = () => {},
): Promise<Played> {
  const ladder = new StopLadder((presses) => watcher.notice(NOTICES[presses - 1] ?? NOTICES[2], true));
  const log = join(dir, "stderr.log");
  try {
    const worker = await startWorker(python, "eval", { dir, file, log });
    ladder.attach(worker);
    listen({ say: (line) => worker.say(line), stop: () => ladder.press("SIGINT") });
    const story = { start: initialEval, reduce: reduceEval, standing: standingOfEval };
    const { state } = await supervise(worker, story, log, {
      record: () => {}, // the record of an evaluation is its trials
      lines: (bytes) => watcher.lines(bytes),
      event: (next, event) => watcher.event(next, event),
      stoppedBy: () => ladder.first,
    });
    return { state, log, ...verdict(state, ladder.first, again, log) };
  } finally {
    ladder.dispose();
  }
}

/** An evaluation that its budget ended has exit code 1 and no error: its report says that it is incomplete. */
function verdict({ end, done }: EvalState, stoppedBy: NodeJS.Signals | null, again: string, log: string) {
  if (end === null || end.status === "failed") {
    const left = done > 0 ? `${done} finished trials are kept. ${again}` : "";
    const failure = failureOf(end, undefined, `${left} The log is ${log}.`.trim());
    const explained = failure.exitCode !== EXIT.failed && done === 0;
    return {
      exitCode: failure.exitCode,
      failure: explained ? new UserError(failure.problems, { exitCode: failure.exitCode }) : failure,
    };
  }
  return { exitCode: end.status === "completed" ? end.exit_code : stoppedCode(end, stoppedBy), failure: null };
}
