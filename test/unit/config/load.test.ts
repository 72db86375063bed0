import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadConfig } from "../../../src/config/load.js";
import { type Problem, UserError } from "../../../src/errors.js";
import { configOf, problemOf, problemsOf, SMALLEST } from "./check.js";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "sinkflex config "));
});
afterAll(() => rmSync(folder, { recursive: true }));

function written(content: string | Uint8Array, name = "my.yaml"): string {
  const file = join(folder, name);
  writeFileSync(file, content);
  return file;
}

async function fileProblem(file: string): Promise<Problem> {
  const error = await loadConfig(file).then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(error instanceof UserError)) throw error ?? new Error(`accepted: ${file}`);
  expect(error.exitCode).toBe(2);
  return error.problems[0] as Problem;
}

describe("the file", () => {
  it("resolves every default, in the order of the schema", async () => {
    const { config, echo, document } = await loadConfig(written(SMALLEST, "my shop (2).yaml"));
    expect(Object.keys(config)).toEqual(
      "name seed device threads model attention env rollout algorithm optim warm_start train eval checkpoint launch".split(
        " ",
      ),
    );
    expect(Object.keys(config.algorithm)).toEqual(
      "reward advantage normalize loss clip_low clip_high aggregate constant_length zero_variance mask_truncated mini_batches epochs kl".split(
        " ",
      ),
    );
    expect(config).toMatchObject({
      name: "my-shop-2-",
      algorithm: { clip_high: 0.2 },
      eval: { suites: ["mini-shop"] },
    });
    expect(echo).toEqual([`config ${document.file}`]);
    expect(new TextDecoder().decode(document.bytes)).toBe(SMALLEST);
  });

  it("that is missing is named, with the file that was probably meant", async () => {
    written(SMALLEST, "quick.yaml");
    const problem = await fileProblem(join(folder, "quik.yaml"));
    expect(problem.code).toBe("SF-CONFIG-FILE-MISSING");
    expect(problem.fix).toBe(`Did you mean \`${join(folder, "quick.yaml")}\`?`);
    expect((await fileProblem("optim.lr=1")).fix).toMatch(/--set optim\.lr=1/);
    expect((await fileProblem(join(folder, "quick.yaml", "x"))).code).toBe("SF-CONFIG-FILE-MISSING");
    expect((await fileProblem("a\0b")).code).toBe("SF-CONFIG-FILE-UNREADABLE");
  });

  it("that is a directory is refused as one", async () => {
    expect((await fileProblem(folder)).code).toBe("SF-CONFIG-FILE-DIRECTORY");
  });

  it("may be a pipe, and a device without an end is no trap", async () => {
    expect((await fileProblem("/dev/zero")).code).toBe("SF-CONFIG-FILE-TOO-LARGE");
    expect((await fileProblem("/dev/null")).code).toBe("SF-CONFIG-EMPTY");
  });

  it("may begin with a byte order mark and end its lines with CR LF", async () => {
    const text = `\u{feff}${SMALLEST}optim:\n  lr: fast\n`.replaceAll("\n", "\r\n");
    const problem = await fileProblem(written(text));
    expect(problem.where).toMatchObject({ line: 5, col: 7, length: 4, source: "  lr: fast" });
    await loadConfig(written(`\u{feff}${SMALLEST}`.replaceAll("\n", "\r\n")));
  });

  it("must be UTF-8 text", async () => {
    const latin1 = await fileProblem(written(Buffer.from(`${SMALLEST}name: caf\xe9\n`, "latin1")));
    expect(latin1).toMatchObject({ code: "SF-CONFIG-FILE-ENCODING", where: { line: 4, col: 10 } });
    const utf16 = await fileProblem(written(Buffer.from(`\u{feff}${SMALLEST}`, "utf16le")));
    expect(utf16.what).toMatch(/UTF-16/);
    expect((await fileProblem(written(new Uint8Array([0x50, 0x4b, 3, 4, 0, 0])))).what).toMatch(/not a text file/);
  });

  it("must hold keys with values", () => {
    for (const empty of ["", "# only a comment\n", "---\n", "null\n", "\n\n"])
      expect(problemOf(empty).code).toBe("SF-CONFIG-EMPTY");
    expect(problemOf("- a\n- b\n").what).toMatch(/is a list/);
    expect(problemOf("model:tiny\n").fix).toBe("A blank is missing after the colon: `model: tiny`.");
    expect(problemOf("just text\n").code).toBe("SF-CONFIG-NOT-A-MAPPING");
  });

  it("may be JSON", () => {
    const json = JSON.stringify(configOf(SMALLEST));
    expect(configOf(json)).toEqual(configOf(SMALLEST));
  });
});

