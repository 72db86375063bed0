/**
 * Every check of the repository, one after the other: the static ones, vitest, pytest. Used by setup.js.
 *
 * A static check counts as one test. A runner that crashes, or that runs no test at all, counts as one failure, whatever
 * it says about itself. The last line on standard output is `N passed, N failed`.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const FAILED = 1;

/** `only`: "all", "fast" or "lint". `tools` is the folder with ruff, mypy and pytest. Returns the exit code. */
export async function runChecks({ root, python, tools, only }) {
  const { workerEnvironment } = await import(pathToFileURL(join(root, "dist", "process", "python.js")).href);
  const worker = workerEnvironment({ ...process.env, PYTHONPATH: tools });
  // PYTHONPATH is python/ and then the tools: nothing among them may hide the package.
  // The tests' own parallelism uses the cores; threads inside one test would only fight over them.
  const pythonEnv = { ...worker, OMP_NUM_THREADS: "1" };
  const results = join(root, ".setup", "results");
  rmSync(results, { recursive: true, force: true });
  mkdirSync(results, { recursive: true });
  const module = (name, ...args) => ({ command: python, args: ["-P", "-m", name, ...args], env: pythonEnv });
  const node = (script, ...args) => ({
    command: process.execPath,
    args: [join("node_modules", script), ...args],
    env: process.env,
  });
  const withPython = (stage) => ({ ...stage, env: { ...stage.env, SINKFLEX_PYTHON: python } });
  const fast = only === "fast";
  const vitest = node(
    "vitest/vitest.mjs",
    "run",
    ...(fast ? ["test/unit"] : []),
    "--reporter=default",
    "--reporter=json",
    `--outputFile.json=${join(results, "vitest.json")}`,
  );
  // Two processes share the test files: a file's fixtures are made once, and more than two would fight over memory.
  const shared = availableParallelism() > 1 ? ["-n", "2", "--dist", "loadfile"] : [];
  const pytest = module(
    "pytest",
    "-q",
    ...shared,
    `--junitxml=${join(results, "pytest.xml")}`,
    ...(fast ? ["-m", "not slow"] : []),
  );
  const stages = [
    { name: "biome", ...node("@biomejs/biome/bin/biome", "check") },
    { name: "tsc", ...node("typescript/bin/tsc", "--noEmit") },
    { name: "knip", slow: true, ...node("knip/bin/knip.js") },
    { name: "publint", slow: true, ...node("publint/src/cli.js", "--strict", "--pack", "npm") },
    { name: "ruff", ...module("ruff", "check", "--quiet", ".") },
    { name: "mypy", slow: true, ...module("mypy") },
    { name: "vitest", tests: () => readVitest(join(results, "vitest.json")), ...withPython(vitest) },
    { name: "pytest", tests: () => readPytest(join(results, "pytest.xml")), ...withPython(pytest) },
  ];
  const chosen = stages.filter((stage) => (only === "lint" ? !stage.tests : !(fast && stage.slow)));
  const { done, stopped } = await runStages(root, chosen);
  if (stopped !== 0)
    process.stdout.write(`Stopped: ${chosen.length - done.length} of ${chosen.length} checks were not begun.\n`);
  return stopped || report(done);
}

async function runStages(root, stages) {
  const done = [];
  for (const [index, stage] of stages.entries()) {
    const title = `[${index + 1}/${stages.length}] ${stage.name}`;
    if (stage.tests) process.stdout.write(`${title}\n`);
    const begun = Date.now();
    const { status, output } = await runStage(root, stage);
    const counts = stage.tests
      ? countTests(stage.tests(), status)
      : { passed: status === 0 ? 1 : 0, failed: status === 0 ? 0 : 1 };
    if (counts.failed > 0) process.stdout.write(output);
    const seconds = Math.round((Date.now() - begun) / 1000);
    const verdict = stage.tests ? countsText(counts) : status === 0 ? "ok" : `failed (exit code ${status})`;
    process.stdout.write(`${title}: ${verdict}, ${seconds} s\n`);
    done.push({ ...counts, name: stage.name });
    if (interrupted(status)) return { done, stopped: status };
  }
  return { done, stopped: 0 };
}

/** Static checks speak when they fail; the runners speak as they go. */
function runStage(root, { command, args, env, tests }) {
  return new Promise((resolve) => {
    const stdio = ["ignore", tests ? "inherit" : "pipe", tests ? "inherit" : "pipe"];
    const child = spawn(command, args, { cwd: root, env, stdio });
    const ignore = () => {};
    const end = () => child.kill("SIGTERM");
    process.on("SIGINT", ignore);
    process.on("SIGTERM", end);
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream?.on("data", (chunk) => {
        output += chunk;
      });
    const settle = (status) => {
      process.off("SIGINT", ignore);
      process.off("SIGTERM", end);
      resolve({ status, output });
    };
    child.on("error", (error) => {
      output += `${error.message}\n`;
      settle(127);
    });
    child.on("close", (code, signal) => settle(code ?? { SIGINT: 130, SIGTERM: 143 }[signal] ?? FAILED));
  });
}

function interrupted(status) {
  return status === 130 || status === 143;
}

/** What a runner counted, against how it ended. */
function countTests(counted, status) {
  const { passed, failed, skipped } = counted ?? { passed: 0, failed: 0, skipped: 0 };
  const crashed = (status !== 0 && failed === 0) || passed + failed === 0;
  return {
    passed,
    failed: failed + (crashed ? 1 : 0),
    skipped,
    ...(crashed ? { crashed: `the runner ended with exit code ${status}` } : {}),
  };
}

function countsText({ passed, failed, skipped, crashed }) {
  const notes = [skipped > 0 ? `${skipped} skipped` : "", crashed ?? ""].filter(Boolean);
  return [`${passed} passed`, `${failed} failed`, ...notes].join(", ");
}

/** A file that cannot even be loaded has no tests of its own in the report: it is one failure. */
function readVitest(path) {
  if (!existsSync(path)) return null;
  const { numPassedTests, numFailedTests, numPendingTests, testResults } = JSON.parse(readFileSync(path, "utf8"));
  const unloaded = testResults.filter(
    ({ status, assertionResults }) => status === "failed" && assertionResults.every((test) => test.status !== "failed"),
  );
  return { passed: numPassedTests, failed: numFailedTests + unloaded.length, skipped: numPendingTests };
}

function readPytest(path) {
  if (!existsSync(path)) return null;
  const suite = /<testsuite [^>]*>/.exec(readFileSync(path, "utf8"))?.[0] ?? "";
  const count = (name) => Number(new RegExp(` ${name}="(\\d+)"`).exec(suite)?.[1] ?? 0);
  const failed = count("failures") + count("errors");
  return { passed: Math.max(0, count("tests") - failed - count("skipped")), failed, skipped: count("skipped") };
}

function report(stages) {
  const sum = (key) => stages.reduce((total, stage) => total + stage[key], 0);
  const [passed, failed] = [sum("passed"), sum("failed")];
  const broken = stages.filter((stage) => stage.failed > 0).map(({ name }) => name);
  if (broken.length > 0) process.stdout.write(`Failed: ${broken.join(", ")}\n`);
  process.stdout.write(`${passed} passed, ${failed} failed\n`);
  return failed === 0 && passed > 0 ? 0 : FAILED;
}
