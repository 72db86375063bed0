/**
 * A worker, from its first byte to its last: every line is recorded before anything is made of it, then decoded, reduced
 * and shown. Returns when the worker and its group are gone.
 *
 * The record always ends with an `end`: when the worker died without one, the command line writes it.
 */
import { appendFileSync } from "node:fs";
import { decodeLine, LineSplitter } from "../protocol/decode.js";
import { type Event, type EventOf, type Failure, PROTOCOL_VERSION, SEQ_CLI } from "../protocol/events.js";
import type { Standing } from "../run/state.js";
import type { Worker, WorkerExit } from "./worker.js";

/** How the events of a verb become its state. */
export interface Story<S> {
  start: S;
  reduce(state: S, event: Event): S;
  standing(state: S): Standing;
}

/** What becomes of the events; the record, the screen and the ladder fit it. */
export interface Audience<S> {
  /** Throws when the record can't be written; the worker is then asked to stop and nothing more is recorded. */
  record(lines: Buffer): void;
  lines(bytes: Buffer): void | Promise<void>;
  event(state: S, event: Event): void;
  /** The signal that the user or the system stopped the run with, if any. */
  stoppedBy(): NodeJS.Signals | null;
}

export interface Outcome<S> {
  state: S;
  exit: WorkerExit;
  /** Why the record is incomplete. */
  recordError: unknown;
}

/** After its `end` a worker has this long to leave; what hangs in its shutdown is ended. */
const LEAVE_MS = 10_000;
const SHOWN = 200;

export async function supervise<S>(
  worker: Worker,
  { start, reduce, standing }: Story<S>,
  log: string,
  audience: Audience<S>,
): Promise<Outcome<S>> {
  const splitter = new LineSplitter();
  let state = start;
  let recordError: unknown = null;
  let leaving: NodeJS.Timeout | undefined;
  let foreign: string | undefined;

  const take = async (lines: readonly Buffer[]) => {
    const kept: Buffer[] = [];
    const events: Event[] = [];
    for (const line of lines) {
      const decoded = decodeLine(line);
      if (decoded.kind === "malformed") {
        const event = malformed(standing(state), decoded.why);
        kept.push(Buffer.from(JSON.stringify(event)));
        events.push(event);
        note(log, `sinkflex: not an event (${decoded.why}): ${line.subarray(0, 2000).toString("utf8")}`);
      } else if (decoded.kind === "version") {
        if (foreign === undefined) worker.terminate();
        foreign ??= JSON.stringify(decoded.found);
      } else {
        kept.push(line);
        if (decoded.kind === "event") events.push(decoded.event);
      }
    }
    if (kept.length === 0) return;
    const bytes = Buffer.concat(kept.flatMap((line) => [line, NEWLINE]));
    if (recordError === null) {
      try {
        audience.record(bytes);
      } catch (error) {
        recordError = error;
        worker.stop();
      }
    }
    await audience.lines(bytes);
    for (const event of events) {
      state = reduce(state, event);
      audience.event(state, event);
      if (event.type === "end" && worker.alive) leaving ??= setTimeout(() => worker.terminate(), LEAVE_MS);
    }
  };

  for await (const chunk of worker.events()) await take(splitter.push(chunk));
  await take(splitter.end());
  const exit = await worker.exited;
  clearTimeout(leaving);
  if (splitter.overlong > 0) {
    await take([line(malformed(standing(state), `${splitter.overlong} lines longer than ${splitter.limit} bytes`))]);
  }
  if (!standing(state).ended) await take([line(missingEnd(standing(state), exit, foreign, audience.stoppedBy()))]);
  return { state, exit, recordError };
}

const NEWLINE = Buffer.from("\n");

function line(event: Event): Buffer {
  return Buffer.from(JSON.stringify(event));
}

function malformed({ t }: Standing, why: string): EventOf<"warn"> {
  return {
    v: PROTOCOL_VERSION,
    seq: SEQ_CLI,
    t,
    type: "warn",
    code: "malformed_event",
    what: `The worker sent a line that is no event: ${why.slice(0, SHOWN)}.`,
    fix: "The line is in stderr.log; everything else is recorded.",
  };
}

const STOP_SIGNALS: readonly NodeJS.Signals[] = ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"];
const STOPPED_CODES: readonly number[] = [0, 129, 130, 143];

function missingEnd(
  at: Standing,
  exit: WorkerExit,
  foreign: string | undefined,
  stoppedBy: NodeJS.Signals | null,
): EventOf<"end"> {
  // A crash while stopping is a crash: nobody knows whether the checkpoint was written.
  const asked = exit.signal === null ? STOPPED_CODES.includes(exit.code ?? 1) : STOP_SIGNALS.includes(exit.signal);
  const stopped = stoppedBy !== null && foreign === undefined && asked;
  return {
    v: PROTOCOL_VERSION,
    seq: SEQ_CLI,
    t: at.t,
    type: "end",
    status: stopped ? "stopped" : "failed",
    exit_code: stopped ? (stoppedBy === "SIGINT" ? 130 : 143) : 1,
    step: at.step,
    checkpoint: at.checkpoint,
    error: stopped ? null : foreign === undefined ? death(at, exit) : otherProtocol(foreign),
  };
}

const MEANING: Partial<Record<NodeJS.Signals, string>> = {
  SIGKILL: "Something outside killed it; most often the system, when memory ran out.",
  SIGSEGV: "Native code read memory that is not its own: a bug in a library, or a broken installation.",
  SIGBUS: "Native code hit memory that is not there; a full /dev/shm does that too.",
  SIGABRT: "Native code gave up; its last words are in the log.",
  SIGILL: "A library was built for another processor.",
  SIGTERM: "Something outside asked it to end.",
};

function death({ where }: Standing, { code, signal }: WorkerExit): Failure {
  const how = signal === null ? `ended with exit code ${code} and without a word` : `was ended by ${signal}`;
  const why =
    signal === null ? "Its last words are in the log." : (MEANING[signal] ?? "Its last words are in the log.");
  return { owner: "infra", code: "SF-WORKER-DIED", what: `The worker ${how} (${where}).`, why };
}

function otherProtocol(found: string): Failure {
  return {
    owner: "infra",
    code: "SF-WORKER-PROTOCOL",
    what: `The worker speaks protocol version ${found}; this command line speaks ${PROTOCOL_VERSION}.`,
    why: "They come from different versions of SinkFlex.",
    fix: "Build both from one checkout: `npm run build`, then `sinkflex doctor --fix`.",
  };
}

function note(log: string, text: string): void {
  try {
    appendFileSync(log, `${text}\n`);
  } catch {
    // The log is a help, not a record.
  }
}
