/**
 * A run on disk: `<root>/<name>-<YYYYMMDD-HHMMSS>[-n]/` with config.yaml (verbatim), run.json, events.jsonl,
 * stderr.log, checkpoints/, episodes/ and summary.json, and `<root>/latest`, a link to the newest.
 *
 * Every file that is replaced is written beside and renamed, so a reader never sees half of one.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path";
import { nearest, UserError } from "../errors.js";
import { replaceFile, whyNot } from "./whole.js";

const LATEST = "latest";

/** run.json: what the worker is started with. src/config/schema.ts has checked `config`. */
export interface RunFile {
  v: 1;
  verb: "train";
  run: string;
  run_dir: string;
  config_file: string;
  config_sha256: string;
  attempt: number;
  resume: { checkpoint: string; step: number } | null;
  config: Record<string, unknown>;
  /** Where the model's transformers folder is; null for one that is built from the seed, absent in runs of old. */
  model_folder?: string | null;
}

export const FILES = {
  config: "config.yaml",
  run: "run.json",
  events: "events.jsonl",
  log: "stderr.log",
  summary: "summary.json",
  checkpoints: "checkpoints",
  episodes: "episodes",
} as const;

export function defaultRoot(): string {
  return resolve("runs");
}

/** A run directory as a person would type it here. */
export function shownPath(dir: string): string {
  const here = relative(process.cwd(), dir);
  return here === "" || here.startsWith("..") ? dir : here;
}

/** What to add to a command so that it finds the run again: nothing where it is looked for anyway. */
export function runOptions(dir: string): string {
  const root = dirname(dir);
  return root === defaultRoot() ? "" : ` --runs ${shellWord(root)}`;
}

