import { describe, expect, it } from "vitest";
import { nearest, renderBug, renderError, renderErrorLines, UserError } from "../../src/errors.js";
import { wantsColor } from "../../src/options.js";

const where = { file: "my.yaml", line: 12, col: 7, length: 4, source: "  lr: fast" };
const problem = {
  code: "SF-CONFIG-TYPE",
  what: "`optim.lr` must be a number above 0, but is `fast`",
  where,
  why: "Learning needs a rate, and a rate is a number; words say nothing about size.",
  fix: "Write it out:\n  optim: {lr: 1e-3}",
} as const;
const error = new UserError(problem, { left: "Nothing was started." });

describe("an error for people", () => {
  it("says what, where with a caret, why, what to do, and what was left", () => {
    expect(renderError(error, { color: false, columns: 60 })).toBe(
      [
        "error  `optim.lr` must be a number above 0, but is `fast`",
        "       my.yaml:12:7  SF-CONFIG-TYPE",
        "",
        "   12 |   lr: fast",
        "      |       ^^^^",
        "",
        "why    Learning needs a rate, and a rate is a number; words",
        "       say nothing about size.",
        "fix    Write it out:",
        "         optim: {lr: 1e-3}",
        "",
        "Nothing was started.",
        "",
      ].join("\n"),
    );
  });

  it("counts its problems when there are several", () => {
    const two = new UserError([problem, { code: "SF-CONFIG-EMPTY", what: "the config is empty" }]);
    expect(renderError(two, { color: false, columns: 60 })).toMatch(
      /\n\nerror {2}the config is empty\n {7}SF-CONFIG-EMPTY\n\n2 problems\.\n$/,
    );
  });

  it.each([60, 100])("keeps within %i columns, whatever the length of the source line", (columns) => {
    for (const col of [1, 5, 60, 200, 399, 400]) {
      const source = "abcdefghij".repeat(40);
      const long = new UserError({ ...problem, where: { ...where, col, length: 30, source } });
      const lines = renderError(long, { color: false, columns }).split("\n");
      for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns);
      const [shown, carets] = lines.filter((line) => /^ {3}(12| {2}) \|/.test(line));
      expect(shown?.[carets?.indexOf("^") ?? -1]).toBe(source[col - 1]);
    }
  });

  it("shows an argument without line numbers", () => {
    const argument = { file: "--set", line: 0, col: 7, length: 1, source: "--set x" };
    const text = renderError(new UserError({ ...problem, where: argument }), { color: false, columns: 60 });
    expect(text).toContain("       --set  SF-CONFIG-TYPE\n\n    | --set x\n    |       ^\n");
  });

  it("never lets text from a file act on the terminal", () => {
    const evil = new UserError({
      ...problem,
      what: "a\x1b[31mb\u202ec",
      where: { ...where, source: "\x1b]0;x\x07\ty" },
    });
    for (const text of [renderError(evil, { color: false, columns: 60 }), renderErrorLines(evil)]) {
      expect(text).not.toMatch(/[^\n\P{C}]/u);
    }
  });

  it("has colour only when asked for", () => {
    expect(renderError(error, { color: false, columns: 80 })).not.toContain("\x1b[");
    expect(renderError(error, { color: true, columns: 80 })).toContain("\x1b[31merror");
  });
});

it("an error under --json is one line a problem, with its code", () => {
  expect(renderErrorLines(error)).toBe(
    "my.yaml:12:7: error SF-CONFIG-TYPE: `optim.lr` must be a number above 0, but is `fast` · why: Learning needs a rate, " +
      "and a rate is a number; words say nothing about size. · fix: Write it out: optim: {lr: 1e-3}\nNothing was started.\n",
  );
});

it("a bug shows its stack and says that it is one", () => {
  const text = renderBug(new TypeError("x is not a function"), { color: false, columns: 80 });
  expect(text).toMatch(/^bug {4}This is a bug in SinkFlex, not in your input/);
  expect(text).toMatch(/TypeError: x is not a function\n +at /);
  expect(renderBug("oops", { color: false, columns: 80 })).toContain("thrown: oops");
});

it("the code decides the exit code, unless a better one is known", () => {
  expect(error.exitCode).toBe(2);
  expect(new UserError({ code: "SF-ENV-MISSING", what: "x" }).exitCode).toBe(3);
  expect(new UserError({ code: "SF-WORKER-FAILED", what: "x" }).exitCode).toBe(1);
  expect(new UserError({ code: "SF-WORKER-FAILED", what: "x" }, { exitCode: 3 }).exitCode).toBe(3);
});

describe("nearest", () => {
  const words = ["train", "runs", "doctor", "schema", "lr", "group_size", "name", "cpu"];
  it.each([
    ["trian", "train"],
    ["Group-Size", "group_size"],
    ["group", "group_size"],
    ["scheme", "schema"],
    ["lrr", "lr"],
    ["base", undefined],
    ["gpu", undefined],
    ["bench", undefined],
    ["", undefined],
  ])("%s is %s", (word, meant) => expect(nearest(word, words)).toBe(meant));
});

describe("wantsColor", () => {
  const terminal = { isTTY: true };
  const file = {};
  it.each([
    ["a terminal", terminal, true, {}, true],
    ["a file", file, true, {}, false],
    ["--no-color", terminal, false, { FORCE_COLOR: "1" }, false],
    ["NO_COLOR", terminal, true, { NO_COLOR: "1" }, false],
    ["an empty NO_COLOR", terminal, true, { NO_COLOR: "" }, true],
    ["FORCE_COLOR on a file", file, true, { FORCE_COLOR: "1" }, true],
    ["FORCE_COLOR=0", terminal, true, { FORCE_COLOR: "0" }, false],
    ["FORCE_COLOR and NO_COLOR", file, true, { FORCE_COLOR: "1", NO_COLOR: "1" }, true],
    ["TERM=dumb", terminal, true, { TERM: "dumb" }, false],
  ])("%s", (_, stream, allowed, env, wanted) => expect(wantsColor(stream, allowed, env)).toBe(wanted));
});
