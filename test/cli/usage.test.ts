import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { sinkflex } from "./sinkflex.js";

const root = join(import.meta.dirname, "../..");
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "sinkflex cli "));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe("help and version go to stdout with exit code 0", () => {
  it("--help", () => {
    const { code, stdout, stderr } = sinkflex(["--help"]);
    expect([code, stderr]).toEqual([0, ""]);
    for (const verb of ["train", "bench", "runs", "doctor", "schema"])
      expect(stdout).toMatch(new RegExp(`^ {2}${verb} `, "m"));
    for (const line of stdout.split("\n")) expect(line.length).toBeLessThanOrEqual(80);
    expect(stdout).not.toContain("\x1b");
  });

  it("--version", () => {
    const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    expect(sinkflex(["--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  });

  it("of a command, with the global options", () => {
    const { code, stdout } = sinkflex(["train", "--help"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/--resume <run>[\s\S]*Global Options:[\s\S]*--no-input/);
  });
});

it("the help of bench names every choice and fits 80 columns", () => {
  const { code, stdout } = sinkflex(["bench", "--help"]);
  expect(code).toBe(0);
  for (const line of stdout.split("\n")) expect(line.length).toBeLessThanOrEqual(80);
  for (const word of [
    "attention",
    "log-prob",
    "model",
    "triton",
    "naive",
    "ours",
    "bfloat16",
    "cuda",
    "lora",
    "trained",
  ])
    expect(stdout).toContain(word);
  expect(stdout).toMatch(/Examples:[\s\S]*sinkflex bench --seq 4096 8192/);
});

describe("a usage error is exit code 2, on stderr, with the word that was meant", () => {
  it.each([
    ["trian my.yaml", "unknown command `trian`", "Did you mean `train`?"],
    ["my.yaml", "unknown command `my.yaml`", "`sinkflex train my.yaml`"],
    ["benhc", "unknown command `benhc`", "Did you mean `bench`?"],
    ["learn", "unknown command `learn`", "The commands are train, bench, eval, runs, doctor, models, export, schema."],
    ["bench --sqe 4096", "unknown option `--sqe`", "Did you mean `--seq`?"],
    ["bench 4096", "`4096` is one argument too many", "`--seq 4096`"],
    ["bench log-prob --seq 8 16", "`log-prob` is one argument too many", "`--what log-prob`"],
    ["bench --seq", "`--seq <tokens...>` was given no value", "`sinkflex bench --help`"],
    ["bench --seq 0", "`--seq 0` is not a length", "from 1 to 16777216"],
    ["bench --seq 2048 abc", "`--seq abc` is not a length", "from 1 to 16777216"],
    ["bench --seq -5 --json", "`--seq -5` is not a length", "from 1 to 16777216"],
    ["bench --seq 1e9", "`--seq 1e9` is not a length", "from 1 to 16777216"],
    ["bench --impl flahs", "`--impl flahs` is unknown", "Did you mean `flash`?"],
    ["bench --what modle", "`--what modle` is unknown", "Did you mean `model`?"],
    ["bench --dtype bfloat", "`--dtype bfloat` is unknown", "Did you mean `bfloat16`?"],
    ["bench --vocabulary 8", "`--vocabulary` does not belong to `--what attention`", "`--what log-prob`"],
    ["runs shwo x", "unknown command `shwo`", "Did you mean `show`?"],
    ["doctor --fx", "unknown option `--fx`", "Did you mean `--fix`?"],
    ["--jsn train my.yaml", "unknown option `--jsn`", "Did you mean `--json`?"],
    ["train", "a config file is needed, or --resume <run>", "`sinkflex train --help`"],
    ["runs show", "missing required argument `run`", "`sinkflex runs show --help`"],
    ["runs show latest --step x", "It must be a whole number, 0 or more.", "`sinkflex runs show --help`"],
    ["-v train -q my.yaml", "cannot be used with", "`sinkflex train --help`"],
  ])("sinkflex %s", (line, what, fix) => {
    const { code, stdout, stderr } = sinkflex(line.split(" "));
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr.replaceAll(/\s+/g, " ")).toContain(what);
    expect(stderr.replaceAll(/\s+/g, " ")).toContain(fix);
    expect(stderr).not.toMatch(/\n {4}at |\p{Cc}\[/u);
  });

  it("no command at all prints the help to stderr", () => {
    const { code, stdout, stderr } = sinkflex([]);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/^Usage: sinkflex/);
  });
});

describe("B129 --set takes one value and is repeated for more", () => {
  it.each([
    [
      "a second value",
      ["train", "my.yaml", "--set", "seed=1", "seed=2"],
      /`seed=2` is one argument too many[\s\S]*`--set seed=2`/,
    ],
    [
      "the config after two values",
      ["train", "--set", "seed=1", "seed=2", "my.yaml"],
      /`my\.yaml` is one argument too many/,
    ],
    ["no value", ["train", "my.yaml", "--set"], /`--set <key=value>` was given no value/],
    [
      "a misspelt option",
      ["train", "my.yaml", "--sett", "seed=1"],
      /unknown option `--sett`[\s\S]*Did you mean `--set`\?/,
    ],
  ])("%s", (_, args, text) => {
    const { code, stderr } = sinkflex(args);
    expect(code).toBe(2);
    expect(stderr).toMatch(text);
  });
});

describe("a config that is refused", () => {
  const broken = "modle: {preset: tiny-gpt-oss}\nenv: {suite: minishop}\ntrain: {steps: 0}\n";

  it("shows every problem at its line, starts nothing and is exit code 2", () => {
    writeFileSync(join(folder, "my.yaml"), broken);
    const { code, stdout, stderr } = sinkflex(["train", "my.yaml", "--set", "optim.lr=fast"], { cwd: folder });
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr.match(/my\.yaml:\d+:\d+/g)).toEqual(["my.yaml:1:1", "my.yaml:2:14", "my.yaml:3:16"]);
    expect(stderr).toMatch(/--set optim\.lr=fast\n.*\^{4}\n/);
    expect(stderr).toMatch(/4 problems\. Nothing was started\.\n$/);
    expect(readdirSync(folder)).toEqual(["my.yaml"]);
  });

  it("under --json leaves stdout empty and puts one line a problem on stderr", () => {
    const { code, stdout, stderr } = sinkflex(["--json", "train", "my.yaml"], { cwd: folder });
    expect([code, stdout]).toEqual([2, ""]);
    const lines = stderr.trimEnd().split("\n");
    expect(lines.slice(0, -1).map((line) => line.split(" ").slice(0, 3).join(" "))).toEqual([
      "my.yaml:1:1: error SF-CONFIG-UNKNOWN-KEY:",
      "my.yaml:2:14: error SF-CONFIG-CHOICE:",
      "my.yaml:3:16: error SF-CONFIG-RANGE:",
    ]);
  });

  it("has colour with FORCE_COLOR and none with --no-color", () => {
    const env = { FORCE_COLOR: "1" };
    expect(sinkflex(["train", "my.yaml"], { cwd: folder, env }).stderr).toContain("\x1b[31m");
    expect(sinkflex(["train", "my.yaml", "--no-color"], { cwd: folder, env }).stderr).not.toContain("\x1b");
  });

  it("a missing file and a directory are named", () => {
    expect(sinkflex(["train", "mz.yaml"], { cwd: folder }).stderr).toMatch(
      /there is no file mz\.yaml[\s\S]*`my\.yaml`/,
    );
    expect(sinkflex(["train", "."], { cwd: folder }).stderr).toMatch(/is a directory/);
  });
});

it("schema prints the file that editors read, and the key table", () => {
  const schema = readFileSync(join(root, "configs/schema.json"), "utf8");
  expect(sinkflex(["schema"])).toEqual({ code: 0, stdout: schema, stderr: "" });
  expect(sinkflex(["schema", "--markdown"]).stdout).toBe(readFileSync(join(root, "docs/config.md"), "utf8"));
});

describe("what is nobody's mistake in the config", () => {
  it("a bug shows its stack and is exit code 70", () => {
    const NODE_OPTIONS = "--import=data:text/javascript,process.stdout.write=()=>{throw(new(TypeError)('boom'))}";
    const { code, stdout, stderr } = sinkflex(["schema"], { env: { NODE_OPTIONS } });
    expect([code, stdout]).toEqual([70, ""]);
    expect(stderr).toMatch(/^bug {4}This is a bug in SinkFlex[\s\S]*TypeError: boom\n {4}at /);
  });

  it("a reader that goes away ends it quietly", () => {
    const script = `"${process.execPath}" "${join(root, "bin/sinkflex.js")}" schema | true; echo "\${PIPESTATUS[0]}"`;
    expect(spawnSync("bash", ["-c", script], { encoding: "utf8" })).toMatchObject({ stdout: "0\n", stderr: "" });
  });

  it.skipIf(!existsSync("/dev/full"))("a full disk is said to be full", () => {
    const script = `"${process.execPath}" "${join(root, "bin/sinkflex.js")}" schema > /dev/full`;
    const { status, stderr } = spawnSync("bash", ["-c", script], { encoding: "utf8" });
    expect(status).toBe(1);
    expect(stderr).toMatch(/could not be written: ENOSPC/);
  });
});
