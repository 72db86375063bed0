/**
 * Builds the managed Python environment.
 *
 * Order: the locked packages (none of them needs torch), then torch, so that torch's own small dependencies are already
 * there and one call fetches one build of torch and nothing else. uv builds when it is on PATH, because it can choose
 * torch's build by the driver it finds; pip otherwise, or when uv cannot reach its index. Everything happens in
 * `env-<key>.building-<pid>`, which gets its real name when all of it is there and imports; whatever stops the build,
 * the half-built folder is removed, and a folder left by a killed build is removed by the next one.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type FoundPython, findPython } from "../../scripts/bootstrap.js";
import { UserError } from "../errors.js";
import type { ManagedEnvironment, Setting } from "./environment.js";
import {
  environmentFor,
  lockedPackages,
  lockPath,
  PACKAGE_ROOT,
  readyEnvironment,
  TOOLS_LOCK,
  toolsFor,
  WORKER_LOCKS,
} from "./environment.js";
import { fillFolder, needRoom } from "./folder.js";
import { folderBytes, type Installer, metered, onPath, pip, runStep, StepFailed, sizeText, uv } from "./install.js";
import type { Report } from "./progress.js";
import { type Fill, installTorchByPip, installTorchByUv } from "./torch.js";

/** What a person types to build it. */
const BUILD_COMMAND = "sinkflex doctor --fix";

/** What an environment with a CPU build takes while it is unpacked; 1.4 GB stay. */
const CPU_BUILD_BYTES = 2.5e9;

export interface BuildOptions extends Setting {
  report: Report;
  /** Build again although a complete environment is there: its torch does not fit the GPU. */
  again?: boolean;
  /** What the person typed, for "run ... again". */
  typed?: string;
}

/** The managed environment, built first when it is not there. */
export async function buildEnvironment(options: BuildOptions): Promise<ManagedEnvironment> {
  const { root = PACKAGE_ROOT, env = process.env, report, again = false, typed = BUILD_COMMAND } = options;
  const ready = readyEnvironment({ root, env });
  if (ready && !again) return ready;
  const base = pythonToBuildFrom(root, env);
  const look = () => environmentFor(base.minor, { root, env });
  await fillFolder({
    dir: look().dir,
    env,
    report,
    typed,
    async fill(folder, running) {
      if (look().record && !again) return false;
      const begun = Date.now();
      needRoom(dirname(folder), CPU_BUILD_BYTES);
      const fill = { root, base, folder, running, report };
      const installer = await installAll(fill, await makeFolder(fill));
      await confirm(fill, installer, begun);
      return true;
    },
  });
  const built = look();
  // What did not fit was of another Python version: it must not be found before the new one.
  if (ready && ready.dir !== built.dir) rmSync(ready.dir, { recursive: true, force: true });
  return built;
}

/** The folder with the checks' tools, for PYTHONPATH; installed by `python` first when it is not there. */
export async function buildTools(python: FoundPython, options: BuildOptions): Promise<string> {
  const { root = PACKAGE_ROOT, env = process.env, report } = options;
  const look = () => toolsFor(python.minor, { root, env });
  if (!look().complete) {
    await fillFolder({
      dir: look().dir,
      env,
      report,
      typed: options.typed ?? BUILD_COMMAND,
      async fill(folder, running) {
        if (look().complete) return false;
        report.stage(
          `Tools for the checks: ${lockedPackages(root, TOOLS_LOCK).length} packages from requirements/${TOOLS_LOCK}`,
        );
        const lock = ["-r", lockPath(root, TOOLS_LOCK)];
        const [command, args] = pip(python.path).command(["--no-deps", "--target", folder, ...lock]);
        await metered("installing the checks' tools", command, args, folder, running, report);
        rmSync(join(folder, "tmp"), { recursive: true, force: true });
        writeFileSync(join(folder, "complete.json"), "{}\n");
        return true;
      },
    });
  }
  return look().dir;
}

function pythonToBuildFrom(root: string, env: NodeJS.ProcessEnv): FoundPython {
  const { python, problem } = findPython(root, env);
  if (python) return python;
  const code = problem.kind === "missing" ? "SF-PYTHON-NOT-FOUND" : "SF-PYTHON-TOO-OLD";
  throw new UserError({ code, what: problem.what, fix: problem.fix });
}

/** The virtual environment itself. Returns the installer to begin with. */
async function makeFolder({ base, folder, running, report }: Fill): Promise<Installer> {
  const uvProgram = onPath("uv", running.env);
  report.stage(`Virtual environment from Python ${base.version} (${base.path})`);
  const python = join(folder, "bin", "python");
  if (base.venv) {
    await runStep("making the virtual environment", base.path, ["-m", "venv", "--clear", folder], running);
  } else if (uvProgram) {
    await runStep(
      "making the virtual environment",
      uvProgram,
      ["venv", "--clear", "--seed", "--python", base.path, folder],
      running,
    );
  } else {
    throw new UserError({
      code: "SF-ENV-BUILD-FAILED",
      what: `Python ${base.version} (${base.path}) cannot make virtual environments: its venv or ensurepip module is missing.`,
      fix: `Install it (on Debian and Ubuntu: apt install python3.${base.minor}-venv) or install uv, then run the same command again.`,
    });
  }
  mkdirSync(join(folder, "tmp"), { recursive: true });
  return uvProgram ? uv(uvProgram, python) : pip(python);
}

/** Everything, with uv where it was found and pip where uv could not. Returns the name of the installer that did it. */
async function installAll(fill: Fill, installer: Installer): Promise<Installer["name"]> {
  try {
    await installLocked(fill, installer);
    if (installer.name === "uv") await installTorchByUv(fill, installer);
    else await installTorchByPip(fill);
    return installer.name;
  } catch (error) {
    if (installer.name === "pip" || !(error instanceof StepFailed)) throw error;
    fill.report.end(false);
    fill.report.note(`uv could not do this (${error.tail}); pip takes over.`);
    return installAll(fill, pip(join(fill.folder, "bin", "python")));
  }
}

async function installLocked({ root, folder, running, report }: Fill, installer: Installer): Promise<void> {
  const count = WORKER_LOCKS.flatMap((name) => lockedPackages(root, name)).length;
  report.stage(`${count} packages from requirements/${WORKER_LOCKS.join(" and requirements/")}, by ${installer.name}`);
  const [command, args] = installer.command([
    "--no-deps",
    ...WORKER_LOCKS.flatMap((name) => ["-r", lockPath(root, name)]),
  ]);
  await metered("installing the packages", command, args, folder, running, report);
}

const CONFIRM =
  "import json, gymnasium, numpy, safetensors, tokenizers, torch; print(json.dumps([torch.__version__, torch.version.cuda]))";

/** Imports what was installed, and records it: only an environment that can be used is given its name. */
async function confirm({ folder, running, report, base }: Fill, installer: string, begun: number): Promise<void> {
  report.stage("Importing what was installed");
  const answer = await runStep("importing torch", join(folder, "bin", "python"), ["-c", CONFIRM], running);
  const [torch, cuda] = JSON.parse(answer.trim().split("\n").at(-1) ?? "") as [string, string | null];
  rmSync(join(folder, "tmp"), { recursive: true, force: true });
  const seconds = Math.round((Date.now() - begun) / 1000);
  const record = { python: base.version, torch, cuda, installer, seconds, bytes: folderBytes(folder) };
  writeFileSync(join(folder, "complete.json"), `${JSON.stringify(record, null, 2)}\n`);
  report.end(true);
  report.note(`Python environment: torch ${torch}, ${sizeText(record.bytes)} on disk, built in ${seconds} s.`);
}
