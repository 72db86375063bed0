// What the quick start learns, over seeds and against controls: runs everything, keeps the figures, writes the tables.
//
//   npm run build && node benchmarks/learning.mjs                     all of it: about an hour on two cores
//   node benchmarks/learning.mjs --seeds 1 --only quickstart          a part; earlier figures of the record are kept
//   node benchmarks/learning.mjs --render                             only rewrite the tables from the record
//
// Record: docs/benchmarks/learning.json. Tables: docs/learning.md, between its markers. Every run is an ordinary
// `sinkflex train configs/quickstart.yaml` with the overrides shown in RUNS; the controls change nothing but the
// demonstrations, and stop after one step of reinforcement learning: their score is the evaluation at step 0.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { f2, f3, keep, load, measured, render, root, score, sinkflex } from "./recorded.mjs";

const record = join(root, "docs", "benchmarks", "learning.json");
const page = join(root, "docs", "learning.md");
const config = "configs/quickstart.yaml";

const { values: options } = parseArgs({
  options: {
    seeds: { type: "string", multiple: true, default: ["1", "2", "3"] },
    only: { type: "string", multiple: true, default: [] },
    render: { type: "boolean", default: false },
  },
});

const supervised = (agent) => [
  "--set",
  `warm_start.sft.demonstrations=[{agent: ${agent}, steps: ${supervisedSteps()}}]`,
  "--set",
  "train.steps=1",
];

const RUNS = {
  quickstart: { title: "quick start", overrides: () => [] },
  clean_sft: { title: "clean demonstrations only", overrides: () => supervised("expert") },
  faulty_sft: { title: "faulty demonstrations only", overrides: () => supervised("faulty") },
};

function supervisedSteps() {
  const text = readFileSync(join(root, config), "utf8");
  return [...text.matchAll(/agent: \w+, steps: (\d+)/g)].reduce((sum, match) => sum + Number(match[1]), 0);
}

const EMPTY = { runs: {}, scripted: null };

function train(kind, seed) {
  const args = ["train", config, "--set", `seed=${seed}`, ...RUNS[kind].overrides()];
  return measured(sinkflex(`${kind}, seed ${seed}`, args), args);
}

async function scripted() {
  const { resolvePython, workerEnvironment } = await import("../dist/process/python.js");
  const python = await resolvePython({ yes: false, input: false, json: false });
  const script = join(root, "benchmarks", "scripted_agents.py");
  const text = execFileSync(python.path, ["-P", script, "mini-shop", "--seed", "1"], {
    cwd: tmpdir(),
    env: workerEnvironment(process.env),
    encoding: "utf8",
  });
  return { command: "python -P benchmarks/scripted_agents.py mini-shop --seed 1", evals: JSON.parse(text) };
}

const levels = (e) => ["0", "1", "2", "3", "4"].map((level) => f2(e.by_level[level]?.mean)).join(" | ");

function table(data) {
  const lines = [];
  const run = (kind, seed) => data.runs[kind]?.[seed];
  const seeds = Object.keys(data.runs.quickstart ?? {}).sort();
  lines.push(
    "| seed | after the warm start | after reinforcement learning | clean demonstrations only | wall time |",
    "|---|---|---|---|---|",
  );
  for (const seed of seeds) {
    const [first, last] = [run("quickstart", seed).evals[0], run("quickstart", seed).evals.at(-1)];
    const clean = run("clean_sft", seed)?.evals[0];
    lines.push(
      `| ${seed} | ${score(first)} | **${score(last)}** | ${clean ? score(clean) : "-"} | ${Math.round(run("quickstart", seed).wall_s)} s |`,
    );
  }
  lines.push("", "By level (0 look up, 1 write, 2 policy decisions, 3 device, 4 two requests), report tasks:", "");
  lines.push("| agent | seed | score | 0 | 1 | 2 | 3 | 4 |", "|---|---|---|---|---|---|---|---|");
  for (const e of data.scripted?.evals ?? []) lines.push(`| ${e.agent} (scripted) | - | ${score(e)} | ${levels(e)} |`);
  for (const kind of ["faulty_sft", "clean_sft"]) {
    for (const seed of Object.keys(data.runs[kind] ?? {}).sort()) {
      const e = run(kind, seed).evals[0];
      lines.push(`| ${RUNS[kind].title} | ${seed} | ${score(e)} | ${levels(e)} |`);
    }
  }
  for (const seed of seeds) {
    const { evals } = run("quickstart", seed);
    lines.push(`| quick start, step ${evals[0].step} | ${seed} | ${score(evals[0])} | ${levels(evals[0])} |`);
    lines.push(
      `| quick start, step ${evals.at(-1).step} | ${seed} | ${score(evals.at(-1))} | ${levels(evals.at(-1))} |`,
    );
  }
  lines.push(
    "",
    "Learning curve (tuning tasks between the ends; training reward, entropy and share of flat groups of that step):",
    "",
  );
  lines.push(
    "| seed | step | held out | training reward | entropy | zero-variance share |",
    "|---|---|---|---|---|---|",
  );
  for (const seed of seeds) {
    for (const e of run("quickstart", seed).evals) {
      const at = run("quickstart", seed).steps.find((s) => s.step === e.step);
      lines.push(
        `| ${seed} | ${e.step} | ${score(e)} ${e.split} | ${f3(at?.reward)} | ${f3(at?.entropy)} | ${f2(at?.frac_reward_zero_std)} |`,
      );
    }
  }
  lines.push("", "Commands:", "", "```");
  for (const kind of Object.keys(RUNS)) for (const one of Object.values(data.runs[kind] ?? {})) lines.push(one.command);
  if (data.scripted) lines.push(data.scripted.command);
  lines.push("```", "", `Machine: ${data.machine}. Record: [benchmarks/learning.json](benchmarks/learning.json).`);
  return lines.join("\n");
}

if (!options.render) {
  const wanted = (kind) => options.only.length === 0 || options.only.includes(kind);
  if (wanted("scripted")) {
    const result = await scripted();
    keep(record, EMPTY, (data) => {
      data.scripted = result;
    });
  }
  for (const kind of Object.keys(RUNS).filter(wanted)) {
    for (const seed of options.seeds) {
      const result = train(kind, seed);
      keep(record, EMPTY, (data) => {
        data.runs[kind] = { ...data.runs[kind], [seed]: result };
      });
    }
  }
}
render(page, table(load(record, EMPTY)));
