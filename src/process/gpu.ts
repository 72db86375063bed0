/** What the NVIDIA driver says, asked without torch: torch is what is being checked against it. */
import { spawnSync } from "node:child_process";

export interface Gpu {
  names: string[];
  driver: string;
  /** The newest CUDA version that the driver runs. */
  cuda: string | null;
}

/** Null when there is no NVIDIA driver, when it sees no GPU, or when the user hides them all. */
export function readGpu(env: NodeJS.ProcessEnv = process.env): Gpu | null {
  if (env.CUDA_VISIBLE_DEVICES === "" || env.CUDA_VISIBLE_DEVICES === "-1") return null;
  const ask = (args: string[]) => spawnSync("nvidia-smi", args, { encoding: "utf8", env, timeout: 20_000 });
  const { status, stdout } = ask(["--query-gpu=name,driver_version", "--format=csv,noheader"]);
  if (status !== 0) return null;
  const rows = stdout.split("\n").map((line) => line.split(",").map((cell) => cell.trim()));
  const gpus = rows.filter((row) => row.length === 2 && row[0] !== "");
  if (gpus.length === 0) return null;
  const cuda = /CUDA(?: \w+)? Version\s*:\s*(\d+\.\d+)/.exec(ask([]).stdout ?? "")?.[1] ?? null;
  return { names: gpus.map((row) => row[0] ?? ""), driver: gpus[0]?.[1] ?? "", cuda };
}
