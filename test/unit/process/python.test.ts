import { execFile, spawn } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { screen } from "@inquirer/testing/vitest";
import { afterEach, describe, expect, it } from "vitest";
import { findPython } from "../../../scripts/bootstrap.js";
import { UserError } from "../../../src/errors.js";
import { type ResolveOptions, resolvePython, workerEnvironment } from "../../../src/process/python.js";
import { addPython, addScript, bareMachine, REPOSITORY } from "../../fixtures/machine.js";

const QUIET = { yes: false, input: false, json: false };
const run = promisify(execFile);

/** A real Python, for what only a real one can show. */
const REAL = process.env.SINKFLEX_PYTHON ?? findPython(REPOSITORY).python?.path ?? "python3";

async function refusal(options: ResolveOptions): Promise<UserError> {
  const error = await resolvePython(options).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof UserError)) throw new Error(`not refused: ${error}`);
  return error;
}

describe("which Python", () => {
  it("--python wins over SINKFLEX_PYTHON", async () => {
    const machine = bareMachine();
    const [one, other] = [addPython(machine, "one"), addPython(machine, "other")];
    const env = { ...machine.env, SINKFLEX_PYTHON: other };
    expect(await resolvePython({ ...QUIET, env, python: one })).toEqual({ path: one, source: "flag" });
    expect(await resolvePython({ ...QUIET, env })).toEqual({ path: other, source: "SINKFLEX_PYTHON" });
  });

  it("one that does not run is refused by the name of the setting", async () => {
    const error = await refusal({ ...QUIET, env: { ...bareMachine().env, SINKFLEX_PYTHON: "/no/such/python" } });
    expect(error.problems[0]).toMatchObject({
      code: "SF-PYTHON-NOT-FOUND",
      what: "SINKFLEX_PYTHON names /no/such/python, and that does not run as a Python.",
    });
    expect(error.exitCode).toBe(3);
  });

  it("one without torch is refused with the command that installs it", async () => {
    const machine = bareMachine();
    const bare = join(machine.dir, "bare");
    await run(REAL, ["-m", "venv", "--without-pip", bare]);
    const python = join(bare, "bin", "python");
    const error = await refusal({ ...QUIET, env: { ...machine.env, SINKFLEX_PYTHON: python } });
    expect(error.problems[0]?.code).toBe("SF-PYTHON-NO-TORCH");
    expect(error.problems[0]?.what).toContain("which has no torch");
    expect(error.problems[0]?.fix).toContain(`"${python}" -m pip install`);
    expect(error.exitCode).toBe(3);
  });

  it("one that is too old is refused with its version", async () => {
    const machine = bareMachine();
    addScript(machine, "old", "echo 3 9 18 1 1 /usr/bin/python3.9");
    const error = await refusal({ ...QUIET, env: machine.env, python: join(machine.bin, "old") });
    expect(error.problems[0]).toMatchObject({
      code: "SF-PYTHON-TOO-OLD",
      what: "--python names Python 3.9.18 (/usr/bin/python3.9), which is too old: Python 3.11 to 3.13 is needed.",
    });
    expect(error.exitCode).toBe(3);
  });
});

describe("a managed environment that is missing", () => {
  const streams = [process.stdin, process.stderr];
  const before = streams.map((stream) => stream.isTTY);
  afterEach(() => {
    for (const [index, stream] of streams.entries()) stream.isTTY = before[index] ?? false;
  });

  it("without a terminal is exit code 3 and the command to type", async () => {
    const error = await refusal({ ...QUIET, input: true, env: bareMachine().env });
    expect(error.exitCode).toBe(3);
    expect(error.problems[0]).toMatchObject({ code: "SF-ENV-MISSING" });
    expect(error.problems[0]?.fix).toContain("sinkflex doctor --fix");
  });

  it("is not asked about with --json, --no-input or CI", async () => {
    onTerminal();
    const env = bareMachine().env;
    const cases = [{ json: true }, { input: false }, { env: { ...env, CI: "true" } }];
    for (const extra of cases) {
      const error = await refusal({ ...QUIET, input: true, env, ...extra });
      expect(error.problems[0]?.code).toBe("SF-ENV-MISSING");
    }
  });

  it("on a terminal is asked about; no is exit code 3, yes builds it", async () => {
    onTerminal();
    const machine = bareMachine();
    addPython(machine, "python3");
    const first = refusal({ ...QUIET, input: true, env: machine.env });
    await screen.next();
    expect(screen.getScreen()).toContain("Build it now?");
    screen.type("n");
    screen.keypress("enter");
    expect((await first).problems[0]?.code).toBe("SF-ENV-MISSING");
    expect(machine.calls().join()).not.toContain("venv");

    const said: string[] = [];
    const say = (text: string) => said.push(text);
    const report = { stage: say, detail: () => {}, note: say, end: () => {} };
    const second = resolvePython({ ...QUIET, input: true, env: machine.env, report });
    await screen.next();
    screen.keypress("enter");
    const { path, source } = await second;
    expect(source).toBe("managed");
    expect(path.startsWith(machine.data)).toBe(true);
    expect(said.join("\n")).toContain("torch 2.13.0+cpu, CPU build, 192 MB, by pip");
    expect(await resolvePython({ ...QUIET, env: machine.env })).toEqual({ path, source });
  });

  function onTerminal() {
    for (const stream of streams) stream.isTTY = true;
  }
});

