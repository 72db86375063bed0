/** One attempt of a run with all that belongs to it: record, worker, stop ladder, lock, summary. */
import { join, relative } from "node:path";
import { EXIT, UserError } from "../errors.js";
import { type Event, PROTOCOL_VERSION, SEQ_CLI } from "../protocol/events.js";
import type { Begun } from "../run/begin.js";
import { FILES, lastCheckpoint, runOptions, writeJson } from "../run/dir.js";
import { Recorder } from "../run/record.js";
import { reduce, type State, standing } from "../run/state.js";
import { type Summary, summarise } from "../run/summary.js";
import { failureOf, stoppedCode } from "./ending.js";
import { StopLadder } from "./ladder.js";
import { startWorker } from "./start.js";
import { type Outcome, supervise } from "./supervise.js";

/** Who is shown the events of a worker, and told what the keys do to it. */
export interface Watcher<S> {
  lines(bytes: Buffer): void | Promise<void>;
  event(state: S, event: Event): void;
  notice(text: string, stopping: boolean): void;
}

export interface Ended {
  state: State;
  exitCode: number;
  failure: UserError | null;
}

const NOTICES = [
  "Finishing the step and saving; Ctrl-C again to stop now",
  "Stopping now; this step is lost, saved checkpoints stay",
  "Killing the worker",
] as const;

/** Runs the worker to its end. The run directory is left locked by nobody and with a summary. */
export async function runAttempt(begun: Begun, python: string, watcher: Watcher<State>): Promise<Ended> {
  const { dir, lock } = begun;
  const ladder = new StopLadder((presses) => watcher.notice(NOTICES[presses - 1] ?? NOTICES[2], true));
  let recorder: Recorder | undefined;
  try {
    recorder = new Recorder(dir);
    const state = await marked(begun, recorder, watcher);
    const log = join(dir, FILES.log);
    const worker = await startWorker(python, "train", { dir, file: FILES.run, log });
    lock.noteWorker(worker.pid);
    ladder.attach(worker);
    const record = recorder;
    const outcome = await supervise(worker, { start: state, reduce, standing }, log, {
      record: (lines) => record.write(lines),
      lines: (bytes) => watcher.lines(bytes),
      event: (next, event) => watcher.event(next, event),
      stoppedBy: () => ladder.first,
    });
    const ended = verdict(outcome, begun, ladder.first);
    leaveSummary(begun, ended);
    return ended;
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    const failed = { state: begun.state, exitCode: error.exitCode, failure: error };
    leaveSummary(begun, failed);
    return failed;
  } finally {
    recorder?.close();
    ladder.dispose();
    lock.release();
  }
}

/** A resume leaves a mark in the record, so that a replay knows where the step counter may go back. */
async function marked({ file, state }: Begun, recorder: Recorder, watcher: Watcher<State>): Promise<State> {
  const { attempt, resume } = file;
  if (resume === null) return state;
  const event: Event = {
    v: PROTOCOL_VERSION,
    seq: SEQ_CLI,
    t: 0,
    type: "attempt",
    attempt,
    step: resume.step,
    checkpoint: relative(file.run_dir, resume.checkpoint),
  };
  const bytes = Buffer.from(`${JSON.stringify(event)}\n`);
  recorder.write(bytes);
  await watcher.lines(bytes);
  const next = reduce(state, event);
  watcher.event(next, event);
  return next;
}

function verdict(outcome: Outcome<State>, begun: Begun, stoppedBy: NodeJS.Signals | null): Ended {
  const { state, recordError } = outcome;
  const end = state.end;
  const again = goOn(begun);
  const logIs = `The log is ${join(begun.dir, FILES.log)}.`;
  const left = `${again} ${logIs}`;
  if (recordError instanceof UserError) {
    const failure = new UserError(recordError.problems, {
      left: `The run was stopped. ${left}`,
      exitCode: EXIT.failed,
    });
    return { state, exitCode: EXIT.failed, failure };
  }
  if (end === null || end.status === "failed") {
    const failure = failureOf(end, again, end?.error?.fix ? left : logIs);
    return { state, exitCode: failure.exitCode, failure };
  }
  if (end.status === "completed") return { state, exitCode: EXIT.ok, failure: null };
  return { state, exitCode: stoppedCode(end, stoppedBy), failure: null };
}

function goOn({ dir, file }: Begun): string {
  const last = lastCheckpoint(dir);
  if (last === null) return "No checkpoint was written: start the run anew.";
  return `The last checkpoint is of step ${last.step}: \`sinkflex train --resume ${file.run}${runOptions(dir)}\` goes on from there.`;
}

function leaveSummary({ dir, file }: Begun, { state, exitCode, failure }: Ended): void {
  const last = lastCheckpoint(dir);
  const summary: Summary = summarise(state, {
    run: file.run,
    seed: Number(file.config.seed),
    attempt: file.attempt,
    config_sha256: file.config_sha256,
    exitCode,
    status: failure !== null ? "failed" : state.end?.status === "completed" ? "completed" : "stopped",
    checkpoint: last === null ? null : relative(dir, last.checkpoint),
  });
  try {
    writeJson(join(dir, FILES.summary), summary);
  } catch (error) {
    // On a full disk the record has already failed, and that is what is reported.
    if (failure === null) throw error;
  }
}
