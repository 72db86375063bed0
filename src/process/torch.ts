/**
 * torch, the one large package: which build comes, how large it is, and where from.
 *
 * With a GPU the CUDA build is wanted, without one the CPU build, and only one is ever fetched. uv chooses by itself.
 * pip takes the first that its own configuration finds; it is asked before it begins. If that is a CUDA build of several
 * gigabytes and there is no GPU, uv is fetched to look for a CPU build, and only then the CUDA build is announced and
 * taken. SINKFLEX_TORCH_INDEX reaches the call that installs torch through the installer's environment, never through its
 * arguments: an index address may hold a password, and arguments can be read by every user of the machine.
 */
import { dirname, join } from "node:path";
import type { FoundPython } from "../../scripts/bootstrap.js";
import { lockPath, TORCH_LOCK } from "./environment.js";
import { needRoom } from "./folder.js";
import { readGpu } from "./gpu.js";
import { type Installer, metered, pip, type Running, runStep, StepFailed, sizeText, uv } from "./install.js";
import type { Report } from "./progress.js";

/** An environment being filled. */
export interface Fill {
  root: string;
  base: FoundPython;
  folder: string;
  running: Running;
  report: Report;
}

/** torch alone: its own dependencies are installed, and base.txt as a constraint keeps them as they are. */
function torchArguments(root: string): string[] {
  return ["-r", lockPath(root, TORCH_LOCK), "-c", lockPath(root, "base.txt")];
}

export async function installTorchByUv({ root, folder, running, report }: Fill, installer: Installer): Promise<void> {
  const env = torchEnvironment(running.env);
  const choice = env.SINKFLEX_TORCH_INDEX ? [] : ["--torch-backend", readGpu(running.env) ? "auto" : "cpu"];
  report.stage(`torch, by uv (${env.SINKFLEX_TORCH_INDEX ? "from SINKFLEX_TORCH_INDEX" : `build: ${choice[1]}`})`);
  const [command, args] = installer.command([...choice, ...torchArguments(root)]);
  await metered("installing torch", command, args, folder, { ...running, env }, report);
}

export async function installTorchByPip(fill: Fill): Promise<void> {
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

/** The environment of the one call that fetches torch. */
function torchEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const index = env.SINKFLEX_TORCH_INDEX;
  return index ? { ...env, PIP_INDEX_URL: index, UV_DEFAULT_INDEX: index } : env;
}

interface TorchPlan {
  version: string;
  cuda: boolean;
  packages: number;
  /** Null when a server does not tell. */
  bytes: number | null;
}

const SIZES = `
import json, os, sys, urllib.parse, urllib.request
from concurrent.futures import ThreadPoolExecutor
def size(url):
    if url.startswith("file:"):
        return os.path.getsize(urllib.request.url2pathname(urllib.parse.urlparse(url).path))
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=5) as reply:
        return int(reply.headers["Content-Length"])
try:
    print(json.dumps(sum(ThreadPoolExecutor(8).map(size, sys.argv[1:]))))
except Exception:
    print("null")
`;

/** Asks pip which build of torch it would take, and the servers how large it is, before anything is fetched. */
async function planTorch(python: string, args: string[], running: Running): Promise<TorchPlan> {
  const [command, list] = pip(python).command(["--dry-run", "--quiet", "--report", "-", ...args]);
  const report = JSON.parse(await runStep("asking pip which build of torch it would take", command, list, running)) as {
    install: { metadata: { name: string; version: string }; download_info: { url: string } }[];
  };
  const torch = report.install.find(({ metadata }) => metadata.name === "torch");
  const urls = report.install.map(({ download_info }) => download_info.url);
  const sizes = await runStep("asking for the size of torch", python, ["-c", SIZES, ...urls], running);
  return {
    version: torch?.metadata.version ?? "already installed",
    cuda: report.install.some(({ metadata }) => /^(nvidia|cuda)-/.test(metadata.name)),
    packages: urls.length,
    bytes: JSON.parse(sizes) as number | null,
  };
}
