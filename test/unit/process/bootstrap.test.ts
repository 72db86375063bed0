import { spawn } from "node:child_process";
import { existsSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { findPython, supportedPythons, withLock } from "../../../scripts/bootstrap.js";
import { addPython, addScript, bareMachine, REPOSITORY, temporaryFolder } from "../../fixtures/machine.js";

describe("the Python to build from", () => {
  it("is the newest supported one that runs", () => {
    const machine = bareMachine();
    addScript(machine, "python3.13", "echo 'no such version' >&2; exit 127"); // a shim with no version behind it
    addPython(machine, "python3.12");
    addPython(machine, "python3");
    const { python } = findPython(REPOSITORY, machine.env);
    expect(python).toMatchObject({ command: "python3.12", version: "3.12.1", venv: true });
  });

  it("is one that can make virtual environments, when there is a choice", () => {
    const machine = bareMachine();
    addScript(machine, "python3.12", "echo 3 12 4 0 0 /usr/bin/python3.12");
    addScript(machine, "python3", "echo 3 11 9 1 0 /usr/bin/python3");
    expect(findPython(REPOSITORY, machine.env).python?.command).toBe("python3");
  });

  it("when missing is asked for in one sentence", () => {
    const { problem } = findPython(REPOSITORY, bareMachine().env);
    expect(problem?.kind).toBe("missing");
    expect(problem?.what).toBe(
      "Python 3.11 to 3.13 is needed, and none of python3.13, python3.12, python3.11, python3, python on PATH runs.",
    );
  });

  it("when too old or too new is named with its version", () => {
    const machine = bareMachine();
    addScript(machine, "python3", "echo 3 9 18 1 0 /usr/bin/python3");
    expect(findPython(REPOSITORY, machine.env).problem).toMatchObject({
      kind: "too-old",
      what: "Python 3.11 to 3.13 is needed; `python3` on PATH is 3.9.18, which is too old.",
    });
    addScript(machine, "python3", "echo 3 14 0 1 0 /usr/bin/python3");
    expect(findPython(REPOSITORY, machine.env).problem).toMatchObject({
      kind: "too-new",
      what: "Python 3.11 to 3.13 is needed; `python3` on PATH is 3.14.0, which is too new.",
    });
  });

  it("has its range in pyproject.toml only", () => {
    expect(supportedPythons(REPOSITORY)).toEqual({ oldest: 11, newest: 13, text: "Python 3.11 to 3.13" });
  });
});

describe("the lock", () => {
  const fresh = () => join(temporaryFolder(), "lock");
  const nobody = () => {
    throw new Error("there is nobody to wait for");
  };

  it("lets one in at a time, and tells the other whom it waits for", async () => {
    const path = fresh();
    const order: string[] = [];
    let release = () => {};
    const first = withLock(path, nobody, async () => {
      order.push("first in");
      await new Promise<void>((resolve) => {
        release = resolve;
      });
      order.push("first out");
    });
    const second = withLock(
      path,
      (pid) => {
        order.push(`waiting for ${pid === process.pid ? "us" : pid}`);
        release();
      },
      async () => order.push("second in"),
    );
    await Promise.all([first, second]);
    expect(order).toEqual(["first in", "waiting for us", "first out", "second in"]);
    expect(existsSync(path)).toBe(false);
  });

  it("is given back when the work fails", async () => {
    const path = fresh();
    await expect(withLock(path, nobody, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect(existsSync(path)).toBe(false);
  });

  it("of a process that is gone is broken", async () => {
    const path = fresh();
    const gone = spawn(process.execPath, ["-e", ""]);
    await new Promise((resolve) => gone.on("exit", resolve));
    writeFileSync(path, `${gone.pid} ${hostname()}\n`);
    await withLock(path, nobody, async () => expect(readFileSync(path, "utf8")).toBe(`${process.pid} ${hostname()}\n`));
  });

  it("of another machine is broken when nobody has touched it for a minute", async () => {
    const path = fresh();
    writeFileSync(path, "1 elsewhere\n");
    const long = new Date(Date.now() - 120_000);
    utimesSync(path, long, long);
    expect(await withLock(path, nobody, async () => "in")).toBe("in");
  });
});
