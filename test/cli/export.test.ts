import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { flat, lastLine } from "../fixtures/bench-folder.js";
import { Folder, real } from "../fixtures/sinkflex.js";

/** A LoRA run of one step on a small random Llama, and what `sinkflex export` and `eval --checkpoint` do with it. */

const from = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));

const CONFIG = `
name: demo
model: {path: base, dtype: float32, lora: {rank: 2, alpha: 4}}
env: {suite: mini-shop, system_prompt: none, max_turns: 3}
rollout: {group_size: 2, tasks_per_step: 2, max_new_tokens: 8, max_total_tokens: 300}
train: {steps: 1}
eval: null
`;

let folder: Folder;
const run = (...args: string[]) => folder.run(args, {}, real());

beforeAll(async () => {
  folder = new Folder();
  const make =
    "import sys; from pathlib import Path; from llama_samples import llama_folder; llama_folder(Path(sys.argv[1]))";
  const path = [from("python"), from("test/python/train"), process.env.PYTHONPATH].filter(Boolean).join(delimiter);
  const env = { ...process.env, PYTHONPATH: path };
  execFileSync(real().SINKFLEX_PYTHON, ["-P", "-c", make, join(folder.path, "base")], { env });
  writeFileSync(join(folder.path, "c.yaml"), CONFIG);
  const { code, stderr } = await run("train", "c.yaml");
  expect([code, stderr]).toEqual([0, ""]);
});
afterAll(() => folder.clear());

describe("sinkflex export", () => {
  it("writes the adapter, and with --merge the whole model", async () => {
    const name = folder.json("run.json").run;
    const plain = await run("export", "latest", "adapter");
    expect([plain.code, plain.stdout]).toEqual([
      0,
      expect.stringMatching(new RegExp(`^${name}@1 is exported: adapter \\(an adapter in peft's layout, .*B\\)\\n$`)),
    ]);
    const config = JSON.parse(readFileSync(join(folder.path, "adapter", "adapter_config.json"), "utf8"));
    expect(config).toMatchObject({ base_model_name_or_path: join(folder.path, "base"), r: 2, lora_alpha: 4 });

    const merged = await run("export", `${name}@0`, "out/merged", "--merge", "--json");
    expect(merged.code, merged.stderr).toBe(0);
    const out = join(folder.path, "out", "merged");
    expect(lastLine(merged.stdout)).toMatchObject({ type: "export", run: name, step: 0, folder: out, kind: "model" });
    expect(readdirSync(out)).toEqual(expect.arrayContaining(["config.json", "model.safetensors", "tokenizer.json"]));
    expect(readdirSync(join(folder.path, "out"))).toEqual(["merged"]);
  });

  it("refuses a folder that holds something, a step that is not there, and a run that is not", async () => {
    const used = await run("export", "latest", "runs");
    expect([used.code, used.stdout]).toEqual([2, ""]);
    expect(used.stderr).toMatch(/runs is there already and not empty\.\s+SF-EXPORT$/m);
    const step = await run("export", "latest@7", "x");
    expect(step.code).toBe(2);
    expect(step.stderr).toMatch(/has no checkpoint of step 7\..*It has those of step 0, 1\./s);
    expect((await run("export", "nope", "x")).code).toBe(2);
    expect(existsSync(join(folder.path, "x"))).toBe(false);
  });
});

it("eval --checkpoint plays the base with its adapter, and says what to do when the base is gone", async () => {
  const played = await run("eval", "mini-shop", "--checkpoint", "latest", "--tasks", "2", "--split", "tune");
  expect([played.code, played.stderr]).toEqual([0, ""]);
  const config = join(folder.path, "runs", "latest", "checkpoints", "step-000001", "adapter_config.json");
  const said = readFileSync(config, "utf8");
  writeFileSync(config, said.replace(join(folder.path, "base"), "/nowhere/base"));
  const gone = await run("eval", "mini-shop", "--checkpoint", "latest", "--tasks", "2", "--split", "tune");
  writeFileSync(config, said);
  expect(gone.code).toBe(2);
  expect(flat(gone.stderr)).toMatch(/needs its base model \/nowhere\/base, .* SF-ADAPTER-BASE .*sinkflex models get/);
});
