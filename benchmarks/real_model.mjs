// What SmolLM2-135M-Instruct learns: the recipes of configs/smollm2-*.yaml over seeds, beside controls.
//
//   npm run build && node benchmarks/real_model.mjs                   all of it: about half a day on two cores
//   node benchmarks/real_model.mjs --seeds 1 --only tool_calls        a part; earlier figures of the record are kept
//   node benchmarks/real_model.mjs --seeds 2 --threads 1              with a number of threads, for several side by side
//   node benchmarks/real_model.mjs --only mini_shop --seeds 2 --run FOLDER   a run that was stopped and resumed by hand
//   node benchmarks/real_model.mjs --render                           only rewrite the tables from the record
//
// Record: docs/benchmarks/real_model.json. Tables and transcripts: docs/real-model.md, between its markers. Every run is
// an ordinary `sinkflex train` or `sinkflex eval` with the options shown. The supervised control takes as many updates as
// the recipe, all on the expert's calls; its score is the evaluation before the one training step that follows it.

import { readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import {
  command,
  f2,
  f3,
  keep,
  load,
  measured,
  readJson,
  readLines,
  render,
  root,
  score,
  sinkflex,
} from "./recorded.mjs";

const record = join(root, "docs", "benchmarks", "real_model.json");
const page = join(root, "docs", "real-model.md");
const EMPTY = { training: {}, evals: {} };
/** Trials that share a forward. */
const TOGETHER = ["--concurrency", "32"];
const MODEL = ["--model", "smollm2-135m", ...TOGETHER];
/** The longest answer in training. An untrained model talks on: without a limit of its own it takes ten times as long. */
const SHORT = ["--max-new-tokens", "48"];

/** Report tasks whose conversations are shown: one of each family, in five styles; fixed before anything was trained. */
const SHOWN = [0, 6, 17, 38, 9];

const { values: options } = parseArgs({
  options: {
    seeds: { type: "string", multiple: true, default: ["1", "2", "3"] },
    only: { type: "string", multiple: true, default: [] },
    threads: { type: "string" },
    run: { type: "string" },
    render: { type: "boolean", default: false },
  },
});

const TOOL_CALLS = "configs/smollm2-tool-calls.yaml";
const MINI_SHOP = "configs/smollm2-mini-shop.yaml";

/** Reinforcement learning from the untrained model on, as many steps as half an hour had room for. */
const ALONE = ["--set", "warm_start=null", "--set", "train.steps=60", "--set", "eval.every=20"];

/** As many updates as the recipe's two parts together, all of them on the expert's calls. */
const SUPERVISED = ["--set", "warm_start.sft.demonstrations.0.steps=58", "--set", "train.steps=1"];
const SUPERVISED_SHOP = [
  "warm_start.sft.demonstrations.0.steps=34",
  "train.steps=1",
  "rollout.tasks_per_step=1", // the step after the score that counts
].flatMap((set) => ["--set", set]);

/** A run of the record with `earlier` is one of an earlier recipe or suite, as that says: what it learned still tells.
 *
 * `at`: the checkpoint whose score counts; `warm`: whether the one after the warm start is measured as well; `sampled`:
 * whether all are also measured at the temperature of the rollouts. Without `at` the run's own evaluations count. */
const TRAINED = {
  tool_calls: { config: TOOL_CALLS, suite: "tool-calls", at: "", warm: true, sampled: true, overrides: [] },
  tool_calls_alone: { config: TOOL_CALLS, suite: "tool-calls", at: "", warm: false, sampled: true, overrides: ALONE },
  tool_calls_supervised: {
    config: TOOL_CALLS,
    suite: "tool-calls",
    at: "@0",
    warm: false,
    sampled: true,
    overrides: SUPERVISED,
  },
  mini_shop: { config: MINI_SHOP, suite: "mini-shop", overrides: [] },
  mini_shop_supervised: { config: MINI_SHOP, suite: "mini-shop", overrides: SUPERVISED_SHOP },
};

const TOOL_CALLS_EVAL = ["eval", "tool-calls", ...MODEL, "--examples"];
const UNTRAINED = {
  examples_greedy: [...TOOL_CALLS_EVAL, "6"],
  examples_sampled: [...TOOL_CALLS_EVAL, "6", "--temperature", "0.8"],
  alone_greedy: [...TOOL_CALLS_EVAL, "0", ...SHORT],
  alone_sampled: [...TOOL_CALLS_EVAL, "0", "--temperature", "0.8", ...SHORT],
  mini_shop_untrained: ["eval", "mini-shop", ...MODEL, "--tasks", "100", ...SHORT],
  mini_shop_examples: [
    "eval",
    "mini-shop",
    ...MODEL,
    "--levels",
    "0",
    "1",
    "--examples",
    "2",
    "--max-turns",
    "10",
    ...SHORT,
  ],
  tau2: ["eval", "tau2-retail", ...MODEL, "--tasks", "3"],
};

function evaluate(what, args, shown = args) {
  const dir = sinkflex(what, args, ["--yes"]);
  const { mean, ci_low, ci_high, tasks, graded_mean, noop_mean, turns_mean, parse_failures, tool_errors, truncated } =
    readJson(join(dir, "report.json"));
  const trials = readLines(join(dir, "trials.jsonl"));
  const result = { command: command(shown), mean, ci_low, ci_high, tasks, graded_mean, noop_mean };
  Object.assign(result, { turns_mean, parse_failures, tool_errors, truncated });
  if (args[1] === "mini-shop") result.by_level = grouped(trials, ({ level }) => [level]);
  if (args[1] === "tool-calls") {
    result.by = grouped(trials, ({ task_id }) => task_id.split("-").slice(1, 3));
    const wanted = (task) => SHOWN.includes(Number(task.split("-").at(-1)));
    result.shown = Object.fromEntries(
      trials.filter((trial) => wanted(trial.task_id)).map((trial) => [trial.task_id, said(trial)]),
    );
  }
  return result;
}

/** Scores by each of a trial's `names`: its level, or family and style, as in `<split>-<family>-<style>-<index>`. */
function grouped(trials, names) {
  const groups = {};
  for (const trial of trials) {
    for (const name of names(trial)) {
      groups[name] ??= { tasks: 0, mean: 0 };
      const group = groups[name];
      group.mean = (group.mean * group.tasks + trial.reward) / ++group.tasks;
    }
  }
  return groups;
}

/** What was asked and what was answered. */
function said({ transcript, reward }) {
  const asked = transcript.findLastIndex((message) => message.role === "assistant");
  return { asked: transcript[asked - 1].content, answered: transcript[asked], reward };
}

/** The conversations of the same report tasks after the warm start and after the last step, as who said what. */
function conversations(dir) {
  const folder = join(dir, "episodes");
  const [before, after] = readdirSync(folder)
    .filter((name) => name.includes("-report"))
    .sort()
    .map((name) => readLines(join(folder, name)).slice(0, SHOWN.length).map(spoken));
  return { before, after };
}

/** The prompt holds example conversations; the customer's first words are its last turn. */
function spoken({ task_id, reward, segments }) {
  const WHO = { system: "customer", user: "customer", tool: "shop", text: "agent", tool_args: "agent" };
  const lines = segments
    .filter(({ kind }) => kind in WHO)
    .map(
      ({ kind, text }) =>
        `${WHO[kind].padEnd(8)}  ${bare(kind === "system" ? text.split("<|im_start|>").at(-1) : text)}`,
    );
  return { task_id, reward, lines };
}

/** Without the marks of the chat template, on one line. */
const bare = (text) =>
  text
    .replaceAll(/<\|im_(start|end)\|>|<\/?tool_\w+>/g, "")
    .replace(/^\s*user\n/, "")
    .replaceAll(/\s+/g, " ")
    .trim();

/** The folder of a run that is to be recorded as it is. */
function completed(dir, config, seed) {
  const [{ config: had }, { status }] = ["run.json", "summary.json"].map((name) => readJson(join(dir, name)));
  const name = basename(config, ".yaml");
  if (status === "completed" && had.name === name && had.seed === Number(seed)) return dir;
  throw new Error(`${dir} is ${status}, ${had.name}, seed ${had.seed}; wanted: completed, ${name}, seed ${seed}`);
}

function train(kind, seed) {
  const { config, suite, at, warm, sampled, overrides } = TRAINED[kind];
  const threads = options.threads ? ["--set", `threads=${options.threads}`] : [];
  const args = ["train", config, "--set", `seed=${seed}`, ...threads, ...overrides];
  const what = `${kind}, seed ${seed}`;
  const dir = options.run ? completed(options.run, config, seed) : sinkflex(what, args, ["--yes"]);
  if (at === undefined) return { ...measured(dir, args), shown: conversations(dir) };
  const evaluation = (at, ...more) =>
    evaluate(
      what,
      ["eval", suite, "--checkpoint", `${dir}${at}`, ...TOGETHER, ...more],
      ["eval", suite, "--checkpoint", `latest${at}`, ...TOGETHER, ...more],
    );
  const both = (at) => ({
    greedy: evaluation(at),
    ...(sampled ? { sampled: evaluation(at, "--temperature", "0.8") } : {}),
  });
  return { ...measured(dir, args), ...both(at), ...(warm ? { warm: both("@0") } : {}) };
}

const percent = (group) => (group === undefined ? "-" : f2(group.mean));
const GROUPS = ["shop", "calendar", "files", "messages", "travel", "direct", "indirect", "detail", "corrected"];

function toolCalls(data) {
  const rows = ["| agent | seed | greedy | sampled at 0.8 | wall time of the run |", "|---|---|---|---|---|"];
  const { examples_greedy, examples_sampled, alone_greedy, alone_sampled } = data.evals;
  const line = (name, seed, greedy, sampled, time) =>
    rows.push(`| ${name} | ${seed} | ${greedy ? score(greedy) : "-"} | ${sampled ? score(sampled) : "-"} | ${time} |`);
  line("untrained, no examples in the prompt", "-", alone_greedy, alone_sampled, "-");
  line("untrained, six examples", "-", examples_greedy, examples_sampled, "-");
  const runs = (kind) => Object.entries(data.training[kind] ?? {});
  const minutes = (run) => `${f2(run.wall_s / 60)} min`;
  const agents = [["untrained, six examples", "-", examples_greedy]];
  const trained = (name, kind) => {
    for (const [seed, run] of runs(kind)) {
      const told = run.earlier ? `${name}; ${run.earlier}` : name;
      line(told, seed, run.greedy, run.sampled, minutes(run));
      agents.push([told, seed, run.greedy]);
    }
  };
  trained("supervised alone, as many updates", "tool_calls_supervised");
  trained("reinforcement learning alone, 60 steps", "tool_calls_alone");
  for (const [seed, run] of runs("tool_calls")) {
    line("after the warm start", seed, run.warm.greedy, run.warm.sampled, "-");
    agents.push(["after the warm start", seed, run.warm.greedy]);
  }
  trained("**after reinforcement learning**", "tool_calls");
  rows.push("", "By family (`travel` is the one that training never shows) and by style, greedy:", "");
  rows.push(`| agent | seed | ${GROUPS.join(" | ")} |`, `|---|---|${GROUPS.map(() => "---|").join("")}`);
  for (const [name, seed, e] of agents.filter(([, , e]) => e)) {
    rows.push(`| ${name} | ${seed} | ${GROUPS.map((group) => percent(e.by[group])).join(" | ")} |`);
  }
  rows.push("", ...curve(runs("tool_calls")), "", ...shown(examples_greedy, runs("tool_calls")[0]?.[1].greedy));
  return rows;
}

/** The evaluations of runs, and what training saw in the same step. */
function curve(runs) {
  const rows = [
    "| seed | step | held out, greedy | training reward | entropy | groups without variance | log-prob gap |",
    "|---|---|---|---|---|---|---|",
  ];
  for (const [seed, run] of runs) {
    for (const e of run.evals) {
      const at = run.steps.find((one) => one.step === Math.max(e.step, 1));
      const figures = [at.reward, at.entropy, at.frac_reward_zero_std].map(f3).join(" | ");
      rows.push(
        `| ${seed} | ${e.step} | ${score(e)} ${e.split} | ${figures} | ${at.logprob_gap?.toExponential(1) ?? "-"} |`,
      );
    }
  }
  return rows;
}

function shown(before, after) {
  if (!before || !after) return [];
  const rows = ["The same five held-out tasks before and after (seed 1, greedy):", ""];
  for (const [id, { asked, answered, reward }] of Object.entries(before.shown)) {
    rows.push(`**${id}**: ${asked}`, "", "```");
    rows.push(`before  ${mark(reward)}  ${written(answered)}`);
    rows.push(`after   ${mark(after.shown[id].reward)}  ${written(after.shown[id].answered)}`, "```", "");
  }
  return rows;
}

const mark = (reward) => (reward === 1 ? "right" : "wrong");
const written = ({ content, tool_calls }) =>
  [content, ...(tool_calls ?? []).map((call) => `${call.name}(${JSON.stringify(call.arguments)})`)]
    .filter(Boolean)
    .join(" ")
    .replaceAll("\n", " ");

function miniShop(data) {
  const runs = Object.entries(data.training.mini_shop ?? {});
  if (runs.length === 0) return ["Not measured yet."];
  const rows = ["| agent | seed | score | one question | one write | turns | time |", "|---|---|---|---|---|---|---|"];
  const line = (name, seed, e, turns, time) => {
    const [question, write] = ["0", "1"].map((level) => f2(e.by_level?.[level]?.mean));
    rows.push(`| ${name} | ${seed} | ${score(e)} | ${question} | ${write} | ${f2(turns)} | ${time} |`);
  };
  const { mini_shop_untrained, mini_shop_examples } = data.evals;
  for (const [name, e] of [
    ["untrained, no examples, all levels", mini_shop_untrained],
    ["untrained, two examples", mini_shop_examples],
  ]) {
    if (e) line(name, "-", e, e.turns_mean, "-");
  }
  for (const [seed, { evals, wall_s }] of Object.entries(data.training.mini_shop_supervised ?? {})) {
    line("supervised alone, as many updates", seed, evals[0], evals[0].turns_per_episode, `${f2(wall_s / 60)} min`);
  }
  for (const [seed, { evals }] of runs) line("after the warm start", seed, evals[0], evals[0].turns_per_episode, "-");
  for (const [seed, { evals, wall_s }] of runs) {
    const last = evals.at(-1);
    line("**after reinforcement learning**", seed, last, last.turns_per_episode, `${f2(wall_s / 60)} min`);
  }
  rows.push("", ...curve(runs), "", "The first five report tasks after the run (seed 1, greedy):", "");
  const [, { shown }] = runs[0];
  for (const [i, { task_id, reward, lines }] of shown.after.entries()) {
    rows.push(`**${task_id}**: ${mark(reward)} (after the warm start ${mark(shown.before[i].reward)})`, "");
    rows.push("```", ...lines, "```", "");
  }
  return rows;
}

function tables(data) {
  const rows = ["### One call: tool-calls", "", ...toolCalls(data), "### A conversation: mini-shop", ""];
  rows.push(...miniShop(data), "", "### The untrained model on tau2-retail", "");
  const tau2 = data.evals.tau2;
  if (tau2) {
    const ended = Object.entries(tau2.truncated).map(([why, count]) => `${count} ${why}`);
    rows.push(
      `${score(tau2)} on ${tau2.tasks} tasks (doing nothing ${f3(tau2.noop_mean)}), ${f2(tau2.turns_mean)} turns a conversation, ` +
        `${tau2.parse_failures} outputs that could not be read, ${tau2.tool_errors} calls in error; cut: ${ended.join(", ") || "none"}.`,
      "",
    );
  }
  rows.push("### Commands", "", "```");
  for (const kind of Object.keys(TRAINED)) {
    for (const run of Object.values(data.training[kind] ?? {}).filter((run) => !run.earlier)) {
      const { command, greedy, sampled, warm } = run;
      const evals = [greedy, sampled, warm?.greedy, warm?.sampled].filter(Boolean); // mini-shop: those of the run itself
      rows.push(command, ...evals.map((e) => e.command));
    }
  }
  rows.push(...Object.values(data.evals).map((e) => e.command), "```", "");
  rows.push(`Machine: ${data.machine}. Record: [benchmarks/real_model.json](benchmarks/real_model.json).`);
  return rows.join("\n");
}

const wanted = (kind) => !options.render && (options.only.length === 0 || options.only.includes(kind));
for (const [name, args] of Object.entries(UNTRAINED).filter(([name]) => wanted(name))) {
  const result = evaluate(name, args);
  keep(record, EMPTY, (data) => {
    data.evals[name] = result;
  });
}
for (const kind of Object.keys(TRAINED).filter(wanted)) {
  for (const seed of options.seeds) {
    const result = train(kind, seed);
    keep(record, EMPTY, (data) => {
      data.training[kind] = { ...data.training[kind], [seed]: result };
    });
  }
}
render(page, tables(load(record, EMPTY)));
