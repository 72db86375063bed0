import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { addCheckout, addNpm, addPython, addScript, bareMachine, hanging, type Machine } from "../fixtures/machine.js";

/**
 * The setup script on a bare machine: a checkout in a folder with a blank, an npm that links the packages of this
 * repository, a Python that installs nothing. The compiler, the locks, the signals and the folders are the real ones.
 */

/** The calls that install something. */
const INSTALLS = /^npm|-m venv|pip install/;

let machine: Machine;
let checkout: string;

beforeEach(() => {
  machine = bareMachine();
  checkout = addCheckout(machine);
});

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

function start(args: string[], env: NodeJS.ProcessEnv = {}): { child: ChildProcess; ended: Promise<Ended> } {
  const script = join(checkout, "scripts", "setup.js");
  const child = spawn(process.execPath, [script, ...args], {
    cwd: machine.dir,
    env: { ...machine.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  child.stdout?.on("data", (chunk) => {
    stdout += chunk;
  });
  child.stderr?.on("data", (chunk) => {
    stderr += chunk;
  });
  const ended = new Promise<Ended>((resolve) => child.on("close", (code) => resolve({ code, stdout, stderr })));
  return { child, ended };
}

const quickstart = (...rest: string[]) => start(["--quickstart", ...rest]).ended;

const environments = () => (existsSync(machine.data) ? readdirSync(machine.data) : []);

describe("npm run quickstart", () => {
  it("installs what is missing, trains with the arguments it was given, and installs nothing again", async () => {
    addPython(machine, "python3");
    const first = await quickstart("--set", "seed=2");
    const told = ["Node packages: npm ci", "Build: tsc", "Virtual environment from Python 3.12.1", "Importing"];
    for (const text of told) expect(first.stderr).toContain(text);
    expect(first.stderr).toContain("torch 2.13.0+cpu, CPU build, 192 MB, by pip");
    expect(first.code).toBe(0);
    expect(first.stdout).toBe('["train","configs/quickstart.yaml","--set","seed=2"]\n');

    const calls = machine.calls().filter((call) => INSTALLS.test(call)).length;
    const second = await quickstart();
    expect(second).toEqual({ code: 0, stdout: '["train","configs/quickstart.yaml"]\n', stderr: "" });
    expect(machine.calls().filter((call) => INSTALLS.test(call))).toHaveLength(calls);
  });

  it("installs the packages again when the lock file has changed, and builds again when a source has", async () => {
    addPython(machine, "python3");
    await quickstart();
    writeFileSync(join(checkout, "src", "more.ts"), "export const more = 1;\n");
    const built = await quickstart();
    expect(built.stderr).toMatch(/^Build: tsc.*\n {2}done in \d+ s\n$/);
    expect(existsSync(join(checkout, "dist", "more.js"))).toBe(true);
    rmSync(join(checkout, "src", "more.ts"));
    await quickstart();
    expect(existsSync(join(checkout, "dist", "more.js"))).toBe(false);
    const lock = join(checkout, "package-lock.json");
    writeFileSync(lock, `${readFileSync(lock, "utf8")}\n`);
    expect((await quickstart()).stderr).toContain("Node packages: npm ci");
  });

  it("without Python ends with one sentence and exit code 3, before anything is installed", async () => {
    const ended = await quickstart();
    expect(ended.code).toBe(3);
    expect(ended.stderr).toBe(
      "Python 3.11 to 3.13 is needed, and none of python3.13, python3.12, python3.11, python3, python on PATH runs. " +
        "Install one of them, or set SINKFLEX_PYTHON to one that has torch, then run the same command again.\n",
    );
    expect(machine.calls()).toEqual([]);
    expect(existsSync(join(checkout, "node_modules"))).toBe(false);
  });

  it("with a Python that is too old says which it found", async () => {
    addScript(machine, "python3", "echo 3 9 18 1 0 /usr/bin/python3");
    const ended = await quickstart();
    expect(ended.code).toBe(3);
    expect(ended.stderr).toContain("`python3` on PATH is 3.9.18, which is too old.");
    expect(ended.stderr.trim().split("\n")).toHaveLength(1);
  });

  it("whose npm fails says so, and begins again with the packages", async () => {
    addPython(machine, "python3");
    addScript(machine, "npm", "echo no network >&2; exit 1");
    const failed = await quickstart();
    expect(failed.code).toBe(3);
    expect(failed.stderr).toContain("npm ci failed with exit code 1");
    expect((await quickstart()).stderr).toContain("Node packages: npm ci");
  });
});

describe("stopping while it installs", () => {
  it("Ctrl-C during pip: exit code 130, what is kept is said, nothing half-built; the next run completes", async () => {
    addPython(machine, "python3");
    const { child, ended } = start(["--quickstart"], { FAKE_PYTHON_HANG: "off -r" });
    await hanging(machine);
    child.kill("SIGINT");
    const stopped = await ended;
    expect(stopped.code).toBe(130);
    expect(stopped.stderr).toContain("The installation was stopped.");
    expect(stopped.stderr).toContain("`npm run quickstart` begins it again.");
    expect(stopped.stderr).toContain("Nothing half-built is kept");
    expect(environments()).toEqual([]);

    const again = await quickstart();
    expect(again.code).toBe(0);
    expect(again.stderr).not.toContain("npm ci");
    expect(environments()).toHaveLength(1);
  });

  it("SIGTERM during pip: exit code 143", async () => {
    addPython(machine, "python3");
    const { child, ended } = start(["--quickstart"], { FAKE_PYTHON_HANG: "base.txt -r" });
    await hanging(machine);
    child.kill("SIGTERM");
    expect((await ended).code).toBe(143);
    expect(environments()).toEqual([]);
  });

  it("Ctrl-C during npm: exit code 130, and the packages are installed anew", async () => {
    addPython(machine, "python3");
    addScript(
      machine,
      "npm",
      `echo hanging >> "$FAKE_PYTHON_LOG"; trap 'exit 130' INT; while :; do /bin/sleep 0.1; done`,
    );
    const { child, ended } = start(["--quickstart"]);
    await hanging(machine);
    // A terminal sends the signal to the whole group; here the parts are told one after the other.
    child.kill("SIGINT");
    const npm = childrenOf(child.pid ?? 0)[0];
    process.kill(npm ?? 0, "SIGINT");
    const stopped = await ended;
    expect(stopped.code).toBe(130);
    expect(stopped.stderr).toContain("Stopped while installing the Node packages");
    addNpm(machine);
    expect((await start(["--quickstart"], { FAKE_PYTHON_FAIL: "-m venv" }).ended).stderr).toContain("npm ci");
  });

  it("a kill -9 leaves a lock and a folder that the next run clears away", async () => {
    addPython(machine, "python3");
    const { child, ended } = start(["--quickstart"], { FAKE_PYTHON_HANG: "off -r" });
    await hanging(machine);
    child.kill("SIGKILL");
    for (const orphan of orphans()) process.kill(orphan, "SIGKILL");
    await ended;
    expect(environments().some((name) => name.includes(".building-"))).toBe(true);
    expect(environments().some((name) => name.endsWith(".lock"))).toBe(true);
    expect((await quickstart()).code).toBe(0);
    expect(environments()).toHaveLength(1);
  });

  it("two at once install once", async () => {
    addPython(machine, "python3");
    const both = await Promise.all([quickstart(), quickstart()]);
    expect(both.map(({ code }) => code)).toEqual([0, 0]);
    expect(machine.calls().filter((call) => call.startsWith("npm"))).toHaveLength(1);
    expect(machine.calls().filter((call) => call.includes("venv --clear"))).toHaveLength(1);
  });
});

/** Processes of this test's machine that run without the setup script which started them. */
function orphans(): number[] {
  return processes()
    .filter(({ line }) => line.includes(machine.dir) && line.includes("torch.txt"))
    .map(({ pid }) => pid);
}

function childrenOf(parent: number): number[] {
  return processes()
    .filter((one) => one.parent === parent)
    .map(({ pid }) => pid);
}

function processes(): { pid: number; parent: number; line: string }[] {
  const listed = execFileSync("ps", ["-A", "-o", "pid=,ppid=,args="], { encoding: "utf8" });
  return listed.split("\n").flatMap((row) => {
    const match = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(row);
    return match ? [{ pid: Number(match[1]), parent: Number(match[2]), line: match[3] ?? "" }] : [];
  });
}
