import { existsSync, readdirSync } from "node:fs";
import { spawn } from "@lydell/node-pty";
import { beforeEach, describe, expect, it } from "vitest";
import { addCheckout, addPython, bareMachine, hanging, type Machine } from "../fixtures/machine.js";

/** The installation on a terminal: the line that is kept up to date, and Ctrl-C as it is typed. */

let machine: Machine;
let checkout: string;

beforeEach(() => {
  machine = bareMachine();
  checkout = addCheckout(machine);
  addPython(machine, "python3");
});

/** Starts the setup script on a terminal. `screen` is everything that was written, `text` the same without escapes. */
function onTerminal(env: NodeJS.ProcessEnv = {}) {
  const options = { name: "xterm-256color", cols: 100, rows: 30, cwd: checkout, env: { ...machine.env, ...env } };
  const terminal = spawn(
    process.execPath,
    ["scripts/setup.js", "--quickstart"],
    options as Parameters<typeof spawn>[2],
  );
  let screen = "";
  terminal.onData((data) => {
    screen += data;
  });
  const ended = new Promise<number>((resolve) => terminal.onExit(({ exitCode }) => resolve(exitCode)));
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
  const text = () => screen.replaceAll(/\u001b\[[0-9;?]*[A-Za-z]/g, "");
  return { terminal, ended, screen: () => screen, text };
}

describe("the installation on a terminal", () => {
  it("keeps one line up to date, leaves one line a stage, and goes on to train", async () => {
    const { ended, screen, text } = onTerminal();
    expect(await ended).toBe(0);
    expect(screen()).toContain("\u001b[");
    expect(text()).toMatch(/✔ Virtual environment from Python 3\.12\.1 .* \(\d+ s\)/);
    expect(text()).toMatch(/✔ torch 2\.13\.0\+cpu, CPU build, 192 MB, by pip \(\d+ s\)/);
    expect(text()).toContain('["train","configs/quickstart.yaml"]');
  });

  it("ends at Ctrl-C with exit code 130 and nothing half-built", async () => {
    const { terminal, ended, text } = onTerminal({ FAKE_PYTHON_HANG: "off -r" });
    await hanging(machine);
    terminal.write("\u0003");
    expect(await ended).toBe(130);
    expect(text()).toContain("✖ torch 2.13.0+cpu, CPU build, 192 MB, by pip");
    expect(text()).toContain("The installation was stopped.");
    expect(existsSync(machine.data) ? readdirSync(machine.data) : []).toEqual([]);
  });
});
