import { describe, expect, it } from "vitest";
import { allPaths } from "../../../src/config/keys.js";
import { FOREIGN } from "../../../src/config/names.js";
import { configOf, echoOf, problemOf, problemsOf, SMALLEST } from "./check.js";

describe("public cases", () => {
  it("B02 a group of one is refused at the config check", () => {
    const problem = problemOf(`${SMALLEST}rollout:\n  group_size: 1\n`);
    expect(problem).toMatchObject({ code: "SF-CONFIG-RANGE", where: { line: 5, col: 15 } });
    expect(problem.what).toBe("`rollout.group_size` must be a whole number, 2 or more, but is `1`");
    expect(problem.why).toMatch(/alone it is always 0/);
    expect(configOf(`${SMALLEST}rollout: {group_size: 2}\n`).rollout.group_size).toBe(2);
  });

  it("B11 aggregate constant_length without its constant is refused, and so is the constant without it", () => {
    const missing = problemOf(`${SMALLEST}algorithm: {aggregate: constant_length}\n`);
    expect(missing).toMatchObject({ code: "SF-CONFIG-MISSING-KEY", where: { line: 4, col: 24 } });
    expect(missing.why).toMatch(/padded width/);
    const idle = problemOf(`${SMALLEST}algorithm: {constant_length: 10}\n`);
    expect(idle).toMatchObject({ code: "SF-CONFIG-CONFLICT", where: { line: 4, col: 13 } });
    const both = configOf(`${SMALLEST}algorithm: {aggregate: constant_length, constant_length: 10}\n`);
    expect(both.algorithm.constant_length).toBe(10);
  });

  it("B15 top_p, top_k and their kin are refused with the kept mass as the reason", () => {
    const [p, k, minP, penalty] = problemsOf(
      `${SMALLEST}rollout:\n  top_p: 0.8\n  top_k: 50\n  min_p: 0.1\n  repetition_penalty: 1.1\n`,
    );
    expect(p).toMatchObject({ code: "SF-CONFIG-RANGE", where: { line: 5, col: 10 } });
    expect(p?.why).toMatch(/kept probability mass \(0\.8 for top_p 0\.8\)/);
    expect(k).toMatchObject({ code: "SF-CONFIG-RANGE", where: { line: 6 } });
    expect(k?.why).toMatch(/kept probability mass/);
    for (const unknown of [minP, penalty]) {
      expect(unknown?.code).toBe("SF-CONFIG-UNKNOWN-KEY");
      expect(unknown?.why).toMatch(/falsifies every importance ratio/);
    }
    expect(configOf(`${SMALLEST}rollout: {top_p: 1.0, top_k: 0}\n`).rollout).toMatchObject({ top_p: 1, top_k: 0 });
  });

  it("B23 clip bounds are offsets", () => {
    const interval = problemOf(`${SMALLEST}algorithm: {clip_low: 0.8, clip_high: 1.28}\n`);
    expect(interval).toMatchObject({ code: "SF-CONFIG-CONFLICT", where: { line: 4, col: 13 } });
    expect(interval.fix).toMatch(/offsets: did you mean 0\.2\/0\.28\?/);
    expect(problemOf(`${SMALLEST}algorithm: {clip_high: 1.28}\n`).fix).toMatch(/0\.2\/0\.28/);
    expect(configOf(`${SMALLEST}algorithm: {clip_low: 0.2}\n`).algorithm).toMatchObject({
      clip_low: 0.2,
      clip_high: 0.2,
    });
    const lower = `${SMALLEST}algorithm: {clip_low: 0.28, clip_high: 0.2}\n`;
    expect(configOf(lower).algorithm).toMatchObject({ clip_low: 0.28, clip_high: 0.2 });
    expect(echoOf(lower)).toEqual([
      "algorithm.clip_high 0.2 is below clip_low 0.28: ratios are clipped to 0.72 ... 1.2",
    ]);
    expect(problemOf(`${SMALLEST}algorithm: {clip_low: -0.1}\n`).code).toBe("SF-CONFIG-RANGE");
    expect(problemOf(`${SMALLEST}algorithm: {clip_low: 1.2}\n`).why).toMatch(/offset from 1/);
  });

  it("B48 attention without sinks is refused with the list of what is accepted; the default is one with sinks", () => {
    for (const impl of ["sdpa", "flash_attention_2"]) {
      for (const text of [`attention: ${impl}`, `attention: {impl: ${impl}}`]) {
        const problem = problemOf(`${SMALLEST}${text}\n`);
        expect(`${problem.what} ${problem.fix}`).toMatch(/`auto`, `eager`, `flash`, `flex` or `triton`/);
        expect(problem.why).toMatch(/keeps the learned sinks/);
      }
    }
    expect(configOf(SMALLEST).attention.impl).toBe("auto");
    expect(problemOf(`${SMALLEST}attention: eager\n`).fix).toBe("Write `attention: {impl: eager}`.");
  });

  it("B103 keep 0 is refused: it would delete every checkpoint", () => {
    const problem = problemOf(`${SMALLEST}checkpoint: {keep: 0}\n`);
    expect(problem).toMatchObject({ code: "SF-CONFIG-RANGE", where: { line: 4, col: 20 } });
    expect(problem.why).toMatch(/delete every checkpoint/);
  });

  it("B111 misspelt, misplaced and foreign keys are all reported at once, each with the right name", () => {
    const text = `learning_rte: 1e-6\nlr: 1e-5\nnum-epochs: 2\n${SMALLEST}optim:\n  warmup-steps: 3\n  lrr: 1e-4\n`;
    const problems = problemsOf(text);
    expect(problems.map(({ where }) => [where?.line, where?.col])).toEqual([
      [1, 1],
      [2, 1],
      [3, 1],
      [8, 3],
      [9, 3],
    ]);
    expect(problems.map(({ what }) => what)).toEqual([
      "unknown key `learning_rte` at the top level",
      "`lr` does not belong at the top level",
      "unknown key `num-epochs` at the top level",
      "unknown key `warmup-steps` in `optim`",
      "unknown key `lrr` in `optim`",
    ]);
    expect(problems.map(({ fix }) => fix)).toEqual([
      "SinkFlex calls it `optim.lr`:\n  optim: {lr: 1e-6}",
      "Move it to `optim` or `warm_start.sft`:\n  optim: {lr: 1e-5}",
      "SinkFlex calls it `algorithm.epochs`:\n  algorithm: {epochs: 2}",
      "Did you mean `warmup_steps`?",
      "Did you mean `lr`?",
    ]);
  });
});

