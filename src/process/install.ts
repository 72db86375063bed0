/**
 * The installers' commands, pip and uv, and how they are run. Both read their own configuration (mirrors, wheel folders,
 * certificates); SinkFlex names no index.
 */
import { spawn, spawnSync } from "node:child_process";
import { appendFileSync, existsSync, mkdirSync, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import type { Report } from "./progress.js";

export interface Running {
  env: NodeJS.ProcessEnv;
  signal: AbortSignal;
  /** Every line of output, appended. */
  log: string;
  onLine?: (line: string) => void;
}

/** A step that ended with another status than 0. `tail` is what the program said last. */
export class StepFailed extends Error {
  constructor(
    readonly step: string,
    readonly tail: string,
  ) {
    super(`${step}: ${tail}`);
  }
}

export class Stopped extends Error {}

/** Runs a program to its end and returns its standard output. */
export async function runStep(step: string, command: string, args: string[], running: Running): Promise<string> {
  if (running.signal.aborted) throw new Stopped(step);
  appendFileSync(running.log, `$ ${command} ${args.join(" ")}\n`);
  const child = spawn(command, args, { env: running.env, stdio: ["ignore", "pipe", "pipe"] });
  const [out, err]: [string[], string[]] = [[], []];
  const follow = (stream: NodeJS.ReadableStream, lines: string[]) =>
    createInterface({ input: stream }).on("line", (line) => {
      lines.push(line);
      appendFileSync(running.log, `${line}\n`);
      running.onLine?.(line);
    });
  follow(child.stdout, out);
  follow(child.stderr, err);
  const stop = () => {
    child.kill("SIGTERM");
    setTimeout(() => child.kill("SIGKILL"), 3_000).unref();
  };
  running.signal.addEventListener("abort", stop);
  try {
    const status = await new Promise<number | null>((resolve, reject) => {
      child.on("error", reject);
      child.on("close", resolve);
      // A grandchild may hold the pipes open long after the program has gone: stopping does not wait for it.
      child.on("exit", (code) => running.signal.aborted && resolve(code));
    });
    if (running.signal.aborted) throw new Stopped(step);
    if (status !== 0) throw new StepFailed(step, lastWords(err.length > 0 ? err : out));
    return out.join("\n");
  } catch (error) {
    if (error instanceof Error && "code" in error) throw new StepFailed(step, error.message);
    throw error;
  } finally {
    running.signal.removeEventListener("abort", stop);
    child.stdout.destroy();
    child.stderr.destroy();
  }
}

/** The lines that an installer marks as its errors, or else the last one that says anything. */
function lastWords(lines: string[]): string {
  const said = lines.map((line) => line.trim()).filter((line) => line !== "");
  const errors = said.filter((line) => /^(ERROR|error|×)/.test(line));
  return (errors.length > 0 ? errors : said).slice(-2).join(" ") || "it said nothing";
}

export interface Installer {
  name: "pip" | "uv";
  command(args: string[]): [string, string[]];
}

export function pip(python: string): Installer {
  const options = ["--no-input", "--disable-pip-version-check", "--only-binary", ":all:", "--progress-bar", "off"];
  return { name: "pip", command: (args) => [python, ["-m", "pip", "install", ...options, ...args]] };
}

export function uv(program: string, python: string): Installer {
  const options = ["--python", python, "--only-binary", ":all:", "--compile-bytecode", "--no-progress"];
  return { name: "uv", command: (args) => [program, ["pip", "install", ...options, ...args]] };
}

export function onPath(program: string, env: NodeJS.ProcessEnv): string | null {
  const folders = (env.PATH ?? "").split(delimiter).filter((folder) => folder !== "");
  return folders.map((folder) => join(folder, program)).find((path) => existsSync(path)) ?? null;
}

/** Runs an installer and reports packages and megabytes as they come. Downloads go to a folder of the build's own. */
export async function metered(
  step: string,
  command: string,
  args: string[],
  folder: string,
  running: Running,
  report: Report,
) {
  const temporary = join(folder, "tmp");
  mkdirSync(temporary, { recursive: true });
  let [packages, bytes, unpacking] = [0, 0, false];
  const timer = setInterval(() => {
    bytes = Math.max(bytes, folderBytes(temporary));
    const size = bytes > 1e6 ? [`${sizeText(bytes)} fetched`] : [];
    const count = packages > 1 ? [`${packages} packages`] : [];
    report.detail([...count, ...size, ...(unpacking ? ["unpacking"] : [])].join(", "));
  }, 1_000);
  const env = { ...running.env, TMPDIR: temporary };
  const onLine = (line: string) => {
    if (/^(Collecting|Processing) /.test(line)) packages++;
    unpacking ||= line.startsWith("Installing collected packages");
  };
  try {
    await runStep(step, command, args, { ...running, env, onLine });
  } finally {
    clearInterval(timer);
  }
}

/** Bytes of the files right under a folder and its subfolders; 0 when it is not there. */
export function folderBytes(folder: string): number {
  const { status, stdout } = spawnSync("du", ["-sk", folder], { encoding: "utf8" });
  return status === 0 ? Number.parseInt(stdout, 10) * 1024 : existsSync(folder) ? statSync(folder).size : 0;
}

/** 191 MB, 1.2 GB: decimal, as download pages count. */
export function sizeText(bytes: number): string {
  return bytes < 1e9 ? `${Math.max(1, Math.round(bytes / 1e6))} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}