/** A word of a command as a shell takes it. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The name of a run that starts now; local time, because people read it. */
export function runName(name: string, now: Date): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${now.getFullYear()}${two(now.getMonth() + 1)}${two(now.getDate())}`;
  return `${name}-${day}-${two(now.getHours())}${two(now.getMinutes())}${two(now.getSeconds())}`;
}

/** Creates the directory of a new run. Starts in the same second get -2, -3: the directory is created exclusively. */
export function createRun(root: string, name: string, now: Date): string {
  const first = join(root, runName(name, now));
  return orCannotWrite(root, () => {
    mkdirSync(root, { recursive: true });
    for (let n = 1; ; n++) {
      const dir = n === 1 ? first : `${first}-${n}`;
      try {
        mkdirSync(dir);
        return dir;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      }
    }
  });
}

/** `path`, or the first of `path-2`, `path-3` that is free. */
export function freeFolder(path: string): string {
  for (let n = 1; ; n++) if (!existsSync(n === 1 ? path : `${path}-${n}`)) return n === 1 ? path : `${path}-${n}`;
}

export function writeWhole(path: string, content: string | Uint8Array): void {
  orCannotWrite(path, () => replaceFile(path, content));
}

export function writeJson(path: string, value: unknown): void {
  writeWhole(path, `${JSON.stringify(value, null, 2)}\n`);
}

/** Points `<root>/latest` at a run, in one rename. False where links are not possible; the run itself is unharmed. */
export function pointLatest(root: string, dir: string): boolean {
  const draft = join(root, `.latest-${process.pid}`);
  try {
    rmSync(draft, { force: true });
    symlinkSync(basename(dir), draft);
    renameSync(draft, join(root, LATEST));
    return true;
  } catch {
    rmSync(draft, { force: true });
    return false;
  }
}

/** The directories under `root` that are runs, newest first by name's time, then by name. */
export function listRuns(root: string): string[] {
  if (!existsSync(root)) return [];
  const when = (name: string) => /-(\d{8}-\d{6})(?:-(\d+))?$/.exec(name);
  const key = (name: string) => `${when(name)?.[1] ?? ""}-${(when(name)?.[2] ?? "1").padStart(6, "0")}`;
  return readdirSync(root, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && existsSync(join(root, entry.name, FILES.run)))
    .map((entry) => entry.name)
    .sort((a, b) => (key(a) === key(b) ? (a < b ? -1 : 1) : key(a) < key(b) ? 1 : -1))
    .map((name) => join(root, name));
}

/** The directory of a run named by name, path or `latest`. */
export function findRun(root: string, run: string): string {
  const inRoot = join(root, run);
  for (const dir of isAbsolute(run) ? [run] : [inRoot, resolve(run)]) {
    if (existsSync(join(dir, FILES.run))) return realDir(root, dir);
    if (existsSync(dir)) {
      throw new UserError({
        code: "SF-RUN-NOT-A-RUN",
        what: `${dir} is not a run: it has no ${FILES.run}.`,
        fix: "`sinkflex runs list` shows the runs. A run directory is written by `sinkflex train`.",
      });
    }
  }
  const names = listRuns(root).map((dir) => basename(dir));
  const guess = nearest(run, names.length > 0 ? [LATEST, ...names] : names);
  const fix =
    names.length === 0
      ? "Start one with `sinkflex train configs/quickstart.yaml`."
      : "`sinkflex runs list` shows the runs.";
  throw new UserError({
    code: "SF-RUN-NOT-FOUND",
    what: run === LATEST ? `There is no run in ${root} yet.` : `There is no run \`${run}\` in ${root}.`,
    fix: `${guess === undefined ? "" : `Did you mean \`${guess}\`? `}${fix} Runs elsewhere are found with --runs DIR.`,
  });
}

/** `latest` as the directory it points to, so that messages name the run. */
function realDir(root: string, dir: string): string {
  if (basename(dir) !== LATEST) return dir;
  const id = readJson<{ run?: unknown }>(join(dir, FILES.run))?.run;
  return typeof id === "string" && existsSync(join(root, id, FILES.run)) ? join(root, id) : dir;
}

export function readJson<T>(path: string): T | null {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as T;
  } catch {
    return null;
  }
}

export function readRun(dir: string): RunFile {
  const file = readJson<RunFile>(join(dir, FILES.run));
  if (file?.v === 1 && typeof file.run === "string" && typeof file.config === "object" && file.config !== null)
    return file;
  throw new UserError({
    code: "SF-RUN-NOT-A-RUN",
    what: `${join(dir, FILES.run)} can't be read as a run of this version.`,
    why: file === null ? "It is missing or not JSON." : `It says v ${JSON.stringify(file.v)}; this version reads v 1.`,
    fix: "`sinkflex runs list` shows the runs.",
  });
}

/** The checkpoint with the highest step; names are compared as numbers, and drafts (other names) are passed over. */
export function lastCheckpoint(dir: string): { checkpoint: string; step: number } | null {
  const parent = join(dir, FILES.checkpoints);
  if (!existsSync(parent)) return null;
  const steps = readdirSync(parent)
    .map((name) => /^step-(\d+)$/.exec(name))
    .filter((match) => match !== null)
    .map((match) => ({ checkpoint: join(parent, match[0]), step: Number(match[1]) }));
  return steps.sort((a, b) => b.step - a.step)[0] ?? null;
}

export function cannotWrite(path: string, cause: unknown, left?: string): UserError {
  const code = (cause as NodeJS.ErrnoException).code ?? "";
  const fix =
    code === "ENOSPC" || code === "EDQUOT"
      ? "Free some space, or keep the runs on another disk with --runs DIR."
      : "Choose another directory with --runs DIR.";
  const why = whyNot(cause);
  return new UserError(
    { code: "SF-RUN-CANNOT-WRITE", what: `Can't write ${path}.`, why, fix },
    { cause, ...(left === undefined ? {} : { left }) },
  );
}

function orCannotWrite<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    throw error instanceof UserError ? error : cannotWrite(path, error);
  }
}
