import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { probePython } from "../../../scripts/bootstrap.js";
import { UserError } from "../../../src/errors.js";
import { buildEnvironment, buildTools } from "../../../src/process/build.js";
import { environmentFor } from "../../../src/process/environment.js";
import { addPython, addScript, bareMachine, type Machine } from "../../fixtures/machine.js";

function listener() {
  const said: string[] = [];
  const say = (text: string) => said.push(text);
  return { said, report: { stage: say, detail: () => {}, note: say, end: () => {} } };
}

function machineWithPython(): Machine {
  const machine = bareMachine();
  addPython(machine, "python3.12");
  return machine;
}

const installs = (machine: Machine) => machine.calls().filter((call) => call.includes("pip install"));
const folders = (machine: Machine) => readdirSync(machine.data);

describe("building the environment", () => {
  it("installs the locked packages, then torch in a call of its own, once", async () => {
    const machine = machineWithPython();
    const { report, said } = listener();
    const built = await buildEnvironment({ env: machine.env, report });
    const [locked, asked, torch, ...rest] = installs(machine);
    expect(rest).toEqual([]);
    expect(locked).toMatch(/--no-deps -r .*base\.txt -r .*tau2\.txt$/);
    expect(asked).toContain("--dry-run");
    expect(torch).toMatch(/-r .*torch\.txt -c .*base\.txt$/);
    expect(built.record).toMatchObject({ python: "3.12.1", torch: "2.13.0+cpu", cuda: null, installer: "pip" });
    expect(said).toContain("torch 2.13.0+cpu, CPU build, 192 MB, by pip");
    expect(folders(machine)).toEqual([basename(built.dir)]);
  });

  it("does nothing the second time", async () => {
    const machine = machineWithPython();
    const { report, said } = listener();
    const first = await buildEnvironment({ env: machine.env, report });
    said.length = 0;
    const calls = installs(machine).length;
    expect(await buildEnvironment({ env: machine.env, report })).toEqual(first);
    expect(said).toEqual([]);
    expect(installs(machine)).toHaveLength(calls);
  });

  it("gives scripts the path they will have, not the one they were made at", async () => {
    const machine = machineWithPython();
    const { dir } = await buildEnvironment({ env: machine.env, report: listener().report });
    expect(readFileSync(join(dir, "bin", "tool"), "utf8")).toBe(`#!${dir}/bin/python\n`);
    expect(readFileSync(join(dir, "pyvenv.cfg"), "utf8")).toBe(`command = python -m venv ${dir}\n`);
  });

  it("removes what a killed build has left, and never uses it", async () => {
    const machine = machineWithPython();
    const { dir } = environmentFor(12, { env: machine.env });
    mkdirSync(join(`${dir}.building-99999999`, "bin"), { recursive: true });
    mkdirSync(join(dirname(dir), "env-of-another-lock.building-1"));
    await buildEnvironment({ env: machine.env, report: listener().report });
    expect(folders(machine).sort()).toEqual([basename(dir), "env-of-another-lock.building-1"].sort());
  });

  it("two at once build once", async () => {
    const machine = machineWithPython();
    const [one, other] = [listener(), listener()];
    const both = await Promise.all([
      buildEnvironment({ env: machine.env, report: one.report }),
      buildEnvironment({ env: machine.env, report: other.report }),
    ]);
    expect(both[0]).toEqual(both[1]);
    expect(machine.calls().filter((call) => call.includes("-m venv"))).toHaveLength(1);
    expect([...one.said, ...other.said].join("\n")).toContain("waiting for it");
  });

  it("that fails says which step, why, and where the output is, and leaves nothing half-built", async () => {
    const machine = machineWithPython();
    const env = { ...machine.env, FAKE_PYTHON_FAIL: "base.txt -r" };
    const error = await buildEnvironment({ env, report: listener().report }).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(UserError);
    expect(error.exitCode).toBe(3);
    expect(error.problems[0]).toMatchObject({
      code: "SF-ENV-BUILD-FAILED",
      what: "The installation failed while installing the packages.",
      why: "ERROR: No matching distribution found",
    });
    const { dir } = environmentFor(12, { env });
    expect(error.left).toContain(`${dir}.log`);
    expect(folders(machine)).toEqual([`${basename(dir)}.log`]);
    expect(readFileSync(`${dir}.log`, "utf8")).toContain("No matching distribution found");
  });

  it("in a place that cannot be written says so and names the setting", async () => {
    const machine = machineWithPython();
    const file = join(machine.dir, "a file");
    writeFileSync(file, "");
    const env = { ...machine.env, SINKFLEX_DATA_DIR: join(file, "data") };
    const error = await buildEnvironment({ env, report: listener().report }).catch((thrown) => thrown);
    expect(error.exitCode).toBe(3);
    expect(error.problems[0].fix).toContain("SINKFLEX_DATA_DIR");
  });
});

