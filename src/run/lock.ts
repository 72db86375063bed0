/**
 * Who is working in a run directory: a file `lock` with the process ids of the command line and of its worker.
 *
 * A lock whose processes are gone (a kill, a crash, a reboot) is void and is taken over. A process id can be given to
 * another process later, so where the system tells (Linux) the time a process started is kept beside it.
 */
import { constants, copyFileSync, linkSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";

interface ProcessMark {
  pid: number;
  /** Clock ticks between boot and the start of the process; null where unknown. */
  started: string | null;
}

export interface Holder {
  host: string;
  cli: ProcessMark;
  worker: ProcessMark | null;
}

const LOCK = "lock";

/** The living holder of a run directory, or null. One on another host counts as living: it can't be asked. */
export function holderOf(dir: string): Holder | null {
  return livingIn(join(dir, LOCK));
}

function livingIn(path: string): Holder | null {
  let holder: Holder;
  try {
    holder = JSON.parse(readFileSync(path, "utf8")) as Holder;
  } catch {
    return null;
  }
  if (typeof holder?.cli?.pid !== "number") return null;
  if (holder.host !== hostname()) return holder;
  return isAlive(holder.cli) || (holder.worker !== null && isAlive(holder.worker)) ? holder : null;
}

export class RunLock {
  readonly #path: string;
  readonly #holder: Holder;

  private constructor(dir: string) {
    this.#path = join(dir, LOCK);
    this.#holder = { host: hostname(), cli: mark(process.pid), worker: null };
  }

  /** Takes the lock of `dir`, or says who holds it. */
  static take(dir: string): RunLock | Holder {
    const lock = new RunLock(dir);
    const draft = `${lock.#path}.${process.pid}`;
    try {
      writeFileSync(draft, JSON.stringify(lock.#holder));
      for (;;) {
        if (appear(draft, lock.#path)) return lock;
        const holder = holderOf(dir) ?? setAside(lock.#path, `${draft}.void`);
        if (holder !== null) return holder;
      }
    } finally {
      rmSync(draft, { force: true });
    }
  }

  /** Notes the worker, so that the run counts as running while it ends after a kill of the command line. */
  noteWorker(pid: number): void {
    this.#holder.worker = mark(pid);
    const fresh = `${this.#path}.new`;
    writeFileSync(fresh, JSON.stringify(this.#holder));
    renameSync(fresh, this.#path);
  }

  release(): void {
    rmSync(this.#path, { force: true });
  }
}

/** Gives `draft` a second name, whole and at once; false when the name is taken. */
function appear(draft: string, path: string): boolean {
  try {
    try {
      linkSync(draft, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") throw error;
      copyFileSync(draft, path, constants.COPYFILE_EXCL); // a file system without hard links
    }
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

/** Removes a void lock. Should another taker have been faster, its new lock is put back and its holder returned. */
function setAside(path: string, aside: string): Holder | null {
  try {
    renameSync(path, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  const holder = livingIn(aside);
  if (holder !== null) renameSync(aside, path);
  else rmSync(aside, { force: true });
  return holder;
}

function mark(pid: number): ProcessMark {
  return { pid, started: startOf(pid) };
}

function isAlive({ pid, started }: ProcessMark): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
  const now = startOf(pid);
  return now === null || started === null || now === started;
}

/** Field 22 of /proc/PID/stat; the name in field 2 may hold blanks and parentheses, so it is counted from behind it. */
function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" ? "zombie" : (fields[19] ?? null);
  } catch {
    return null;
  }
}
