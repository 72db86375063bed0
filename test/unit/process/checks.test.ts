import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Check, judge, needsRebuild } from "../../../src/process/checks.js";
import type { Facts, Probe } from "../../../src/process/facts.js";
import { readGpu } from "../../../src/process/gpu.js";
import { bareMachine } from "../../fixtures/machine.js";

const H200 = { names: ["NVIDIA H200"], driver: "580.95.05", cuda: "13.0" };

const PROBE: Probe = {
  python: "3.11.7",
  torch: { version: "2.13.0+cpu", cuda: null, cuda_available: false, cuda_error: null },
  transformers: { version: "5.24.0" },
  gymnasium: { version: "1.4.0" },
  triton: { error: "not installed" },
  tau2: { version: "26.3" },
  parity: { difference: 3.5e-15 },
};

const LAPTOP: Facts = {
  platform: "linux",
  node: "20.20.2",
  nodeNeeded: "20.19",
  pythonNeeded: "Python 3.11 to 3.13",
  python: { path: "/data/env-1/bin/python", source: "managed", version: "3.11.7" },
  problem: null,
  base: null,
  probe: PROBE,
  probeError: null,
  gpu: null,
  dataDir: "/data",
  freeBytes: 80e9,
};

function check(id: Check["id"], facts: Partial<Facts>): Check {
  const found = judge({ ...LAPTOP, ...facts }).find((one) => one.id === id);
  if (!found) throw new Error(`no check called ${id}`);
  return found;
}

const withTorch = (torch: Probe["torch"], gpu: Facts["gpu"]): Partial<Facts> => ({ probe: { ...PROBE, torch }, gpu });

describe("a laptop without a GPU", () => {
  it("is ready, and is told that training runs on the CPU", () => {
    expect(judge(LAPTOP).filter(({ status }) => status !== "ok")).toEqual([]);
    expect(check("gpu", {}).detail).toBe("none seen by nvidia-smi: training runs on the CPU");
    expect(check("torch", {}).detail).toBe("2.13.0+cpu, CPU build");
  });
});

describe("B125 a torch that does not fit the machine", () => {
  it("B125 CPU build beside a GPU: fails, names both, and gives one command", () => {
    const facts = withTorch({ version: "2.13.0+cpu", cuda: null, cuda_available: false }, H200);
    expect(check("torch", facts)).toEqual({
      id: "torch",
      status: "fail",
      detail: "2.13.0+cpu, CPU build, but the driver sees a GPU (NVIDIA H200): torch cannot use it",
      fix: "SINKFLEX_TORCH_INDEX=<index of torch built for CUDA 13.0 or older> sinkflex doctor --fix",
    });
    expect(check("gpu", facts).status).toBe("fail");
    expect(needsRebuild({ ...LAPTOP, ...facts })).toBe(true);
  });

  it("B125 torch built for a newer CUDA than the driver's: both versions are named", () => {
    const torch = { version: "2.13.0", cuda: "13.0", cuda_available: false, cuda_error: "driver too old" };
    const facts = withTorch(torch, { names: ["NVIDIA A10"], driver: "550.54.15", cuda: "12.4" });
    expect(check("torch", facts)).toMatchObject({
      status: "fail",
      detail: "2.13.0 needs CUDA 13.0; driver 550.54.15 runs CUDA up to 12.4",
    });
    expect(check("torch", facts).fix).toContain("Update the NVIDIA driver");
    expect(check("gpu", facts).detail).toContain("torch does not reach it: driver too old");
  });

  it("B125 a newer minor version of the same CUDA runs on the driver", () => {
    const facts = withTorch({ version: "2.13.0", cuda: "13.1", cuda_available: true }, H200);
    expect(check("torch", facts)).toMatchObject({ status: "ok", detail: "2.13.0, built for CUDA 13.1" });
    expect(check("gpu", facts).status).toBe("ok");
  });

  it("B125 Python 3.9 fails with its version", () => {
    const problem = {
      code: "SF-PYTHON-TOO-OLD" as const,
      what: "Python 3.11 to 3.13 is needed; `python3` on PATH is 3.9.18, which is too old.",
      fix: "Install one of them.",
    };
    const facts = { python: null, probe: null, problem };
    expect(check("python", facts)).toEqual({ id: "python", status: "fail", detail: problem.what, fix: problem.fix });
    expect(check("environment", facts).status).toBe("fail");
  });

  it("B125 a fitting environment is not built again on every run", () => {
    expect(needsRebuild(LAPTOP)).toBe(false);
    const cuda = withTorch({ version: "2.13.0", cuda: "13.0", cuda_available: true }, H200);
    expect(needsRebuild({ ...LAPTOP, ...cuda })).toBe(false);
    expect(needsRebuild({ ...LAPTOP, freeBytes: 1 })).toBe(false);
  });

  it("B125 a Python that the user named is advised about, never rebuilt", () => {
    const python = { path: "/my env/bin/python", source: "SINKFLEX_PYTHON" as const, version: "3.12.1" };
    const facts = { ...LAPTOP, ...withTorch({ version: "2.13.0+cpu", cuda: null }, H200), python };
    expect(needsRebuild(facts)).toBe(false);
    expect(check("torch", facts).fix).toContain('"/my env/bin/python" -m pip install --force-reinstall');
  });
});

