import { describe, expect, it } from "vitest";
import { LONGEST } from "../../../src/bench/choices.js";
import { benchRequest } from "../../../src/bench/request.js";
import { UserError } from "../../../src/errors.js";

type Typed = Parameters<typeof benchRequest>[0];

function problems(typed: Typed) {
  try {
    benchRequest(typed);
  } catch (error) {
    if (error instanceof UserError) {
      expect(error.exitCode).toBe(2);
      return error.problems.map(({ code, what, why, fix }) => ({ code, what, text: [why, fix].join(" ") }));
    }
    throw error;
  }
  throw new Error("it was not refused");
}

describe("a request", () => {
  it("of nothing leaves the choice to the worker", () => {
    const { v, verb, what, device, dtype, command, ...rest } = benchRequest({});
    expect({ v, verb, what, device, dtype, command }).toEqual({
      v: 1,
      verb: "bench",
      what: "attention",
      device: "auto",
      dtype: "auto",
      command: "sinkflex bench",
    });
    expect([...new Set(Object.values(rest))]).toEqual([null]);
  });

  it("holds what was typed as numbers, each length and implementation once, and the command", () => {
    const typed = {
      seq: ["2048", "4096", "2048"],
      impl: ["eager", "flash", "eager"],
      device: "cpu",
      dtype: "float32",
      heads: "16/2",
      headDim: "64",
      window: "128",
      repeat: "7",
      threads: "2",
      secondsPerCell: "60",
    };
    expect(benchRequest(typed)).toEqual({
      v: 1,
      verb: "bench",
      what: "attention",
      seq: [2048, 4096],
      impls: ["eager", "flash"],
      device: "cpu",
      dtype: "float32",
      num_q_heads: 16,
      num_kv_heads: 2,
      head_dim: 64,
      window: 128,
      vocabulary: null,
      hidden: null,
      head: null,
      geometry: null,
      layers: null,
      train: null,
      repeat: 7,
      seconds_per_cell: 60,
      threads: 2,
      command:
        "sinkflex bench --seq 2048 4096 2048 --impl eager flash eager --device cpu --dtype float32 --heads 16/2 " +
        "--head-dim 64 --window 128 --repeat 7 --seconds-per-cell 60 --threads 2",
    });
    const model = benchRequest({ what: "model", geometry: "scaled", layers: "4", train: "lora", impl: ["ours"] });
    expect(model).toMatchObject({ what: "model", geometry: "scaled", layers: 4, train: "lora", impls: ["ours"] });
    const head = benchRequest({ what: "log-prob", vocabulary: "201088", hidden: "2880", head: "trained" });
    expect(head).toMatchObject({ what: "log-prob", vocabulary: 201_088, hidden: 2880, head: "trained" });
  });

  it("keeps paths out of the command: they do not decide what is measured", () => {
    expect(benchRequest({ seq: ["8"], out: "/home/x.json", compare: "/home/y.json" } as Typed).command).toBe(
      "sinkflex bench --seq 8",
    );
  });
});

describe("a length", () => {
  it.each(["0", "abc", "-5", "1e9", "1.5", "", " 8", "0x10", String(LONGEST + 1)])("`%s` is refused", (text) => {
    const [problem] = problems({ seq: ["2048", text] });
    expect(problem).toMatchObject({ code: "SF-USAGE-ARGUMENT", what: `\`--seq ${text}\` is not a length` });
    expect(problem?.text).toContain(`from 1 to ${LONGEST}`);
  });

  it("from 1 to the longest is taken", () => {
    expect(benchRequest({ seq: ["1", String(LONGEST)] }).seq).toEqual([1, LONGEST]);
  });

  it.each([
    ["4k", "Did you mean `4096`?"],
    ["32K", "Did you mean `32768`?"],
    ["2048,4096", "`--seq 2048 4096`"],
  ])("`%s` is explained", (text, hint) => expect(problems({ seq: [text] })[0]?.text).toContain(hint));
});