describe("the worker's environment", () => {
  it("B118 makes Python write each line as it is printed, into a pipe", async () => {
    const env = workerEnvironment({ PATH: process.env.PATH });
    // It prints one line and then waits for an answer: with a block buffer the line would come only after the answer.
    const child = spawn(REAL, ["-c", "print('event'); input()"], { env, stdio: ["pipe", "pipe", "inherit"] });
    const first = await new Promise<string>((resolve) => child.stdout.once("data", (chunk) => resolve(String(chunk))));
    expect(first).toContain("event");
    child.stdin.end("\n");
    await new Promise((resolve) => child.on("exit", resolve));
  });

  it("B124 keeps calls to this machine away from a proxy, in Python and in Node, and only those", async () => {
    const server = createServer((_, response) => response.end("here")).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const dead = "http://127.0.0.1:9";
    const proxies = Object.fromEntries(
      ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"].map((name) => [name, dead]),
    );
    const env = workerEnvironment({ PATH: process.env.PATH, ...proxies });
    try {
      const get = `import urllib.request as u; print(u.urlopen('${url}', timeout=20).read().decode())`;
      expect((await run(REAL, ["-c", get], { env })).stdout).toBe("here\n");
      const bypass =
        "import urllib.request as u; print([bool(u.proxy_bypass(h)) for h in ('localhost', 'api.example.org')])";
      expect((await run(REAL, ["-c", bypass], { env })).stdout).toBe("[True, False]\n");
      const fetched = `fetch('${url}').then((r) => r.text()).then(console.log)`;
      expect((await run(process.execPath, ["-e", fetched], { env })).stdout).toBe("here\n");
    } finally {
      server.close();
    }
  });

  it("adds loopback to what the user excludes already, once, in both spellings", () => {
    const added = workerEnvironment({ NO_PROXY: "intranet.example, localhost" });
    expect(added.NO_PROXY).toBe("intranet.example,localhost,127.0.0.1,::1");
    expect(added.no_proxy).toBe(added.NO_PROXY);
    expect(workerEnvironment({ no_proxy: "*" }).NO_PROXY).toBe("*");
  });

  it("finds the package of this checkout first", () => {
    expect(workerEnvironment({}).PYTHONPATH).toBe(join(REPOSITORY, "python"));
    expect(workerEnvironment({ PYTHONPATH: "/mine" }).PYTHONPATH).toBe(
      `${join(REPOSITORY, "python") + delimiter}/mine`,
    );
  });

  it("sets what the measurements asked for, and leaves alone what the user has set", () => {
    expect(workerEnvironment({}, "linux")).toMatchObject({
      OMP_WAIT_POLICY: "passive",
      GOMP_SPINCOUNT: "5000",
      MALLOC_MMAP_THRESHOLD_: "4294967296",
      MALLOC_TRIM_THRESHOLD_: "4294967296",
      MALLOC_TOP_PAD_: "67108864",
      TOKENIZERS_PARALLELISM: "false",
    });
    const own = { OMP_WAIT_POLICY: "active", MALLOC_TOP_PAD_: "0", HF_HUB_OFFLINE: "1" };
    expect(workerEnvironment(own, "linux")).toMatchObject(own);
    expect(workerEnvironment(own, "linux")).not.toHaveProperty("GOMP_SPINCOUNT"); // it would win over their policy
    expect(workerEnvironment({}, "darwin")).not.toHaveProperty("MALLOC_TOP_PAD_");
    expect(workerEnvironment({}, "linux")).not.toHaveProperty("HF_HUB_OFFLINE");
    expect(workerEnvironment({}, "linux")).not.toHaveProperty("PYTHONDONTWRITEBYTECODE");
  });
});
