/**
 * What both the setup script (before any package is installed) and the command line (after) need: one lock, one way to
 * find Python. Node built-ins only. bootstrap.d.ts has the types.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const BEAT_MS = 5_000;
const SILENT_MS = 60_000;
const GUARD_MS = 10_000;

/** Newest first among the named versions; then what the user calls Python. */
const CANDIDATES = ["python3.13", "python3.12", "python3.11", "python3", "python"];

const PROBE = [
  "import sys, importlib.util as u",
  "has = lambda *names: int(all(u.find_spec(name) for name in names))",
  "print(*sys.version_info[:3], has('venv', 'ensurepip'), has('torch'), sys.executable)",
].join("; ");

/** The Pythons that the lock files were resolved for, read from pyproject.toml: the only place that says it. */
export function supportedPythons(root) {
  const text = readFileSync(join(root, "pyproject.toml"), "utf8");
  const match = /^requires-python\s*=\s*">=3\.(\d+),<3\.(\d+)"/m.exec(text);
  if (!match) throw new Error("pyproject.toml: requires-python is not of the form >=3.A,<3.B");
  const [oldest, newest] = [Number(match[1]), Number(match[2]) - 1];
  return { oldest, newest, text: `Python 3.${oldest} to 3.${newest}` };
}

/** Asks one Python who it is. Null when it does not run (a missing program, or a shim without a version behind it). */
export function probePython(command, env = process.env) {
  const { status, stdout } = spawnSync(command, ["-c", PROBE], { encoding: "utf8", env, timeout: 20_000 });
  const match = status === 0 ? /^(\d+) (\d+) (\d+) ([01]) ([01]) (.+)$/m.exec(stdout) : null;
  if (!match) return null;
  const [major, minor, micro] = [Number(match[1]), Number(match[2]), Number(match[3])];
  const version = `${major}.${minor}.${micro}`;
  const [venv, torch] = [match[4] === "1", match[5] === "1"];
  return { command, path: match[6].trim(), major, minor, micro, version, venv, torch };
}

/** "too-old", "too-new" or "ok". */
export function judgePython(python, supported) {
  if (python.major !== 3 || python.minor < supported.oldest) return python.major > 3 ? "too-new" : "too-old";
  return python.minor > supported.newest ? "too-new" : "ok";
}

/**
 * The Python on PATH to build an environment from. One that can make virtual environments wins over one that cannot.
 * Returns {python} or {problem: {kind, what, fix}}.
 */
export function findPython(root, env = process.env) {
  const supported = supportedPythons(root);
  const found = [];
  for (const command of CANDIDATES) {
    const python = probePython(command, env);
    if (!python) continue;
    if (judgePython(python, supported) === "ok" && python.venv) return { python };
    found.push(python);
  }
  const usable = found.find((python) => judgePython(python, supported) === "ok");
  if (usable) return { python: usable };
  const fix = `Install one of them, or set SINKFLEX_PYTHON to one that has torch, then run the same command again.`;
  const nearest = found[0];
  if (!nearest) {
    const what = `${supported.text} is needed, and none of ${CANDIDATES.join(", ")} on PATH runs.`;
    return { problem: { kind: "missing", what, fix } };
  }
  const kind = judgePython(nearest, supported);
  const what = `${supported.text} is needed; \`${nearest.command}\` on PATH is ${nearest.version}, which is ${kind.replace("-", " ")}.`;
  return { problem: { kind, what, fix } };
}

/**
 * Runs `work` while holding `path`, a file with the holder's process id and host. `onWait` is called once, with that
 * id, when somebody else holds it. A lock whose process is gone, or whose file has not been touched for a minute, is
 * broken: the holder died or the machine did.
 */
export async function withLock(path, onWait, work) {
  mkdirSync(dirname(path), { recursive: true });
  for (let told = false; !take(path); ) {
    const holder = readHolder(path);
    if (holder && isStale(path, holder)) breakLock(path);
    else {
      if (holder && !told) onWait(holder.pid);
      told ||= holder !== null;
      await sleep(300);
    }
  }
  const beat = setInterval(() => touch(path), BEAT_MS);
  beat.unref();
  try {
    return await work();
  } finally {
    clearInterval(beat);
    if (readHolder(path)?.pid === process.pid) rmSync(path, { force: true });
  }
}

/** Whether nobody holds `path`: it is not there, or its holder is gone. */
export function isFree(path) {
  const holder = readHolder(path);
  return holder ? isStale(path, holder) : !existsSync(path);
}

function take(path) {
  try {
    writeFileSync(path, `${process.pid} ${hostname()}\n`, { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code === "EEXIST") return false;
    throw error;
  }
}

/** Null when the lock has just gone, or is so new that its text is not there yet. */
function readHolder(path) {
  try {
    const [pid, host] = readFileSync(path, "utf8").trim().split(" ");
    return { pid: Number(pid), host };
  } catch {
    return null;
  }
}

function isStale(path, holder) {
  if (holder.pid > 0 && holder.host === hostname() && !isAlive(holder.pid)) return true;
  return age(path) > SILENT_MS;
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

/** Only one process breaks a lock at a time, and it looks again first: a lock just taken anew is never removed. */
function breakLock(path) {
  const guard = `${path}.breaking`;
  try {
    mkdirSync(guard);
  } catch {
    if (age(guard) > GUARD_MS) rmSync(guard, { recursive: true, force: true });
    return;
  }
  try {
    const holder = readHolder(path);
    if (holder && isStale(path, holder)) rmSync(path, { force: true });
  } finally {
    rmSync(guard, { recursive: true, force: true });
  }
}

function age(path) {
  try {
    return Date.now() - statSync(path).mtimeMs;
  } catch {
    return 0;
  }
}

function touch(path) {
  const now = new Date();
  try {
    utimesSync(path, now, now);
  } catch {
    // The lock was broken by another process after this one had been asleep: nothing to keep alive any more.
  }
}
