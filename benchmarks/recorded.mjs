// Runs `sinkflex` and keeps what came out in a record: for the benchmarks that measure learning.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";

export const root = join(import.meta.dirname, "..");

/** Runs the command line in a new folder for its runs; `what` says which run it is. Returns the folder of the run. */
export function sinkflex(what, args, flags = []) {
  console.log(`\n== ${what}: ${command(args)}`);
  const runs = mkdtempSync(join(tmpdir(), "sinkflex-learning-"));
  const done = spawnSync(process.execPath, ["bin/sinkflex.js", ...args, "--runs", runs, ...flags], {
    cwd: root,
    stdio: "inherit",
  });
  if (done.status !== 0) throw new Error(`${what} ended with exit code ${done.status}`);
  return join(
    runs,
    readdirSync(runs).find((name) => name !== "latest"),
  );
}

/** As one would type it. */
export const command = (args) => ["sinkflex", ...args].map((arg) => (/[ {]/.test(arg) ? `'${arg}'` : arg)).join(" ");

export const readJson = (path) => JSON.parse(readFileSync(path, "utf8"));

export const readLines = (path) =>
  readFileSync(path, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

/** What a training run measured, on the way and while it learned. */
export function measured(dir, args) {
  const summary = readJson(join(dir, "summary.json"));
  const events = readLines(join(dir, "events.jsonl"));
  return {
    command: command(args),
    wall_s: summary.wall_s,
    config_sha256: summary.config_sha256,
    evals: events
      .filter((event) => event.type === "eval" && event.agent === "policy")
      .map(({ step, split, tasks, mean, ci_low, ci_high, graded_mean, by_level, turns_per_episode }) => ({
        step,
        split,
        tasks,
        mean,
        ci_low,
        ci_high,
        graded_mean,
        by_level,
        turns_per_episode,
      })),
    steps: events
      .filter((event) => event.type === "step" && event.stage === "rl")
      .map(({ step, metrics: m }) => ({
        step,
        reward: m.reward,
        entropy: m.entropy,
        frac_reward_zero_std: m.frac_reward_zero_std,
        logprob_gap: m.logprob_gap,
      })),
  };
}

/** Read, change, write: runs may be started side by side, each with its own part. */
export function keep(record, empty, change) {
  const data = load(record, empty);
  data.machine = `${cpus().length} CPU cores, ${process.platform} ${process.arch}, Node ${process.versions.node}`;
  change(data);
  writeFileSync(record, `${JSON.stringify(data, null, 1)}\n`);
}

export function load(record, empty) {
  try {
    return readJson(record);
  } catch {
    return empty;
  }
}

/** Puts `text` between the markers of a page. */
export function render(page, text) {
  const [open, close] = ["<!-- figures -->", "<!-- end of figures -->"];
  const [head, rest] = readFileSync(page, "utf8").split(open);
  writeFileSync(page, `${head}${open}\n\n${text}\n\n${close}${rest.split(close)[1]}`);
}

export const f2 = (x) => (x === null || x === undefined ? "-" : x.toFixed(2));
export const f3 = (x) => (x === null || x === undefined ? "-" : x.toFixed(3));
export const score = (e) => `${f3(e.mean)} [${f2(e.ci_low)}, ${f2(e.ci_high)}]`;
