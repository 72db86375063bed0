/** Gathers what `sinkflex doctor` judges (checks.ts): from Node, the driver, the disk and the Python that would be used. */
import { execFile } from "node:child_process";
import { existsSync, readFileSync, statfsSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { type FoundPython, findPython, supportedPythons } from "../../scripts/bootstrap.js";
import { type Problem, UserError } from "../errors.js";
import { dataDir, PACKAGE_ROOT, readyEnvironment } from "./environment.js";
import { type Gpu, readGpu } from "./gpu.js";
import { named, type ResolvedPython, workerEnvironment } from "./python.js";

/** One part of what python/sinkflex/probe.py answers. */
export interface Part {
  error?: string;
  version?: string;
}

export interface Probe {
  python: string;
  torch: Part & { cuda?: string | null; cuda_available?: boolean; cuda_error?: string | null };
  transformers: Part;
  gymnasium: Part;
  triton: Part;
  tau2: Part;
  parity: Part & { difference?: number };
}

export interface Facts {
  platform: NodeJS.Platform;
  node: string;
  /** The oldest Node that is supported. */
  nodeNeeded: string;
  pythonNeeded: string;
  /** The Python that would run the worker. */
  python: (ResolvedPython & { version: string }) | null;
  /** Why there is none, or why it cannot be used. */
  problem: Problem | null;
  /** The Python on PATH that an environment would be built from, when there is none yet. */
  base: FoundPython | null;
  probe: Probe | null;
  probeError: string | null;
  gpu: Gpu | null;
  dataDir: string;
  freeBytes: number;
}

export async function gatherFacts(flag: string | undefined, env: NodeJS.ProcessEnv = process.env): Promise<Facts> {
  const { python, problem, base } = choosePython(flag, env);
  const { probe, probeError } = python ? await ask(python.path, env) : { probe: null, probeError: null };
  const engines = JSON.parse(readFileSync(join(PACKAGE_ROOT, "package.json"), "utf8")).engines.node as string;
  return {
    platform: process.platform,
    node: process.versions.node,
    nodeNeeded: engines.replace(/^>=/, ""),
    pythonNeeded: supportedPythons(PACKAGE_ROOT).text,
    python,
    problem,
    base,
    probe,
    probeError,
    gpu: readGpu(env),
    dataDir: dataDir(env),
    freeBytes: freeBytes(dataDir(env)),
  };
}

function choosePython(flag: string | undefined, env: NodeJS.ProcessEnv): Pick<Facts, "python" | "problem" | "base"> {
  const [command, source] = flag ? ([flag, "flag"] as const) : ([env.SINKFLEX_PYTHON, "SINKFLEX_PYTHON"] as const);
  if (command) {
    try {
      const { path, version } = named(command, source === "flag" ? "--python" : source, env);
      return { python: { path, source, version }, problem: null, base: null };
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      return { python: null, problem: error.problems[0] ?? null, base: null };
    }
  }
  const ready = readyEnvironment({ env });
  if (ready?.record) {
    return {
      python: { path: ready.python, source: "managed", version: ready.record.python },
      problem: null,
      base: null,
    };
  }
  const { python, problem } = findPython(PACKAGE_ROOT, env);
  const code = problem?.kind === "missing" ? "SF-PYTHON-NOT-FOUND" : "SF-PYTHON-TOO-OLD";
  return {
    python: null,
    problem: problem ? { code, what: problem.what, fix: problem.fix } : null,
    base: python ?? null,
  };
}

async function ask(python: string, env: NodeJS.ProcessEnv): Promise<Pick<Facts, "probe" | "probeError">> {
  try {
    const options = { env: workerEnvironment(env), timeout: 300_000, maxBuffer: 1 << 26 };
    const { stdout } = await promisify(execFile)(python, ["-P", "-m", "sinkflex.probe"], options);
    return { probe: JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as Probe, probeError: null };
  } catch (error) {
    const said = error instanceof Error && "stderr" in error ? String(error.stderr).trim().split("\n").at(-1) : "";
    return { probe: null, probeError: said || String(error) };
  }
}

/** Of the disk that holds the folder, or will hold it. */
function freeBytes(folder: string): number {
  let place = folder;
  while (!existsSync(place)) place = dirname(place);
  const { bavail, bsize } = statfsSync(place);
  return bavail * bsize;
}
