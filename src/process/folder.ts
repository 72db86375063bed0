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
import { withLock } from "../../scripts/bootstrap.js";
import { EXIT, UserError } from "../errors.js";
import { type Running, StepFailed, Stopped, sizeText } from "./install.js";
import type { Report } from "./progress.js";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

export interface Filling {
  dir: string;
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
export function needRoom(dir: string, bytes: number): void {
  const { bavail, bsize } = statfsSync(dir);
  if (bavail * bsize >= bytes) return;
  throw new UserError({
    code: "SF-ENV-BUILD-FAILED",
    what: `The Python environment needs about ${sizeText(bytes)} in ${dir}, and ${sizeText(bavail * bsize)} are free.`,
    fix: "Make room there, or set SINKFLEX_DATA_DIR to a folder on a larger disk.",
  });
}

async function fillLocked({ dir, env, report, fill }: Filling): Promise<void> {
  removeLeftovers(dir);
  const folder = `${dir}.building-${process.pid}`;
  const log = `${dir}.log`;
  const stopper = new AbortController();
  const stop = (signal: NodeJS.Signals) => {
    if (!stopper.signal.aborted) report.note("Stopping: ending the installer and removing the half-built folder.");
    stopper.abort(signal);
  };
  for (const signal of SIGNALS) process.on(signal, stop);
  try {
    writeFileSync(log, "");
    if (await fill(folder, { env: installerEnvironment(env), signal: stopper.signal, log })) {
      moveInto(folder, dir);
      report.end(true);
    }
    rmSync(log, { force: true });
  } catch (error) {
    if (!(error instanceof StepFailed)) rmSync(log, { force: true });
    throw error instanceof Stopped ? new Stopped(String(stopper.signal.reason)) : error;
  } finally {
    rmSync(folder, { recursive: true, force: true });
    for (const signal of SIGNALS) process.off(signal, stop);
  }
}

/** The user's environment without what would send packages elsewhere than into the folder. */
function installerEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return { ...env, PYTHONPATH: undefined, PYTHONHOME: undefined, PIP_USER: "0", PYTHONUNBUFFERED: "1" };
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

function explain(error: unknown, { dir, typed }: Filling): unknown {
  if (error instanceof Stopped) {
    const terminated = error.message !== "SIGINT";
    return new UserError(
      { code: "SF-ENV-BUILD-FAILED", what: "The installation was stopped.", fix: `\`${typed}\` begins it again.` },
      {
        left: "Nothing half-built is kept; what the installer had put into its own cache is.",
        exitCode: terminated ? EXIT.terminated : EXIT.interrupted,
      },
    );
  }
  if (error instanceof StepFailed) {
    return new UserError(
      {
        code: "SF-ENV-BUILD-FAILED",
        what: `The installation failed while ${error.step}.`,
        why: error.tail,
        fix: `Mend the cause (the network, a proxy, pip's own configuration, the disk), then run \`${typed}\` again.`,
      },
      { left: `Nothing half-built is kept. The installer's whole output: ${dir}.log` },
    );
  }
  if (error instanceof Error && "code" in error && !(error instanceof UserError)) {
    return new UserError({
      code: "SF-ENV-BUILD-FAILED",
      what: `Cannot write the Python environment to ${dirname(dir)}.`,
      why: error.message,
      fix: "Make room or give write permission there, or set SINKFLEX_DATA_DIR to another folder.",
    });
  }
  return error;
}
