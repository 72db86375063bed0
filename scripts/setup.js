#!/usr/bin/env node
/**
 * The two commands of a fresh checkout, `npm run quickstart` and `npm test`, and their parts.
 *
 * It begins on a machine that has only git, Node, npm and Python, so nothing here needs an installed package. Each step
 * looks first whether there is anything to do, says what it does while it does it, and can be stopped and begun again:
 * a stamp is written only when its step is complete. The Python environment is built by the command line's own code,
 * once that is compiled.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { findPython, probePython, withLock } from "./bootstrap.js";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const STATE = join(ROOT, ".setup");
const SOURCES = ["src", "scripts/bootstrap.d.ts", "tsconfig.json", "tsconfig.build.json", "package-lock.json"];
const NOT_READY = 3;

/** An end that needs no stack: a sentence for the person, and the exit code. */
class Ending extends Error {
  constructor(exitCode, sentence) {
    super(sentence);
    this.exitCode = exitCode;
  }
}

async function main([mode, ...rest]) {
  const typed = {
    "--quickstart": "npm run quickstart",
    "--test": "npm test",
    "--lint": "npm run lint",
    "--build": "npm run build",
  };
  if (!Object.hasOwn(typed, mode))
    throw new Ending(2, `usage: node scripts/setup.js ${Object.keys(typed).join(" | ")}`);
  checkNode();
  await withLock(join(STATE, "lock"), sayWaiting, async () => {
    await installPackages(typed[mode]);
    await compile();
  });
  if (mode === "--build") return 0;
  const python = await findOrBuildPython(typed[mode], mode !== "--quickstart");
  if (mode === "--quickstart") {
    return await run(process.execPath, ["bin/sinkflex.js", "train", "configs/quickstart.yaml", ...rest]);
  }
  const { runChecks } = await import("./check.js");
  return await runChecks({
    root: ROOT,
    ...python,
    only: mode === "--lint" ? "lint" : rest.includes("--fast") ? "fast" : "all",
  });
}

function checkNode() {
  const needed = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")).engines.node.replace(">=", "");
  const [have, want] = [process.versions.node, needed].map((text) => text.split(".").map(Number));
  const older = have[0] < want[0] || (have[0] === want[0] && have[1] < want[1]);
  if (older) throw new Ending(NOT_READY, `Node ${needed} or newer is needed; this is ${process.versions.node}.`);
}

/** `npm ci` when node_modules is missing, incomplete, or of another lock file. */
async function installPackages(typed) {
  const stamp = join(STATE, "packages");
  const wanted = hashOf(["package-lock.json"]);
  const present = existsSync(join(ROOT, "node_modules"));
  if (present && readStamp(stamp) === wanted) return;
  // Nobody should wait for the packages to learn that Python is missing.
  const { problem } = process.env.SINKFLEX_PYTHON ? {} : findPython(ROOT);
  if (problem) throw new Ending(NOT_READY, `${problem.what} ${problem.fix}`);
  rmSync(stamp, { force: true });
  const packages = Object.keys(JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")).packages).length - 1;
  const begun = say(`Node packages: npm ci, at most ${packages} packages, 220 MB on disk`);
  const npm = process.env.npm_execpath ? [process.execPath, process.env.npm_execpath] : ["npm"];
  const status = await run(npm[0], [...npm.slice(1), "ci", "--no-audit", "--no-fund"]);
  if (status !== 0) {
    const left = `node_modules is incomplete and will be installed anew by \`${typed}\`.`;
    if (status > 128) throw new Ending(status, `Stopped while installing the Node packages; ${left}`);
    throw new Ending(NOT_READY, `npm ci failed with exit code ${status} (its own message is above); ${left}`);
  }
  writeFileSync(stamp, wanted);
  sayDone(begun);
}

/** src/ to dist/ when a source has changed. dist/ is replaced as a whole, so that a run never sees half of it. */
async function compile() {
  const stamp = join(STATE, "build");
  const wanted = hashOf(SOURCES);
  if (existsSync(join(ROOT, "dist", "cli.js")) && readStamp(stamp) === wanted) return;
  rmSync(stamp, { force: true });
  const begun = say("Build: tsc, src/ to dist/");
  const fresh = join(STATE, "dist");
  rmSync(fresh, { recursive: true, force: true });
  const options = ["-p", "tsconfig.build.json", "--outDir", fresh, "--incremental", "false"];
  const status = await run(process.execPath, ["node_modules/typescript/bin/tsc", ...options]);
  if (status !== 0) throw new Ending(status > 128 ? status : 1, "The build failed; dist/ is as it was before.");
  rmSync(join(ROOT, "dist"), { recursive: true, force: true });
  renameSync(fresh, join(ROOT, "dist"));
  writeFileSync(stamp, wanted);
  sayDone(begun);
}

/** The Python that runs the worker and, for the checks, the folder with their tools. */
async function findOrBuildPython(typed, withTools) {
  const built = (path) => import(pathToFileURL(join(ROOT, "dist", path)).href);
  const [{ resolvePython }, { buildEnvironment, buildTools }, { reportTo }, errors] = await Promise.all(
    ["process/python.js", "process/build.js", "process/progress.js", "errors.js"].map(built),
  );
  try {
    const report = await reportTo(process.stderr);
    if (!process.env.SINKFLEX_PYTHON) await buildEnvironment({ report, typed });
    const { path } = await resolvePython({ yes: true, input: false, json: false });
    return { python: path, tools: withTools ? await buildTools(probePython(path), { report, typed }) : null };
  } catch (error) {
    if (!(error instanceof errors.UserError)) throw error;
    const look = { color: false, columns: Math.min(process.stderr.columns ?? 100, 100) };
    throw new Ending(error.exitCode, errors.renderError(error, look).trimEnd());
  }
}

/** Runs a program to its end, here, with this terminal. A signal that ends it counts as 128 + its number, as in a shell. */
function run(command, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: ROOT, stdio: "inherit" });
    // Ctrl-C reaches the child from the terminal: this process only waits for it to end. The others are handed on.
    const pass = { SIGINT: () => {}, SIGTERM: () => child.kill("SIGTERM"), SIGHUP: () => child.kill("SIGHUP") };
    for (const [signal, act] of Object.entries(pass)) process.on(signal, act);
    child.on("error", reject);
    child.on("exit", (code, signal) => {
      for (const [name, act] of Object.entries(pass)) process.off(name, act);
      resolve(code ?? { SIGHUP: 129, SIGINT: 130, SIGKILL: 137, SIGTERM: 143 }[signal] ?? 1);
    });
  });
}

function hashOf(paths) {
  const hash = createHash("sha256");
  for (const path of paths.flatMap((path) => filesUnder(path)))
    hash.update(`${path}\n`).update(readFileSync(join(ROOT, path)));
  return hash.digest("hex");
}

function filesUnder(path) {
  try {
    return readdirSync(join(ROOT, path))
      .sort()
      .flatMap((name) => filesUnder(join(path, name)));
  } catch {
    return [path];
  }
}

function readStamp(path) {
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

function say(text) {
  process.stderr.write(`${text}\n`);
  return Date.now();
}

function sayDone(begun) {
  process.stderr.write(`  done in ${Math.round((Date.now() - begun) / 1000)} s\n`);
}

function sayWaiting(pid) {
  process.stderr.write(`Process ${pid} is installing in this checkout; waiting for it.\n`);
}

try {
  mkdirSync(STATE, { recursive: true });
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof Ending)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = error.exitCode;
}
