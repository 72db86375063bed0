/** Asks the worker for a model: one request, answered by the folder that it filled or found; or for an export. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { EXIT, UserError } from "../errors.js";
import type { Event, EventOf } from "../protocol/events.js";
import type { Standing } from "../run/state.js";
import { failureOf } from "./ending.js";
import { Stopped, sizeText } from "./install.js";
import { startWorker } from "./start.js";
import { supervise } from "./supervise.js";

export type ModelRequest =
  | {
      action: "convert";
      file: string;
      sha256: string;
      folder: string;
      template: "chatml" | null;
      source: { name: string; source: string; package: string | null; version: string | null } & Record<
        string,
        unknown
      >;
    }
  | { action: "fetch"; name: string };

export interface ExportRequest {
  /** Absolute paths, and whether an adapter is added to its model's weights. */
  checkpoint: string;
  folder: string;
  merge: boolean;
}

interface Asking {
  python: string;
  /** A folder for the request. */
  dir: string;
  log: string;
  signal: AbortSignal;
  /** What the worker is doing now. */
  stage(text: string): void;
  /** How it goes on with that. */
  detail(text: string): void;
  /** A sentence that stays. */
  note(text: string): void;
}

interface Told {
  t: number;
  stage: string;
  model: EventOf<"model"> | null;
  end: EventOf<"end"> | null;
}

const REQUEST = "request.json";

/** Throws Stopped when `signal` aborted it, or the worker's own refusal. */
export async function askWorker(request: ModelRequest | ExportRequest, asking: Asking): Promise<EventOf<"model">> {
  const { python, dir, log, signal } = asking;
  const verb = "action" in request ? "models" : "export";
  writeFileSync(join(dir, REQUEST), `${JSON.stringify({ v: 1, verb, ...request })}\n`);
  const worker = await startWorker(python, verb, { dir, file: REQUEST, log });
  const stop = () => worker.terminate();
  signal.addEventListener("abort", stop);
  if (signal.aborted) stop();
  const start: Told = { t: 0, stage: "before it began", model: null, end: null };
  try {
    const { state } = await supervise(worker, { start, reduce, standing }, log, {
      record: () => {},
      lines: () => {},
      event(_, event) {
        if (event.type === "phase" && event.detail) asking.stage(event.detail);
        if (event.type === "beat") asking.detail(event.rss_bytes ? `${sizeText(event.rss_bytes)} of memory` : "");
        if (event.type === "warn") asking.note(event.what);
      },
      stoppedBy: () => (signal.aborted ? "SIGTERM" : null),
    });
    if (signal.aborted) throw new Stopped(verb);
    if (state.model !== null && state.end?.status === "completed") return state.model;
    const failure = failureOf(state.end, undefined, `The log is ${log}.`);
    const explained = failure.exitCode !== EXIT.failed;
    throw new UserError(failure.problems, {
      exitCode: failure.exitCode,
      left: `Nothing half-written is kept.${explained ? "" : ` ${failure.left}`}`,
    });
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

function reduce(told: Told, event: Event): Told {
  const next = { ...told, t: event.t };
  if (event.type === "phase") return { ...next, stage: event.detail ?? told.stage };
  if (event.type === "model") return { ...next, model: event };
  return event.type === "end" ? { ...next, end: event } : next;
}

function standing({ t, end, stage }: Told): Standing {
  return { t, ended: end !== null, where: stage, step: null, checkpoint: null };
}