describe("what else can be missing", () => {
  it("the environment: one command builds it, and what depends on it is not called broken", () => {
    const base = { command: "python3", path: "/usr/bin/python3", major: 3, minor: 11, micro: 2, version: "3.11.2" };
    const facts = { python: null, probe: null, base: { ...base, venv: true, torch: false } };
    expect(check("environment", facts)).toMatchObject({ status: "fail", fix: "sinkflex doctor --fix" });
    expect(check("python", facts)).toMatchObject({ status: "ok" });
    for (const id of ["torch", "kernels", "tau2", "triton"] as const) expect(check(id, facts).status).toBe("warn");
  });

  it("an environment whose Python dies", () => {
    const facts = { probe: null, probeError: "SyntaxError: invalid syntax" };
    expect(check("environment", facts)).toMatchObject({ status: "fail", fix: "sinkflex doctor --fix" });
    expect(check("environment", facts).detail).toContain("SyntaxError: invalid syntax");
  });

  it("a torch that is too old, by numbers and not by letters", () => {
    expect(check("torch", withTorch({ version: "2.9.1", cuda: null }, null)).status).toBe("fail");
    expect(check("torch", withTorch({ version: "2.11.0a0+git1", cuda: null }, null)).status).toBe("ok");
  });

  it("Node", () => {
    expect(check("node", { node: "20.18.3" })).toMatchObject({
      status: "fail",
      detail: "20.18.3 is too old: 20.19 or newer is needed",
    });
    expect(check("node", { node: "24.0.0" }).status).toBe("ok");
  });

  it("kernels that disagree", () => {
    const probe = { ...PROBE, parity: { error: "flash and eager differ by 3.0e-02; at most 1e-09 is rounding" } };
    expect(check("kernels", { probe })).toMatchObject({ status: "fail" });
    expect(check("kernels", { probe }).detail).toContain("differ by 3.0e-02");
  });

  it("the tau2 package, or another package of that name", () => {
    const probe = { ...PROBE, tau2: { error: "the installed `tau2` is another package of that name" } };
    expect(check("tau2", { probe })).toMatchObject({ status: "warn", fix: "sinkflex doctor --fix" });
  });

  it("room on the disk", () => {
    expect(check("disk", { freeBytes: 0.5e9 }).status).toBe("fail");
    expect(check("disk", { freeBytes: 1.5e9 }).status).toBe("warn");
    expect(check("disk", { freeBytes: 1.5e9, python: null }).status).toBe("fail");
  });

  it("every check that is not ok says what to do, or that it could not be made", () => {
    const broken = { ...PROBE, torch: { error: "not installed" }, parity: { error: "No module named 'torch'" } };
    for (const one of judge({ ...LAPTOP, probe: broken, gpu: H200, freeBytes: 0 })) {
      if (one.status !== "ok") expect(one.fix ?? one.detail).toMatch(/./);
      if (one.status === "fail") expect(one.fix).toBeTruthy();
    }
  });
});

describe("the driver", () => {
  const smi = (script: string, env: NodeJS.ProcessEnv = {}) => {
    const machine = bareMachine();
    const path = join(machine.bin, "nvidia-smi");
    writeFileSync(path, `#!/bin/sh\n${script}\n`);
    chmodSync(path, 0o755);
    return readGpu({ ...machine.env, ...env });
  };

  it("is asked without torch", () => {
    const table = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |";
    const rows = "NVIDIA H100 80GB HBM3, 550.54.15\\nNVIDIA H100 80GB HBM3, 550.54.15";
    expect(smi(`if [ -n "$1" ]; then printf '${rows}\\n'; else echo '${table}'; fi`)).toEqual({
      names: ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"],
      driver: "550.54.15",
      cuda: "12.4",
    });
  });

  it("that is not there, or sees no GPU, is no GPU", () => {
    expect(readGpu(bareMachine().env)).toBeNull();
    expect(smi("echo 'No devices were found'; exit 6")).toBeNull();
    expect(smi("echo 'No devices were found'")).toBeNull();
    expect(smi("echo 'NVIDIA H200, 580.95.05'")).not.toBeNull();
    expect(smi("echo 'NVIDIA H200, 580.95.05'", { CUDA_VISIBLE_DEVICES: "" })).toBeNull();
  });
});
