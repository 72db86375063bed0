import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { UserError } from "../../../src/errors.js";
import { type Checkpoint, settingsOf } from "../../../src/eval/agents.js";
import { evalRequest } from "../../../src/eval/request.js";

const problems = (typed: object): string[] => {
  try {
    evalRequest({ suite: "mini-shop", ...typed });
  } catch (error) {
    if (error instanceof UserError) return error.problems.map(({ what }) => what);
    throw error;
  }
  return [];
};

describe("the request of an evaluation", () => {
  it("leaves open what was not typed", () => {
    const { asked, agent } = evalRequest({ suite: "tau2-retail", agent: "gold" });
    expect(agent).toEqual({ kind: "scripted", name: "gold" });
    expect(asked).toMatchObject({
      split: null,
      tasks: null,
      task_ids: null,
      trials: 1,
      temperature: null,
      budget: null,
    });
    expect(asked.command).toBe("sinkflex eval tau2-retail --agent gold");
  });

  it.each([
    ["200000", { tokens: 200_000 }],
    ["200k", { tokens: 200_000 }],
    ["1.5M", { tokens: 1_500_000 }],
    ["10 tokens", { tokens: 10 }],
    ["$2.50", { money: 2.5 }],
  ])("a budget of %s", (typed, budget) => {
    expect(evalRequest({ suite: "mini-shop", agent: "noop", budget: typed }).asked.budget).toEqual(budget);
  });

  it.each(["0", "$0", "-5", "lots", "2,50", "$"])("a budget of %s is none", (budget) => {
    expect(problems({ agent: "noop", budget })).toEqual([`\`--budget ${budget}\` is no budget`]);
  });

  it("a checkpoint is a run, with a step or without", () => {
    const agent = (checkpoint: string) => evalRequest({ suite: "mini-shop", checkpoint }).agent;
    expect(agent("latest")).toEqual({ kind: "checkpoint", name: "latest", step: null });
    expect(agent("demo-20260101-120000@40")).toEqual({ kind: "checkpoint", name: "demo-20260101-120000", step: 40 });
  });

  it("levels are numbers, and say no more where tasks are named", () => {
    const { asked } = evalRequest({ suite: "mini-shop", agent: "expert", levels: ["1", "0"] });
    expect(asked.levels).toEqual([1, 0]);
    expect(asked.command).toBe("sinkflex eval mini-shop --agent expert --levels 1 0");
    expect(problems({ agent: "expert", levels: ["0,1"] })).toEqual(["`--levels 0,1` is no level"]);
    expect(problems({ agent: "expert", levels: ["0"], task: ["a"] })).toEqual(["--levels and --task were both given"]);
  });

  it("a checkpoint is asked as it was trained, and on another suite by that suite's own measure", () => {
    const dir = mkdtempSync(join(tmpdir(), "sinkflex-run-"));
    const env = {
      suite: "mini-shop",
      system_prompt: "full",
      max_turns: 10,
      max_errors: 3,
      examples: 2,
      levels: [0, 1],
    };
    const config = { env, rollout: { max_new_tokens: 48, max_total_tokens: 3072 } };
    writeFileSync(join(dir, "run.json"), JSON.stringify({ v: 1, run: "demo", config }));
    const checkpoint: Checkpoint = { kind: "checkpoint", run: "demo", run_dir: dir, checkpoint: "", step: 0 };
    const anywhere = { system_prompt: "full", max_turns: 10, max_new_tokens: 48 };
    const own = { levels: [0, 1], examples: 2, max_errors: 3, max_total_tokens: 3072 };
    expect(settingsOf(checkpoint, "mini-shop")).toEqual({ ...anywhere, ...own });
    expect(settingsOf(checkpoint, "tool-calls")).toEqual(anywhere);
    rmSync(dir, { recursive: true });
  });

  it("a server's address loses its last slash, and money needs prices", () => {
    const server = { endpoint: "http://host:8000/v1/", modelName: "m" };
    expect(evalRequest({ suite: "mini-shop", ...server }).agent).toEqual({
      kind: "endpoint",
      url: "http://host:8000/v1",
      model: "m",
    });
    expect(problems({ ...server, budget: "$1" })).toEqual(["a budget in money needs prices"]);
    expect(problems({ ...server, budget: "$1", prices: "0.5/1.5" })).toEqual([]);
  });

  it("tells every problem at once", () => {
    const typed = { suite: "mini-shp", agent: "noop", model: "/m", trials: "0", temperature: "warm", user: "robot" };
    expect(problems(typed)).toEqual([
      "there is no suite `mini-shp`",
      "`--trials 0` is not a number",
      "`--user robot` is unknown",
      "`--temperature warm` is not a number",
      "--agent and --model were given",
    ]);
  });
});