describe("with uv", () => {
  it("it installs, with torch's build chosen by the GPU it finds", async () => {
    const machine = machineWithPython();
    addScript(machine, "uv", `echo "uv $*" >> "$FAKE_PYTHON_LOG"`);
    const built = await buildEnvironment({ env: machine.env, report: listener().report });
    const calls = machine.calls().filter((call) => call.startsWith("uv pip install"));
    expect(calls).toHaveLength(2);
    expect(calls[1]).toContain("--torch-backend cpu");
    expect(built.record?.installer).toBe("uv");

    const workstation = machineWithPython();
    addScript(workstation, "uv", `echo "uv $*" >> "$FAKE_PYTHON_LOG"`);
    addScript(workstation, "nvidia-smi", "echo 'NVIDIA H200, 580.95.05'");
    await buildEnvironment({ env: workstation.env, report: listener().report });
    expect(workstation.calls().join("\n")).toContain("--torch-backend auto");
  });

  it("that cannot reach its index, pip takes over and says so", async () => {
    const machine = machineWithPython();
    addScript(
      machine,
      "uv",
      `case "$*" in *torch.txt*) echo "error: Request failed after 3 retries" >&2; exit 2;; esac`,
    );
    const { report, said } = listener();
    const built = await buildEnvironment({ env: machine.env, report });
    expect(built.record?.installer).toBe("pip");
    expect(said).toContain("uv could not do this (error: Request failed after 3 retries); pip takes over.");
  });

  it("SINKFLEX_TORCH_INDEX reaches the installer in its environment, never in its arguments", async () => {
    const machine = machineWithPython();
    addScript(machine, "uv", `echo "uv $* index=$UV_DEFAULT_INDEX" >> "$FAKE_PYTHON_LOG"`);
    const env = { ...machine.env, SINKFLEX_TORCH_INDEX: "file:///wheels" };
    await buildEnvironment({ env, report: listener().report });
    const [locked, torch] = machine.calls().filter((call) => call.startsWith("uv pip install"));
    expect(locked).toMatch(/index=$/);
    expect(torch).toMatch(/torch\.txt -c \S+.* index=file:\/\/\/wheels$/);
    expect(torch).not.toContain("--torch-backend");
  });
});

describe("the checks' tools", () => {
  it("come into a folder of their own, without their dependencies' torch, once", async () => {
    const machine = machineWithPython();
    const python = probePython("python3.12", machine.env);
    if (!python) throw new Error("the stand-in does not run");
    const { report } = listener();
    const first = await buildTools(python, { env: machine.env, report });
    expect(await buildTools(python, { env: machine.env, report })).toBe(first);
    expect(installs(machine)).toHaveLength(1);
    expect(installs(machine)[0]).toMatch(/--no-deps --target .* -r .*dev\.txt$/);
    expect(existsSync(join(first, "complete.json"))).toBe(true);
  });
});
