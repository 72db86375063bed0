/** The runs of a directory with what a table of them says. */
import { statSync } from "node:fs";
import { basename, join } from "node:path";
import { FILES, listRuns, type RunFile, readJson } from "./dir.js";
import { holderOf } from "./lock.js";
import { replay } from "./replay.js";
import { type Summary, summarise } from "./summary.js";

export type RunStatus = Summary["status"] | "running" | "interrupted";

export interface RunEntry {
  run: string;
  dir: string;
  suite: string | null;
  status: RunStatus;
  steps: number;
  steps_planned: number | null;
  /** Held-out mean before training and at the newest evaluation; of the training reward where none was held out. */
  reward_first: number | null;
  reward_last: number | null;
  /** Seconds since the newest event. */
  age_s: number;
}

export function statusOf(dir: string, summary: Partial<Summary> | null): RunStatus {
  if (holderOf(dir) !== null) return "running";
  const run = readJson<RunFile>(join(dir, FILES.run));
  // A summary of an earlier attempt says nothing about the one that was killed.
  return summary?.status !== undefined && summary.attempt === run?.attempt ? summary.status : "interrupted";
}

export function runEntries(root: string, now: Date): RunEntry[] {
  return listRuns(root).map((dir) => entry(dir, now));
}

function entry(dir: string, now: Date): RunEntry {
  const file = readJson<RunFile>(join(dir, FILES.run));
  const kept = readJson<Summary>(join(dir, FILES.summary));
  const status = statusOf(dir, kept);
  const ended = status !== "running" && status !== "interrupted";
  const summary = ended && kept !== null ? kept : fromEvents(dir, file);
  const own = summary.evals.filter((one) => one.agent === "policy");
  const env = file?.config?.env as { suite?: string } | undefined;
  return {
    run: basename(dir),
    dir,
    suite: summary.suite ?? env?.suite ?? null,
    status,
    steps: summary.steps,
    steps_planned: summary.steps_planned,
    reward_first: own[0]?.mean ?? summary.reward?.first ?? null,
    reward_last: own.at(-1)?.mean ?? summary.reward?.last ?? null,
    age_s: Math.max(0, (now.getTime() - lastTouched(dir)) / 1000),
  };
}

function fromEvents(dir: string, file: RunFile | null): Summary {
  return summarise(replay(dir), {
    run: basename(dir),
    seed: Number(file?.config?.seed ?? 0),
    attempt: file?.attempt ?? 1,
    config_sha256: file?.config_sha256 ?? "",
    exitCode: 1,
    status: "failed",
    checkpoint: null,
  });
}

function lastTouched(dir: string): number {
  for (const name of [FILES.events, FILES.run]) {
    try {
      return statSync(join(dir, name)).mtimeMs;
    } catch {
      // The run has not come that far.
    }
  }
  return 0;
}