describe("wrong values", () => {
  it.each([
    ["train: {steps: 0}", "SF-CONFIG-RANGE", /steps` must be a whole number, 1 or more, but is `0`/, /./],
    ["train: {steps: 2.5}", "SF-CONFIG-RANGE", /whole number/, undefined],
    ["train: {steps: ten}", "SF-CONFIG-TYPE", /but is `ten`/, undefined],
    ["train: {steps: [5]}", "SF-CONFIG-TYPE", /but is a list/, undefined],
    ["train: {steps: null}", "SF-CONFIG-TYPE", /but is `null`/, undefined],
    ["train: 5", "SF-CONFIG-TYPE", /must be a section/, undefined],
  ])("%s", (line, code, what, why) => {
    const problem = problemOf(`model: {preset: tiny-gpt-oss}\nenv: {suite: mini-shop}\n${line}\n`);
    expect(problem.code).toBe(code);
    expect(problem.what).toMatch(what);
    if (why) expect(problem.why).toMatch(why);
  });

  it.each([
    ["seed: -1", "SF-CONFIG-RANGE", "The default is `0`."],
    ["seed: 9007199254740993", "SF-CONFIG-RANGE", "The default is `0`."],
    ["threads: 0", "SF-CONFIG-RANGE", "The default is `auto`."],
    ["threads: all", "SF-CONFIG-TYPE", "The default is `auto`."],
    ["device: gpu", "SF-CONFIG-CHOICE", undefined],
    ["device: cudo", "SF-CONFIG-CHOICE", "Did you mean `cuda`?"],
    ["optim: {lr: .inf}", "SF-CONFIG-RANGE", "The default is `0.001`."],
    ["optim: {lr: .nan}", "SF-CONFIG-RANGE", "The default is `0.001`."],
    ["optim: {lr: null}", "SF-CONFIG-TYPE", "Remove the key to take its default, `0.001`."],
    ["optim: {betas: [0.9]}", "SF-CONFIG-RANGE", "The default is `[0.9,0.95]`."],
    ["eval: off", "SF-CONFIG-TYPE", "Write `eval: null` to switch it off."],
    ["eval: false", "SF-CONFIG-TYPE", "Write `eval: null` to switch it off."],
    ["eval: {suites: mini-shop}", "SF-CONFIG-TYPE", "A list is written in brackets: `suites: [mini-shop]`."],
    ["eval: {suites: []}", "SF-CONFIG-RANGE", undefined],
    ["eval: {split: 3}", "SF-CONFIG-TYPE", 'Put it in quotes to make it text: `"3"`.'],
    [
      "algorithm: {mask_truncated: off}",
      "SF-CONFIG-TYPE",
      "YAML 1.2 knows only true and false: `mask_truncated: false`.",
    ],
    [
      "algorithm: {mask_truncated: yes}",
      "SF-CONFIG-TYPE",
      "YAML 1.2 knows only true and false: `mask_truncated: true`.",
    ],
    [
      "optim: fast",
      "SF-CONFIG-TYPE",
      "Its keys are `lr`, `betas`, `weight_decay`, `warmup_steps`, `schedule`, `grad_clip`.",
    ],
    ["name: -x", "SF-CONFIG-RANGE", undefined],
  ])("%s", (line, code, fix) => {
    const problem = problemOf(`${SMALLEST}${line}\n`);
    expect(problem.code).toBe(code);
    expect(problem.fix).toBe(fix);
    expect(problem.where).toMatchObject({ file: "my.yaml", line: 4 });
  });

  it("suggests the nearest suite and preset", () => {
    const problems = problemsOf("model: {preset: tiny-gptoss}\nenv: {suite: tau2_retail}\ntrain: {steps: 1}\n");
    expect(problems.map(({ fix }) => fix)).toEqual(["Did you mean `tiny-gpt-oss`?", "Did you mean `tau2-retail`?"]);
  });

  it("places a problem inside a list", () => {
    const text = `${SMALLEST}warm_start:\n  sft:\n    demonstrations:\n      - {agent: expert, steps: 5}\n      - {agent: exprt}\n`;
    const [missing, choice] = problemsOf(text);
    expect(missing?.what).toBe("`warm_start.sft.demonstrations[1].steps` is missing");
    expect(choice).toMatchObject({ where: { line: 8, col: 17 }, fix: "Did you mean `expert`?" });
  });
});

describe("what is missing", () => {
  it("names every required key", () => {
    expect(problemsOf("seed: 1\n").map(({ what }) => what)).toEqual([
      "`model` is missing",
      "`env.suite` is missing",
      "`train.steps` is missing",
    ]);
  });

  it("points to the section when that was written", () => {
    const problem = problemOf("model: {preset: tiny-gpt-oss}\nenv:\n  split: train\ntrain: {steps: 1}\n");
    expect(problem).toMatchObject({
      code: "SF-CONFIG-MISSING-KEY",
      what: "`env.suite` is missing",
      where: { line: 2 },
    });
    expect(problem.fix).toBe("Add it, for example:\n  env: {suite: mini-shop}");
  });

  it("does not call a misspelt key missing too", () => {
    expect(problemOf(SMALLEST.replace("steps", "stpes")).fix).toBe("Did you mean `steps`?");
    expect(problemOf(SMALLEST.replace("preset: tiny-gpt-oss", "model_name: x")).fix).toMatch(/`model.path`/);
  });

  it("wants either a preset or a path", () => {
    expect(problemOf(SMALLEST.replace("preset: tiny-gpt-oss", "dtype: auto")).what).toMatch(/needs `preset` or `path`/);
    const both = problemsOf(SMALLEST.replace("tiny-gpt-oss", "tiny-gpt-oss, path: ."));
    expect(both.map(({ what }) => what)).toContain("`model` has both `preset` and `path`");
  });
});

describe("rules between keys", () => {
  it.each([
    ["env: {suite: tau2-retail, levels: [1]}", /has no levels/],
    ["env: {suite: mini-shop, system_prompt: full}", /cannot read mini-shop's system prompt/],
    [
      "env: {suite: tau2-retail}\nwarm_start: {sft: {demonstrations: [{agent: gold, steps: 1, levels: [1]}]}}",
      /has no levels/,
    ],
    ["env: {suite: mini-shop}\nrollout: {max_new_tokens: 100, max_total_tokens: 50}", /a turn may have 100 tokens/],
    [
      "env: {suite: mini-shop}\nrollout: {tasks_per_step: 1, group_size: 2}\nalgorithm: {mini_batches: 3}",
      /only 2 episodes/,
    ],
  ])("%s", (lines, what) => {
    const problem = problemOf(`model: {preset: tiny-gpt-oss}\ntrain: {steps: 5}\n${lines}\n`);
    expect(problem.code).toBe("SF-CONFIG-CONFLICT");
    expect(problem.what).toMatch(what);
  });

  it("says nothing about a value that has a problem of its own", () => {
    expect(problemOf(`${SMALLEST}algorithm: {mini_batches: -3}\n`).code).toBe("SF-CONFIG-RANGE");
  });
});

it("foreign names lead to keys that exist, and hide none of ours", () => {
  const ours = allPaths().map((path) => path.join("."));
  expect(Object.values(FOREIGN).filter((path) => !ours.includes(path))).toEqual([]);
  const words = new Set(allPaths().map((path) => path.at(-1)));
  expect(Object.keys(FOREIGN).filter((name) => words.has(name))).toEqual([]);
});