describe("a word", () => {
  it.each<[Typed, string, string]>([
    [{ impl: ["flahs"] }, "`--impl flahs` is unknown", "Did you mean `flash`?"],
    [{ impl: ["tritn"] }, "`--impl tritn` is unknown", "Did you mean `triton`?"],
    [{ what: "atention" }, "`--what atention` is unknown", "Did you mean `attention`?"],
    [{ what: "logprob" }, "`--what logprob` is unknown", "Did you mean `log-prob`?"],
    [{ dtype: "bfloat" }, "`--dtype bfloat` is unknown", "Did you mean `bfloat16`?"],
    [{ dtype: "bf16" }, "`--dtype bf16` is unknown", "Did you mean `bfloat16`?"],
    [{ device: "gpu" }, "`--device gpu` is unknown", "Did you mean `cuda`?"],
    [{ what: "log-prob", head: "frozn" }, "`--head frozn` is unknown", "Did you mean `frozen`?"],
    [{ what: "model", train: "lroa" }, "`--train lroa` is unknown", "Did you mean `lora`?"],
    [{ what: "model", geometry: "gpt-oss" }, "`--geometry gpt-oss` is unknown", "Did you mean `gpt-oss-20b`?"],
    [{ dtype: "int8" }, "`--dtype int8` is unknown", "It can be auto, float32, bfloat16 or float16."],
  ])("%j: the one that was meant is named", (typed, what, hint) => {
    const [problem, ...more] = problems(typed);
    expect(more).toEqual([]);
    expect(problem?.what).toBe(what);
    expect(problem?.text).toContain(hint);
  });

  it("an implementation of something else is sent there", () => {
    const [problem] = problems({ impl: ["naive"] });
    expect(problem?.what).toBe("`--impl naive` is an implementation of log-prob, not of attention");
    expect(problem?.text).toContain("`--what log-prob`");
    expect(problems({ what: "model", impl: ["flash"] })[0]?.what).toContain("an implementation of attention");
    expect(benchRequest({ what: "model", impl: ["eager"] }).impls).toEqual(["eager"]);
  });
});

describe("sizes", () => {
  it.each(["64", "64/", "/8", "64/8/2", "a/b", "0/8", "64/0", "-64/8", "4097/1"])("--heads %s is refused", (heads) => {
    expect(problems({ heads })[0]).toMatchObject({ what: `\`--heads ${heads}\` is not a pair of head counts` });
  });

  it("query heads must be a multiple of the key heads", () => {
    const [problem] = problems({ heads: "64/7" });
    expect(problem?.what).toContain("64 query heads cannot share 7 key heads evenly");
    expect(problem?.text).toContain("`--heads 70/7`");
    expect(benchRequest({ heads: "8/8" })).toMatchObject({ num_q_heads: 8, num_kv_heads: 8 });
  });

  it.each<[Typed, string]>([
    [{ window: "0" }, "`--window 0` is not a window"],
    [{ headDim: "x" }, "`--head-dim x` is not a head_dim"],
    [{ repeat: "-1" }, "`--repeat -1` is not a number of repetitions"],
    [{ threads: "0" }, "`--threads 0` is not a number of threads"],
    [{ what: "log-prob", vocabulary: "1e5" }, "`--vocabulary 1e5` is not a vocabulary size"],
    [{ what: "model", layers: "0" }, "`--layers 0` is not a number of layers"],
  ])("%j is refused with what is allowed", (typed, what) => {
    expect(problems(typed)).toEqual([
      { code: "SF-USAGE-ARGUMENT", what, text: expect.stringMatching(/Give a whole number from 1 to \d+\./) },
    ]);
  });

  it.each<[Typed, string, string]>([
    [{ vocabulary: "8" }, "`--vocabulary` does not belong to `--what attention`", "`--what log-prob`"],
    [{ what: "log-prob", window: "8" }, "`--window` does not belong to `--what log-prob`", "`--what attention`"],
    [{ what: "model", heads: "8/8" }, "`--heads` does not belong to `--what model`", "`--what attention`"],
    [{ what: "model", head: "frozen" }, "`--head` does not belong to `--what model`", "`--what log-prob`"],
    [{ train: "lora" }, "`--train` does not belong to `--what attention`", "`--what model`"],
  ])("%j: a size of another subject is refused with the reason", (typed, what, fix) => {
    const [problem] = problems(typed);
    expect(problem).toMatchObject({ code: "SF-USAGE-OPTION", what });
    expect(problem?.text).toContain(fix);
    expect(problem?.text).toMatch(/ has /);
  });
});

it("every problem is told at once", () => {
  const found = problems({ what: "model", seq: ["-5", "x"], impl: ["flash"], train: "lroa", heads: "8/8" });
  expect(found.map(({ what }) => what)).toEqual([
    "`--heads` does not belong to `--what model`",
    "`--seq -5` is not a length",
    "`--seq x` is not a length",
    "`--impl flash` is an implementation of attention, not of model",
    "`--train lroa` is unknown",
  ]);
  expect(problems({ what: "x", impl: ["anything"], vocabulary: "8" })).toHaveLength(1); // what it is has to be known first
});
