/**
 * From a checked config, or from a run that is to go on, to a directory in which a worker can be started.
 * Everything that can be refused is refused before anything is written.
 */
import { createHash } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { UserError } from "../errors.js";
import {
  cannotWrite,
  createRun,
  FILES,
  findRun,
  lastCheckpoint,
  pointLatest,
  type RunFile,
  readJson,
  readRun,
  shellWord,
  writeJson,
  writeWhole,
} from "./dir.js";
import { type Holder, holderOf, RunLock } from "./lock.js";
import { replay } from "./replay.js";
import { initialState, type State } from "./state.js";
import type { Summary } from "./summary.js";

/** The resolved config; this room reads its name and passes the rest on. */
export type RunConfig = RunFile["config"] & {
  name: string;
  model: { preset?: string | undefined; path?: string | undefined };
};

export interface NewRun {
  kind: "new";
  root: string;
  config: RunConfig;
  configFile: string;
  /** The config file as it is. */
  source: Uint8Array;
  /** The model's transformers folder; null for one that is built from the seed. */
  modelFolder: string | null;
}

export interface Continuation {
  kind: "resume";
  dir: string;
  file: RunFile;
}

export interface Begun {
  dir: string;
  file: RunFile;
  lock: RunLock;
  /** What earlier attempts left. */
  state: State;
}

export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** The run to go on with, as the next attempt from its last checkpoint. `config` replaces the recorded one. */
export function continuation(root: string, run: string, change: (file: RunFile) => RunConfig | null): Continuation {
  const dir = findRun(root, run);
  const file = readRun(dir);
  const holder = holderOf(dir);
  if (holder !== null) throw active(file.run, holder);
  const config = change(file) ?? file.config;
  const from = lastCheckpoint(dir);
  if (from === null) {
    throw new UserError({
      code: "SF-RUN-NO-CHECKPOINT",
      what: `${file.run} has no checkpoint to go on from.`,
      why: "It ended before the first one was written.",
      fix: `Start it anew: \`sinkflex train ${file.config_file}\`. checkpoint.every says how often one is written.`,
    });
  }
  needModel(file);
  const summary = readJson<Partial<Summary>>(join(dir, FILES.summary));
  const steps = (config.train as { steps?: number } | undefined)?.steps ?? 0;
  if (summary?.status === "completed" && steps <= from.step) {
    throw new UserError({
      code: "SF-RUN-COMPLETE",
      what: `${file.run} is complete: all ${steps} steps are done.`,
      fix: `To train further: \`sinkflex train --resume ${file.run} --set train.steps=${steps * 2}\`.`,
    });
  }
  return { kind: "resume", dir, file: { ...file, run_dir: dir, attempt: file.attempt + 1, resume: from, config } };
}

/** A resume goes on with the very model that the run was begun with. */
function needModel({ run, model_folder, config }: RunFile): void {
  const { preset, path } = config.model as { preset?: string; path?: string };
  const folder = model_folder ?? path;
  if (!folder || existsSync(join(folder, "config.json"))) return;
  throw new UserError({
    code: "SF-MODEL-GONE",
    what: `The model that ${run} was begun with is gone: ${folder}.`,
    why: "Its checkpoints belong to that model.",
    fix:
      folder === path
        ? "Put the folder back."
        : `\`sinkflex models get ${shellWord(preset ?? path ?? "")}\` brings it back.`,
  });
}

export function begin(plan: NewRun | Continuation, now: Date): Begun {
  return plan.kind === "new" ? beginNew(plan, now) : beginAgain(plan);
}

function beginNew({ root, config, configFile, source, modelFolder }: NewRun, now: Date): Begun {
  const dir = createRun(root, config.name, now);
  try {
    const lock = lockOf(dir, basename(dir));
    const file: RunFile = {
      v: 1,
      verb: "train",
      run: basename(dir),
      run_dir: dir,
      config_file: configFile,
      config_sha256: sha256(source),
      attempt: 1,
      resume: null,
      config,
      model_folder: modelFolder,
    };
    writeWhole(join(dir, FILES.config), source);
    writeJson(join(dir, FILES.run), file);
    pointLatest(root, dir);
    return { dir, file, lock, state: initialState };
  } catch (error) {
    rmSync(dir, { recursive: true, force: true }); // half a run is none
    throw error;
  }
}

function beginAgain({ dir, file }: Continuation): Begun {
  const lock = lockOf(dir, file.run);
  try {
    // Read again under the lock: somebody may have gone on with this run in the meantime.
    const attempt = readRun(dir).attempt + 1;
    const current = { ...file, attempt, resume: lastCheckpoint(dir) ?? file.resume };
    writeJson(join(dir, FILES.run), current);
    pointLatest(dirname(dir), dir);
    return { dir, file: current, lock, state: replay(dir) };
  } catch (error) {
    lock.release();
    throw error;
  }
}

function lockOf(dir: string, run: string): RunLock {
  let taken: RunLock | Holder;
  try {
    taken = RunLock.take(dir);
  } catch (error) {
    throw cannotWrite(dir, error);
  }
  if (taken instanceof RunLock) return taken;
  throw active(run, taken);
}

function active(run: string, holder: Holder): UserError {
  return new UserError({
    code: "SF-RUN-ACTIVE",
    what: `${run} is still running (process ${holder.cli.pid} on ${holder.host}).`,
    why: "Two attempts at once would overwrite each other's checkpoints.",
    fix: `Watch it with \`sinkflex runs tail ${run}\`, or stop it first. If that process is long gone, remove the file \`lock\` in the run directory.`,
  });
}
