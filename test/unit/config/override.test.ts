import { describe, expect, it } from "vitest";
import { configOf, echoOf, problemOf, problemsOf, SMALLEST } from "./check.js";

const FILE = `${SMALLEST}optim:\n  lr: 1e-6\n`;

describe("--set", () => {
  it("B114 wins over the file, and both values are shown", () => {
    expect(configOf(FILE, ["optim.lr=5e-4"]).optim.lr).toBe(5e-4);
    expect(echoOf(FILE, ["optim.lr=5e-4"])).toEqual(["--set optim.lr=5e-4 wins over 1e-6 in my.yaml:5"]);
    expect(echoOf(FILE, ["seed=3"])).toEqual(["--set seed=3 instead of the default 0"]);
    expect(echoOf(FILE, ["name=x"])).toEqual(["--set name=x"]);
    expect(echoOf(FILE, ["optim={lr: 1}"])).toEqual(["--set optim={lr: 1} wins over what stands in my.yaml:5"]);
  });

  it("B129 is repeatable, keeps every value and the types of YAML; the last of one key wins", () => {
    const config = configOf(FILE, ["seed=1", "train.steps=7", "env.levels=[0, 2]", "eval=null", "seed=2", "name=1e5x"]);
    expect(config).toMatchObject({ seed: 2, train: { steps: 7 }, env: { levels: [0, 2] }, eval: null, name: "1e5x" });
    expect(echoOf(FILE, ["seed=1", "seed=2"])[1]).toBe("--set seed=2 wins over an earlier --set");
  });

  it("makes sections that the file does not have", () => {
    expect(configOf(SMALLEST, ["algorithm.kl.coef=0.1"]).algorithm.kl).toEqual({ coef: 0.1, estimator: "k3" });
  });

  it("reaches into lists", () => {
    const text = `${SMALLEST}warm_start: {sft: {demonstrations: [{agent: expert, steps: 5}]}}\n`;
    for (const path of ["warm_start.sft.demonstrations.0.steps", "warm_start.sft.demonstrations[0].steps"]) {
      expect(configOf(text, [`${path}=9`]).warm_start?.sft.demonstrations).toEqual([
        { agent: "expert", steps: 9, levels: null },
      ]);
    }
    const beyond = problemOf(text, ["warm_start.sft.demonstrations.1.steps=9"]);
    expect(beyond.what).toMatch(/has only 1 items/);
  });

  it("repairs what the file has wrong", () => {
    expect(configOf(FILE.replace("1e-6", "fast"), ["optim.lr=1"]).optim.lr).toBe(1);
    expect(configOf(`${SMALLEST}eval: {evry: 1}\n`, ["eval=null"]).eval).toBeNull();
  });

  it("is checked like the file, and the problem points into the argument", () => {
    const problem = problemOf(FILE, ["optim.lr=fast"]);
    expect(problem).toMatchObject({
      code: "SF-CONFIG-TYPE",
      where: { file: "--set", line: 0, col: 16, length: 4, source: "--set optim.lr=fast" },
    });
    expect(problemOf(FILE, ["rollout.group_size= 1"])).toMatchObject({ code: "SF-CONFIG-RANGE", where: { col: 27 } });
    expect(problemOf(FILE, ["rollout={group_size: 1}"])).toMatchObject({ where: { col: 28, length: 1 } });
    expect(problemOf(FILE, ["seed=0123"]).code).toBe("SF-CONFIG-AMBIGUOUS");
  });

  it("problems of the file come first, those of the command line after them", () => {
    const problems = problemsOf(FILE.replace("1e-6", "fast"), ["seed=-1", "sed=1"]);
    expect(problems.map(({ where }) => where?.file)).toEqual(["my.yaml", "--set", "--set"]);
  });

  it.each([
    ["lr=1e-4", "SF-CONFIG-MISPLACED-KEY", "Did you mean `--set optim.lr=1e-4`?"],
    ["optim.lrr=1", "SF-CONFIG-UNKNOWN-KEY", "Did you mean `--set optim.lr=1`?"],
    ["optimm.lr=1", "SF-CONFIG-UNKNOWN-KEY", "Did you mean `--set optim.lr=1`?"],
    ["optim.lr.x=1", "SF-CONFIG-UNKNOWN-KEY", expect.anything()],
    ["__proto__.x=1", "SF-CONFIG-UNKNOWN-KEY", expect.anything()],
    ["optim.lr", "SF-CONFIG-SET", "Write for example `--set optim.lr=5e-4`."],
    ["=1", "SF-CONFIG-SET", "Write for example `--set optim.lr=5e-4`."],
    ["", "SF-CONFIG-SET", "Write for example `--set optim.lr=5e-4`."],
    ["seed=", "SF-CONFIG-SET", "Write a value; `null` is one, and `''` is empty text."],
    ["seed=#1", "SF-CONFIG-SET", "Write a value; `null` is one, and `''` is empty text."],
    ["name=a: b", "SF-CONFIG-SET", expect.stringMatching(/quotes/)],
    ["name=[a", "SF-CONFIG-SYNTAX", expect.anything()],
    ["train.steps=*x", "SF-CONFIG-ALIAS", expect.anything()],
  ])("--set %j is refused", (set, code, fix) => {
    expect(problemOf(FILE, [set])).toMatchObject({ code, fix, where: { file: "--set" } });
  });

  it("cannot set a key of a section that is switched off", () => {
    const problem = problemOf(`${SMALLEST}eval: null\n`, ["eval.every=5"]);
    expect(problem).toMatchObject({ code: "SF-CONFIG-SET", what: "`eval.every` cannot be set: `eval` is `null`" });
  });
});