describe("public cases", () => {
  it("B110 1e-5 is a number in every spelling, quoted it is text, and 1e3 is a whole number", () => {
    for (const lr of ["1e-5", "1E-5", "1.e-5", ".00001"]) {
      expect(configOf(`${SMALLEST}optim: {lr: ${lr}}\n`).optim.lr).toBe(1e-5);
    }
    expect(JSON.stringify(configOf(`${SMALLEST}optim: {lr: 1.E-5}\n`).optim.lr)).toBe("0.00001");
    const quoted = problemOf(`${SMALLEST}optim: {lr: "1e-5"}\n`);
    expect(quoted.what).toBe('`optim.lr` must be a number above 0, but is `"1e-5"`');
    expect(quoted.fix).toBe("In quotes it is text. Remove the quotes: `lr: 1e-5`.");
    expect(configOf(`${SMALLEST}rollout: {max_total_tokens: 1e3}\n`).rollout.max_total_tokens).toBe(1000);
  });

  it("B111 a list, an empty file and a bad indent are refused with line and column", () => {
    expect(problemOf("- model: x\n").where).toMatchObject({ line: 1, col: 1 });
    expect(problemOf("").where).toMatchObject({ line: 1, col: 1 });
    const indent = problemOf("env:\n  suite: mini-shop\n max_turns: 3\n");
    expect(indent).toMatchObject({ code: "SF-CONFIG-SYNTAX", where: { line: 3, col: 1 } });
  });

  it("B112 every form that YAML 1.1 reads otherwise is refused with what to write", () => {
    const fixes = (line: string) => problemOf(`${SMALLEST}${line}\n`);
    expect(fixes("rollout: {max_new_tokens: 16_384}").fix).toMatch(/`max_new_tokens: 16384`/);
    expect(fixes("algorithm: {mask_truncated: no}").fix).toMatch(/`mask_truncated: false`/);
    expect(fixes("seed: 0123")).toMatchObject({
      code: "SF-CONFIG-AMBIGUOUS",
      what: "`0123` may be 123 or a number in base 8",
    });
    expect(fixes("name: off")).toMatchObject({ code: "SF-CONFIG-AMBIGUOUS", fix: 'Put it in quotes: `name: "off"`.' });
    expect(fixes("env2: 1").code).toBe("SF-CONFIG-UNKNOWN-KEY");
    const tasks = (ids: string) => SMALLEST.replace("mini-shop", `mini-shop, tasks: [${ids}]`);
    expect(problemOf(tasks("12:30")).fix).toBe('Put it in quotes: `"12:30"`.');
    expect(problemOf(tasks("1_000")).code).toBe("SF-CONFIG-AMBIGUOUS");
    expect(problemOf(tasks("7")).fix).toBe('Put it in quotes to make it text: `"7"`.');
    expect(configOf(tasks('"12:30", "no", "7"')).env.tasks).toEqual(["12:30", "no", "7"]);
    expect(fixes("n: 4").fix).toMatch(/`rollout\.group_size`/);
    expect(problemOf(`%YAML 1.1\n---\n${SMALLEST}`).what).toMatch(/%YAML 1\.1/);
  });

  it("B113 merge keys are refused where they stand, and an unknown alias has a line", () => {
    const problems = problemsOf(`${SMALLEST}optim:\n  <<: *b\n  lr: 1e-6\n`);
    expect(problems).toMatchObject([{ code: "SF-CONFIG-MERGE-KEY", where: { line: 5, col: 3 } }]);
    const twice = problemsOf(`${SMALLEST}optim: {<<: {lr: 1}, <<: {lr: 2}}\n`).map(({ code }) => code);
    expect(twice).toEqual(["SF-CONFIG-MERGE-KEY", "SF-CONFIG-DUPLICATE-KEY"]);
    expect(problemOf(`${SMALLEST}optim: {<<: [{lr: 1}]}\n`).code).toBe("SF-CONFIG-MERGE-KEY");
    expect(problemOf(`${SMALLEST}seed: *x\n`)).toMatchObject({ code: "SF-CONFIG-ALIAS", where: { line: 4, col: 7 } });
    expect(problemOf(`${SMALLEST}eval: &e {tasks: *e}\n`).what).toMatch(/contains itself/);
    expect(configOf(`${SMALLEST}eval: {tasks: &n 30, report_tasks: *n}\n`).eval).toMatchObject({ report_tasks: 30 });
  });

  it("B114 a key given twice is refused with both lines", () => {
    const problem = problemOf(`${SMALLEST}optim:\n  lr: 1e-6\n  betas: [0.9, 0.95]\n  lr: 1e-5\n`);
    expect(problem).toMatchObject({ code: "SF-CONFIG-DUPLICATE-KEY", where: { line: 7, col: 3 } });
    expect(problem.what).toBe("`lr` is given twice, in lines 5 and 7");
    expect(problemOf(`${SMALLEST}optim: {lr: 1, lr: 1}\n`).what).toMatch(/both in line 4/);
  });

  it("B126 ~ is the home folder, a relative path starts at the config file, and blanks are no trouble", async () => {
    const model = join(folder, "a b", "tiny model");
    mkdirSync(model, { recursive: true });
    writeFileSync(join(model, "config.json"), "{}");
    const file = written(SMALLEST.replace("preset: tiny-gpt-oss", "path: ./tiny model"), "a b/c.yaml");
    const { config, echo } = await loadConfig(file);
    expect(config.model.path).toBe(model);
    expect(echo).toContain(`model.path: ${model}`);

    const home = problemOf(SMALLEST.replace("preset: tiny-gpt-oss", "path: ~/no such model"));
    expect(home.what).toBe(`\`model.path\` is neither a folder nor a file: ${join(homedir(), "no such model")}`);
    const escaped = problemOf(SMALLEST.replace("preset: tiny-gpt-oss", 'path: "C:\\new\\tmp"'));
    expect(escaped.fix).toBe("Write the path in single quotes: 'C:\\new\\tmp'.");
    expect(problemOf(SMALLEST.replace("preset: tiny-gpt-oss", 'path: "C:\\Users"')).fix).toMatch(/single quotes/);
    const noConfig = problemOf(SMALLEST.replace("preset: tiny-gpt-oss", `path: ${folder}`));
    expect(noConfig.what).toMatch(/no config\.json/);
  });

  it("model.path may be a GGUF file, or a hub id where no path can be meant", async () => {
    const modelOf = async (path: string) =>
      (await loadConfig(written(SMALLEST.replace("preset: tiny-gpt-oss", `path: ${path}`), "c/c.yaml"))).config.model;
    mkdirSync(join(folder, "c", "checkpoints"), { recursive: true });
    writeFileSync(join(folder, "c", "small.gguf"), "GGUF\u0003");
    writeFileSync(join(folder, "c", "notes.gguf"), "not that");
    expect((await modelOf("small.gguf")).path).toBe(join(folder, "c", "small.gguf"));
    expect((await modelOf("org/small-0.5B")).path).toBe("org/small-0.5B");
    const refused = async (path: string) =>
      (await modelOf(path).catch((error) => error.problems[0])) as { what: string };
    expect((await refused("notes.gguf")).what).toMatch(/is a file, and not a GGUF file: .*notes\.gguf$/);
    // Each of these is a path that is wrong, and no model of a hub.
    for (const path of ["checkpoints/step-9", "./org/small", "org/small.gguf", "a/b/c", "small"]) {
      expect((await refused(path)).what).toMatch(/neither a folder nor a file/);
    }
  });
});

