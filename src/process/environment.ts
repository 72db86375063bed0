/**
 * Where the managed Python environment lives, and whether it is there.
 *
 * An environment is a folder in the user's data directory, `env-<key>`. The key is a hash of the lock files, the Python
 * minor version and the platform, so another lock is another folder and a stale one is never used by mistake. The folder
 * appears by one rename when everything in it is installed and has been imported (build.ts); `complete.json` inside is
 * the record of that. What only the checks need (pytest, mypy, ruff) is a second folder, `tools-<key>`, put on the path
 * in front of the environment, so that the torch in it is never installed twice.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { supportedPythons } from "../../scripts/bootstrap.js";

/** The folder that has package.json, python/ and requirements/. The same from src/process and from dist/process. */
export const PACKAGE_ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

export const TORCH_LOCK = "torch.txt";
export const WORKER_LOCKS = ["base.txt", "tau2.txt"] as const;
export const TOOLS_LOCK = "dev.txt";

export interface EnvironmentRecord {
  python: string;
  torch: string;
  /** The CUDA version that torch was built for; null in a CPU build. */
  cuda: string | null;
  installer: string;
  seconds: number;
  bytes: number;
}

export interface ManagedEnvironment {
  dir: string;
  /** The interpreter inside it. */
  python: string;
  /** Null until the folder is complete. */
  record: EnvironmentRecord | null;
}

export interface Setting {
  root?: string;
  env?: NodeJS.ProcessEnv;
}

/** The user's data directory for SinkFlex. */
export function dataDir(env: NodeJS.ProcessEnv = process.env, platform: NodeJS.Platform = process.platform): string {
  if (env.SINKFLEX_DATA_DIR) return resolve(env.SINKFLEX_DATA_DIR);
  const home = env.HOME || homedir();
  if (platform === "darwin") return join(home, "Library", "Application Support", "sinkflex");
  return join(env.XDG_DATA_HOME || join(home, ".local", "share"), "sinkflex");
}

export function lockPath(root: string, name: string): string {
  return join(root, "requirements", name);
}

/** The names pinned in a lock file. */
export function lockedPackages(root: string, name: string): string[] {
  const lines = readFileSync(lockPath(root, name), "utf8").split("\n");
  return lines.map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
}

function key(root: string, locks: readonly string[], minor: number): string {
  const hash = createHash("sha256").update(`3.${minor} ${process.platform} ${process.arch}\n`);
  for (const name of locks) hash.update(lockedPackages(root, name).join("\n")).update("\n");
  return hash.digest("hex").slice(0, 16);
}

/** The environment that the lock files ask for on Python 3.`minor`, there or not. */
export function environmentFor(
  minor: number,
  { root = PACKAGE_ROOT, env = process.env }: Setting = {},
): ManagedEnvironment {
  const dir = join(dataDir(env), `env-${key(root, [TORCH_LOCK, ...WORKER_LOCKS], minor)}`);
  const python = join(dir, "bin", "python");
  return { dir, python, record: existsSync(python) ? readRecord(dir) : null };
}

/** The complete environment of the newest Python, or null. Starts no process. */
export function readyEnvironment(setting: Setting = {}): ManagedEnvironment | null {
  const { oldest, newest } = supportedPythons(setting.root ?? PACKAGE_ROOT);
  for (let minor = newest; minor >= oldest; minor--) {
    const found = environmentFor(minor, setting);
    if (found.record) return found;
  }
  return null;
}

/** The folder with the checks' own tools for Python 3.`minor`, and whether it is complete. */
export function toolsFor(minor: number, { root = PACKAGE_ROOT, env = process.env }: Setting = {}) {
  const dir = join(dataDir(env), `tools-${key(root, [TOOLS_LOCK], minor)}`);
  return { dir, complete: existsSync(join(dir, "complete.json")) };
}

function readRecord(dir: string): EnvironmentRecord | null {
  try {
    return JSON.parse(readFileSync(join(dir, "complete.json"), "utf8")) as EnvironmentRecord;
  } catch {
    return null;
  }
}
