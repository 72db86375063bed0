/**
 * Folders that are there completely or not at all.
 *
 * A folder is filled under `<name>.building-<pid>` and gets its name by one rename. A lock keeps a second builder
 * waiting; a builder that was killed leaves a lock that is broken and a folder that is removed by the next one. Ctrl-C,
 * SIGTERM and SIGHUP end the running step and remove the half-filled folder before the process goes.
 */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { isFree, withLock } from "../../scripts/bootstrap.js";
import { type ErrorCode, EXIT, UserError } from "../errors.js";
import { type Running, StepFailed, Stopped, sizeText } from "./install.js";
import type { Report } from "./progress.js";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** What a folder holds, for the messages. */
export interface Subject {
  code: ErrorCode;
  /** "The installation failed while ...", "The installation was stopped." */
  work: string;
  thing: string;
}

const ENVIRONMENT: Subject = {
  code: "SF-ENV-BUILD-FAILED",
  work: "The installation",
  thing: "the Python environment",
};

export interface Filling {
  dir: string;
  /** The Python environment unless given. */
  subject?: Subject;
  env: NodeJS.ProcessEnv;
  report: Report;
  /** What to type to begin again, for the messages. */
  typed: string;
  /** Puts everything into `running.folder`. False when, with the lock held, there turned out to be nothing to do. */
  fill(folder: string, running: Running): Promise<boolean>;
}

export async function fillFolder(filling: Filling): Promise<void> {
  const { dir, report } = filling;
  try {
    mkdirSync(dirname(dir), { recursive: true });
    const waiting = (pid: number) =>
      report.note(`Process ${pid} is building the same folder (${dir}); waiting for it.`);
    await withLock(`${dir}.lock`, waiting, () => fillLocked(filling));
  } catch (error) {
    report.end(false);
    throw explain(error, filling);
  }
}

/** Refuses to begin what the disk cannot hold. */
export function needRoom(dir: string, bytes: number, { code, thing }: Subject = ENVIRONMENT): void {
  const { bavail, bsize } = statfsSync(dir);
  if (bavail * bsize >= bytes) return;
  const whole = `${thing[0]?.toUpperCase()}${thing.slice(1)}`;
  throw new UserError({
    code,
    what: `${whole} needs about ${sizeText(bytes)} in ${dir}, and ${sizeText(bavail * bsize)} are free.`,
    fix: "Make room there, or set SINKFLEX_DATA_DIR to a folder on a larger disk.",
  });
}

async function fillLocked({ dir, env, report, fill }: Filling): Promise<void> {
  removeLeftovers(dir);
  const folder = `${dir}.building-${process.pid}`;
  const log = `${dir}.log`;
  const notice = "Stopping: ending what is under way and removing the half-built folder.";
  try {
    writeFileSync(log, "");
    const filled = (signal: AbortSignal) => fill(folder, { env: installerEnvironment(env), signal, log });
    if (await untilStopped(() => report.note(notice), filled)) {
      moveInto(folder, dir);
      report.end(true);
    }
    rmSync(log, { force: true });
  } catch (error) {
    const unexplained = error instanceof UserError && error.exitCode === EXIT.failed;
    if (!(error instanceof StepFailed || unexplained)) rmSync(log, { force: true });
    throw error;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Work that Ctrl-C, SIGTERM and SIGHUP abort by its signal; what it then throws is `Stopped` with the signal's name. */
export async function untilStopped<T>(onStop: () => void, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const stopper = new AbortController();
  const stop = (signal: NodeJS.Signals) => {
    if (!stopper.signal.aborted) onStop();
    stopper.abort(signal);
  };
  for (const signal of SIGNALS) process.on(signal, stop);
  try {
    return await work(stopper.signal);
  } catch (error) {
    throw error instanceof Stopped ? new Stopped(String(stopper.signal.reason)) : error;
  } finally {
    for (const signal of SIGNALS) process.off(signal, stop);
  }
}

/** The user's environment without what would send packages elsewhere than into the folder. */
function installerEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return { ...env, PYTHONPATH: undefined, PYTHONHOME: undefined, PIP_USER: "0", PYTHONUNBUFFERED: "1" };
}

/** Removes the unfinished folders in `parent` that nobody is filling: their builders were killed. */
export function sweep(parent: string): void {
  for (const name of readdirSync(parent)) {
    const dir = /^(.+)\.(?:building|old)-\d+$/.exec(name)?.[1];
    if (dir !== undefined && isFree(join(parent, `${dir}.lock`))) {
      rmSync(join(parent, name), { recursive: true, force: true, maxRetries: 3 });
    }
  }
}

/** With the lock held, every `.building-` and `.old-` folder of this name belongs to a process that is gone. */
function removeLeftovers(dir: string): void {
  for (const name of readdirSync(dirname(dir))) {
    if (!name.startsWith(`${basename(dir)}.building-`) && !name.startsWith(`${basename(dir)}.old-`)) continue;
    rmSync(join(dirname(dir), name), { recursive: true, force: true, maxRetries: 3 });
  }
}

function moveInto(folder: string, dir: string): void {
  writeFinalPaths(folder, dir);
  const old = `${dir}.old-${process.pid}`;
  if (existsSync(dir)) renameSync(dir, old);
  renameSync(folder, dir);
  rmSync(old, { recursive: true, force: true });
}

/** Installers write the folder's path into scripts and pyvenv.cfg: these must name the folder it will be. */
function writeFinalPaths(folder: string, dir: string): void {
  const bin = join(folder, "bin");
  const scripts = existsSync(bin) ? readdirSync(bin).map((name) => join(bin, name)) : [];
  for (const path of [join(folder, "pyvenv.cfg"), ...scripts]) {
    if (!existsSync(path) || !statSync(path).isFile() || statSync(path).size > 32_768) continue;
    const text = readFileSync(path, "utf8");
    if (text.includes(folder)) writeFileSync(path, text.replaceAll(folder, dir));
  }
}

/** The error of work that was stopped; `error` has the signal's name. */
export function stopped(error: Stopped, { code, work }: Subject, typed: string): UserError {
  return new UserError(
    { code, what: `${work} was stopped.`, fix: `\`${typed}\` begins it again.` },
    {
      left: "Nothing half-built is kept; what the installer had put into its own cache is.",
      exitCode: error.message === "SIGINT" ? EXIT.interrupted : EXIT.terminated,
    },
  );
}

function explain(error: unknown, { dir, typed, subject = ENVIRONMENT }: Filling): unknown {
  const { code, work, thing } = subject;
  if (error instanceof Stopped) return stopped(error, subject, typed);
  if (error instanceof StepFailed) {
    return new UserError(
      {
        code,
        what: `${work} failed while ${error.step}.`,
        why: error.tail,
        fix: `Mend the cause (the network, a proxy, pip's own configuration, the disk), then run \`${typed}\` again.`,
      },
      { left: `Nothing half-built is kept. The installer's whole output: ${dir}.log` },
    );
  }
  if (error instanceof Error && "code" in error && !(error instanceof UserError)) {
    return new UserError({
      code,
      what: `Cannot write ${thing} to ${dirname(dir)}.`,
      why: error.message,
      fix: "Make room or give write permission there, or set SINKFLEX_DATA_DIR to another folder.",
    });
  }
  return error;
}