describe("syntax", () => {
  it.each([
    ["env:\n\tsuite: x\n", "SF-CONFIG-TAB", 2],
    ["name: a: b\n", "SF-CONFIG-SYNTAX", 1],
    ["name: [a, b\n", "SF-CONFIG-SYNTAX", 1],
    ["name: 'a\n", "SF-CONFIG-SYNTAX", 1],
    ["name: @a\n", "SF-CONFIG-SYNTAX", 1],
    ["name: !!python/object x\n", "SF-CONFIG-SYNTAX", 1],
    ["---\nseed: 1\n---\nseed: 2\n", "SF-CONFIG-SYNTAX", 3],
    [`${SMALLEST}? [a]\n: b\n`, "SF-CONFIG-SYNTAX", 4],
    [`seed: ${"[".repeat(30_000)}\n`, "SF-CONFIG-SYNTAX", 1],
    [`${"- ".repeat(30_000)}\n`, "SF-CONFIG-SYNTAX", 1],
  ])("%j", (text, code, line) => {
    const [problem] = problemsOf(text);
    expect(problem).toMatchObject({ code, where: { line } });
  });

  it("a key without a value is refused, not read as null", () => {
    const problems = problemsOf(
      `${SMALLEST.replace("suite: mini-shop", "suite: mini-shop, levels: ")}eval:\nseed: # none\n`,
    );
    expect(problems.map(({ code, where }) => [code, where?.line, where?.col])).toEqual([
      ["SF-CONFIG-NO-VALUE", 2, 25],
      ["SF-CONFIG-NO-VALUE", 4, 1],
      ["SF-CONFIG-NO-VALUE", 5, 1],
    ]);
    expect(configOf(`${SMALLEST}eval: null\n`).eval).toBeNull();
    expect(configOf(`${SMALLEST}eval: ~\n`).eval).toBeNull();
  });

  it("an alias cannot make a small file large", () => {
    const lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"];
    for (let i = 1; i < 9; i++)
      lines.push(
        `a${i}: &a${i} [${Array(10)
          .fill(`*a${i - 1}`)
          .join(", ")}]`,
      );
    expect(problemsOf(`${lines.join("\n")}\n`).map(({ code }) => code)).toContain("SF-CONFIG-FILE-TOO-LARGE");
  });

  it("keys of Object's prototype are keys like others", () => {
    for (const name of ["__proto__", "constructor", "toString"]) {
      expect(problemOf(`${SMALLEST}${name}: {a: 1}\n`).what).toBe(`unknown key \`${name}\` at the top level`);
      expect(problemOf(`${SMALLEST}optim: {${name}: 1}\n`).what).toBe(`unknown key \`${name}\` in \`optim\``);
    }
  });
});
