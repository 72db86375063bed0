/**
 * Which Python runs the worker, and in which environment variables.
 *
 * --python wins, then SINKFLEX_PYTHON, then the managed environment. A Python that the user names is used as it is and
 * never changed; it must be a supported version and have torch. The managed one is built by build.ts.
 */
import { delimiter, join } from "node:path";
import { type FoundPython, judgePython, probePython, supportedPythons } from "../../scripts/bootstrap.js";
import { UserError } from "../errors.js";
import { PACKAGE_ROOT, readyEnvironment } from "./environment.js";
import type { Report } from "./progress.js";

export interface ResolveOptions {
  /** --python */
  python?: string | undefined;
  /** Build a missing environment without asking. */
  yes: boolean;
  /** False with --no-input. */
  input: boolean;
  /** --json: no questions either, a script is reading. */
  json: boolean;
  env?: NodeJS.ProcessEnv;
  /** Where a build is told; stderr unless given. */
  report?: Report;
}

export interface ResolvedPython {
  path: string;
  source: "flag" | "SINKFLEX_PYTHON" | "managed";
}

const BUILD_QUESTION =
  "SinkFlex's Python environment is not there yet. Build it now? (PyTorch, transformers and what they need: a download of about 300 MB without an NVIDIA GPU, 3 GB with one, into your data directory)";

export async function resolvePython(options: ResolveOptions): Promise<ResolvedPython> {
  const env = options.env ?? process.env;
  if (options.python) return { path: named(options.python, "--python", env).path, source: "flag" };
  if (env.SINKFLEX_PYTHON) {
    return { path: named(env.SINKFLEX_PYTHON, "SINKFLEX_PYTHON", env).path, source: "SINKFLEX_PYTHON" };
  }
  const ready = readyEnvironment({ env });
  if (ready) return { path: ready.python, source: "managed" };
  if (!options.yes) await permission(options, env);
  const [{ buildEnvironment }, { reportTo }] = await Promise.all([import("./build.js"), import("./progress.js")]);
  const built = await buildEnvironment({ env, report: options.report ?? (await reportTo(process.stderr, env)) });
  return { path: built.python, source: "managed" };
}

/** Asks on a terminal; anywhere else the answer is the command to type. */
async function permission({ input, json }: ResolveOptions, env: NodeJS.ProcessEnv): Promise<void> {
  const missing = new UserError({
    code: "SF-ENV-MISSING",
    what: "SinkFlex's Python environment is not there yet.",
    fix: "Build it with `sinkflex doctor --fix`, or set SINKFLEX_PYTHON to a Python that has torch and transformers.",
  });
  if (!input || json || env.CI || !process.stdin.isTTY || !process.stderr.isTTY) throw missing;
  const { confirm } = await import("@inquirer/prompts");
  const yes = await confirm({ message: BUILD_QUESTION, default: true }, { output: process.stderr }).catch(
    (error: Error) => {
      if (error.name === "ExitPromptError") return false;
      throw error;
    },
  );
  if (!yes) throw missing;
}

/** A Python that the user named, checked. */
export function named(command: string, by: "--python" | "SINKFLEX_PYTHON", env: NodeJS.ProcessEnv): FoundPython {
  const python = probePython(command, env);
  if (!python) {
    throw new UserError({
      code: "SF-PYTHON-NOT-FOUND",
      what: `${by} names ${command}, and that does not run as a Python.`,
      fix: `Correct it, or leave ${by} out to use SinkFlex's own environment.`,
    });
  }
  const supported = supportedPythons(PACKAGE_ROOT);
  const verdict = judgePython(python, supported);
  if (verdict !== "ok") {
    throw new UserError({
      code: "SF-PYTHON-TOO-OLD",
      what: `${by} names Python ${python.version} (${python.path}), which is ${verdict.replace("-", " ")}: ${supported.text} is needed.`,
      fix: `Name another, or leave ${by} out to use SinkFlex's own environment.`,
    });
  }
  if (!python.torch) {
    throw new UserError({
      code: "SF-PYTHON-NO-TORCH",
      what: `${by} names ${python.path} (Python ${python.version}), which has no torch.`,
      fix: `Install it there: \`"${python.path}" -m pip install -r "${join(PACKAGE_ROOT, "requirements", "base.txt")}" -r "${join(PACKAGE_ROOT, "requirements", "torch.txt")}"\`; or leave ${by} out to use SinkFlex's own environment.`,
    });
  }
  return python;
}

/**
 * The worker's environment: the caller's, and what follows. Whatever the caller has set wins, except for PYTHONPATH and
 * NO_PROXY, which are added to.
 */
export function workerEnvironment(
  env: NodeJS.ProcessEnv = process.env,
  platform: NodeJS.Platform = process.platform,
): NodeJS.ProcessEnv {
  const defaults: NodeJS.ProcessEnv = {
    // Python buffers a pipe in blocks: without this, logs arrive when the worker ends.
    PYTHONUNBUFFERED: "1",
    // OpenMP threads that spin while they wait slow everything down as soon as another process wants the core. Spinning
    // for some microseconds only is cheap then (GNU's runtime, whose word this is, before it heeds the policy), and
    // without it a second thread gains nothing: SmolLM2-135M's update took 18.6 s with one thread, 16.9 with two that
    // never spin, 12.2 with two that do so shortly or forever.
    OMP_WAIT_POLICY: "passive",
    ...(env.OMP_WAIT_POLICY === undefined ? { GOMP_SPINCOUNT: "5000" } : {}),
    // The tokenizer is used from one thread, and its own threads warn when the process forks.
    TOKENIZERS_PARALLELISM: "false",
  };
  if (platform === "linux") {
    // glibc gives every large block back to the system at once and pays page faults to get it again; a training step
    // allocates the same large blocks over and over. Keeping them took a measured step from 4.1 to 3.2 s.
    defaults.MALLOC_MMAP_THRESHOLD_ = "4294967296";
    defaults.MALLOC_TRIM_THRESHOLD_ = "4294967296";
    defaults.MALLOC_TOP_PAD_ = "67108864";
  }
  // Calls to this machine (an engine, an environment server) must not go to a proxy that knows nothing of it. Libraries
  // differ in which spelling they read.
  const direct = withLoopback(env.no_proxy ?? env.NO_PROXY ?? "");
  return {
    ...defaults,
    ...env,
    // The package from this checkout, before one that happens to be installed.
    PYTHONPATH: [join(PACKAGE_ROOT, "python"), env.PYTHONPATH].filter(Boolean).join(delimiter),
    NO_PROXY: direct,
    no_proxy: direct,
  };
}

function withLoopback(list: string): string {
  const hosts = list.split(",").map((host) => host.trim());
  const missing = ["localhost", "127.0.0.1", "::1"].filter((host) => !hosts.includes(host) && !hosts.includes("*"));
  return [...hosts.filter((host) => host !== ""), ...missing].join(",");
}
