/**
 * Builds the managed Python environment.
 *
 * Order: the locked packages (none of them needs torch), then torch, so that torch's own small dependencies are already
 * there and one call fetches one build of torch and nothing else. uv builds when it is on PATH, because it can choose
 * torch's build by the driver it finds; pip otherwise, or when uv cannot reach its index. Everything happens in
 * `env-<key>.building-<pid>`, which gets its real name when all of it is there and imports; whatever stops the build,
 * the half-built folder is removed, and a folder left by a killed build is removed by the next one.
 */
import { mkdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type FoundPython, findPython } from "../../scripts/bootstrap.js";
import { UserError } from "../errors.js";
import type { ManagedEnvironment, Setting } from "./environment.js";
import {
  environmentFor,
  lockedPackages,
  lockPath,
  PACKAGE_ROOT,
  TOOLS_LOCK,
  TORCH_LOCK,
  toolsFor,
  WORKER_LOCKS,
} from "./environment.js";
import { fillFolder } from "./folder.js";
import { readGpu } from "./gpu.js";
import type { Installer, Running } from "./install.js";
import { folderBytes, onPath, pip, planTorch, runStep, StepFailed, sizeText, torchEnvironment, uv } from "./install.js";
import type { Report } from "./progress.js";

/** What a person types to build it. */
export const BUILD_COMMAND = "sinkflex doctor --fix";

/** What an environment with a CPU build takes while it is unpacked; 1.4 GB stay. */
export const CPU_BUILD_BYTES = 2.5e9;

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
  const base = pythonToBuildFrom(root, env);
  const look = () => environmentFor(base.minor, { root, env });
  if (!look().record || again) {
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
  }
  return look();
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

interface Fill {
  root: string;
  base: FoundPython;
  folder: string;
  running: Running;
  report: Report;
}

function needRoom(dir: string, bytes: number): void {
  const { bavail, bsize } = statfsSync(dir);
  if (bavail * bsize >= bytes) return;
  throw new UserError({
    code: "SF-ENV-BUILD-FAILED",
    what: `The Python environment needs about ${sizeText(bytes)} in ${dir}, and ${sizeText(bavail * bsize)} are free.`,
    fix: "Make room there, or set SINKFLEX_DATA_DIR to a folder on a larger disk.",
  });
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

/** torch alone: its own dependencies are installed, and base.txt as a constraint keeps them as they are. */
function torchArguments(root: string): string[] {
  return ["-r", lockPath(root, TORCH_LOCK), "-c", lockPath(root, "base.txt")];
}

async function installTorchByUv({ root, folder, running, report }: Fill, installer: Installer): Promise<void> {
  const env = torchEnvironment(running.env);
  const choice = env.SINKFLEX_TORCH_INDEX ? [] : ["--torch-backend", readGpu(running.env) ? "auto" : "cpu"];
  report.stage(`torch, by uv (${env.SINKFLEX_TORCH_INDEX ? "from SINKFLEX_TORCH_INDEX" : `build: ${choice[1]}`})`);
  const [command, args] = installer.command([...choice, ...torchArguments(root)]);
  await metered("installing torch", command, args, folder, { ...running, env }, report);
}

async function installTorchByPip(fill: Fill): Promise<void> {
  const { root, folder, report } = fill;
  const running = { ...fill.running, env: torchEnvironment(fill.running.env) };
  const python = join(folder, "bin", "python");
  report.stage("torch: asking pip which build it would take");
  const plan = await planTorch(python, torchArguments(root), running);
  const size = plan.bytes === null ? "size not known" : sizeText(plan.bytes);
  const gpu = readGpu(running.env);
  if (plan.cuda && !gpu && !running.env.SINKFLEX_TORCH_INDEX) {
    report.note(`No NVIDIA GPU here, but pip would take the CUDA build of torch: ${plan.packages} packages, ${size}.`);
    if (await installCpuTorchByFetchedUv(fill)) return;
    report.note(
      `Only the CUDA build can be had, so that is what comes now: ${size} to download. Ctrl-C stops it; SINKFLEX_TORCH_INDEX names an index with a CPU build.`,
    );
  } else if (gpu && !plan.cuda && process.platform === "linux") {
    report.note(
      `There is a GPU (${gpu.names[0]}), but pip finds the CPU build of torch ${plan.version} first; SINKFLEX_TORCH_INDEX names an index with a CUDA build.`,
    );
  }
  // A CUDA build unpacks to almost three times its download, which lies beside it meanwhile.
  if (plan.cuda) needRoom(dirname(folder), 4 * (plan.bytes ?? 2.7e9));
  report.stage(`torch ${plan.version}, ${plan.cuda ? "CUDA" : "CPU"} build, ${size}, by pip`);
  const [command, args] = pip(python).command(torchArguments(root));
  await metered("installing torch", command, args, folder, running, report);
}

/** uv knows where CPU builds are and pip does not: fetch uv (a small package), use it once, and leave it behind. */
async function installCpuTorchByFetchedUv(fill: Fill): Promise<boolean> {
  const { folder, running, report } = fill;
  const python = join(folder, "bin", "python");
  const aside = join(folder, "tmp", "uv");
  try {
    report.stage("uv, which can choose a CPU build of torch");
    const [command, args] = pip(python).command(["--no-deps", "--target", aside, "uv"]);
    await metered("fetching uv", command, args, folder, running, report);
    await installTorchByUv(fill, uv(join(aside, "bin", "uv"), python));
    return true;
  } catch (error) {
    if (!(error instanceof StepFailed)) throw error;
    report.end(false);
    report.note(`uv could not reach a CPU build (${error.tail}).`);
    return false;
  }
}

/** Runs an installer and reports packages and megabytes as they come. Downloads go to a folder of the build's own. */
async function metered(
  step: string,
  command: string,
  args: string[],
  folder: string,
  running: Running,
  report: Report,
) {
  const temporary = join(folder, "tmp");
  mkdirSync(temporary, { recursive: true });
  let [packages, bytes] = [0, 0];
  const timer = setInterval(() => {
    bytes = Math.max(bytes, folderBytes(temporary));
    report.detail(
      [packages > 0 ? `${packages} packages` : "", bytes > 1e6 ? `${sizeText(bytes)} fetched` : ""]
        .filter(Boolean)
        .join(", "),
    );
  }, 1_000);
  const env = { ...running.env, TMPDIR: temporary };
  const onLine = (line: string) => {
    if (/^(Collecting|Processing) /.test(line)) packages++;
  };
  try {
    await runStep(step, command, args, { ...running, env, onLine });
  } finally {
    clearInterval(timer);
  }
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
