import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { flat, lastLine } from "../fixtures/bench-folder.js";
import { Folder, real } from "../fixtures/sinkflex.js";

/** `sinkflex eval` with the real worker: scripted agents need neither a model nor a network. */

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
});
afterEach(() => folder.clear());

const evaluate = (args: string) => folder.run(["eval", ...args.split(" ").filter(Boolean)], {}, real());

describe("sinkflex eval", () => {
  it("plays a reference agent, says what is measured, and leaves trials and a report", async () => {
    const { code, stdout, stderr } = await evaluate("mini-shop --agent expert --tasks 4 --trials 2 --split tune");
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toContain("eval      mini-shop, split tune: 4 tasks, 2 trials each\n");
    expect(stdout).toContain("baseline  doing nothing scores 0.000 on these tasks\n");
    expect(stdout.match(/^trial +\d\/8 {2}task \S+ #[12] {2}reward 1\.00 {2}\d+ turns? {2}/gm)).toHaveLength(8);
    expect(stdout).toMatch(/^mini-shop tune, expert: pass\^1 1\.000 \[0\.\d+, 1\.000\]$/m);
    expect(stdout).toMatch(/^pass\^2 +1\.000 \[/m);
    expect(stdout).toContain("coverage       100.0 % of 8 trials scored\n");
    const results = join(folder.runs, readdirSync(folder.runs)[0] as string);
    expect(readFileSync(join(results, "trials.jsonl"), "utf8").trim().split("\n")).toHaveLength(8);
    expect(JSON.parse(readFileSync(join(results, "report.json"), "utf8"))).toMatchObject({ mean: 1, complete: true });
  });

  it("--json is the events and, as the last line, the report that scripts rely on", async () => {
    const { stdout, code } = await evaluate("mini-shop --agent noop --tasks 3 --json");
    expect(code).toBe(0);
    const events = stdout.trimEnd().split("\n").slice(0, -1);
    expect(events.map((line) => JSON.parse(line).seq)).toEqual(events.map((_, n) => n));
    expect(lastLine(stdout)).toMatchObject({
      type: "eval",
      suite: "mini-shop",
      agent: "noop",
      tasks: 3,
      trials: 1,
      mean: 0,
      pass_hat: { "1": 0 },
      coverage: 1,
      infra_errors: {},
      dropped_components: {},
      noop_mean: 0,
      scripted_user: true,
    });
  });

  it("resumes without repeating a trial, and refuses another evaluation's folder", async () => {
    const run = (...args: string[]) => folder.run(["eval", ...args], {}, real());
    const out = join(folder.path, "mine");
    const typed = ["mini-shop", "--agent", "expert", "--tasks", "3", "--out", out];
    expect((await run(...typed)).code).toBe(0);
    const trials = readFileSync(join(out, "trials.jsonl"), "utf8");
    writeFileSync(join(out, "trials.jsonl"), `${trials.split("\n")[0]}\n{"task_id": "cut`);
    const again = await run("--resume", out);
    expect(again.code, again.stderr).toBe(0);
    expect(again.stdout).toContain("3 tasks, 1 trial each, 1 played before");
    const before = readFileSync(join(out, "trials.jsonl"), "utf8");
    expect(before.split("\n").length).toBe(trials.split("\n").length);
    const other = await run(...typed.map((word) => (word === "expert" ? "noop" : word)));
    expect(other.code).toBe(2);
    expect(flat(other.stderr)).toContain("Agent was");
    expect(readFileSync(join(out, "trials.jsonl"), "utf8")).toBe(before);
    const nothing = await run("--resume", folder.path);
    expect([nothing.code, flat(nothing.stderr)]).toEqual([2, expect.stringContaining("it has no request.json")]);
  });

  it("B138 compare pairs two evaluations by task and says who flipped", async () => {
    const run = (...args: string[]) => folder.run(["eval", ...args], {}, real());
    const [a, b] = [join(folder.path, "a"), join(folder.path, "b")];
    await run("mini-shop", "--agent", "noop", "--tasks", "4", "--out", a);
    await run("mini-shop", "--agent", "expert", "--tasks", "3", "--out", b);
    const { code, stdout } = await run("compare", a, b);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^difference +\+1\.000 \[1\.000, 1\.000\] over 3 tasks; a difference beyond the interval$/m);
    expect(stdout).toMatch(/^gained +(\S+ ){2}\S+$/m);
    expect(stdout).toMatch(/^only base +\S+$/m);
    const json = await run("compare", a, b, "--json");
    expect(JSON.parse(json.stdout)).toMatchObject({ type: "eval_compare", tasks: 3, difference: 1 });
    const wrong = await run("compare", a, join(folder.path, "c"));
    expect([wrong.code, flat(wrong.stderr)]).toEqual([2, expect.stringContaining("it has no eval.json")]);
  });

  it("a trial can be read as a conversation", async () => {
    await evaluate("tau2-retail --agent gold --task 17 --out e");
    const show = (...args: string[]) => folder.run(["runs", "show", ...args]);
    const { stdout, code } = await show("e", "--task", "17");
    expect(code).toBe(0);
    expect(stdout).toMatch(/^agent\n {2}Hi! How can I help you today\?\n\ncustomer\n {2}\S/m);
    expect(stdout).toMatch(/^ {2}\w+\(\{"[^\n]+\}\)\n {2}-> \S/m);
    expect(stdout).toMatch(/^reward +1\.00\nparts +/m);
    const missing = await show("e", "--task", "17", "--trial", "2");
    expect([missing.code, flat(missing.stderr)]).toEqual([2, expect.stringContaining("Its trials go from 1 to 1.")]);
    const other = await show("e", "--task", "170");
    expect([other.code, flat(other.stderr)]).toEqual([2, expect.stringContaining("Did you mean `17`?")]);
  });

  it("without an agent it offers the newest finished run, and asks nobody outside a terminal", async () => {
    const none = await evaluate("mini-shop");
    expect([none.code, flat(none.stderr)]).toEqual([4, expect.stringContaining("has no finished run of mini-shop")]);
    const dir = join(folder.runs, "demo-20260101-120000");
    mkdirSync(join(dir, "checkpoints", "step-000006"), { recursive: true });
    writeFileSync(
      join(dir, "run.json"),
      JSON.stringify({ v: 1, verb: "train", run: "demo-20260101-120000", config: {} }),
    );
    writeFileSync(join(dir, "summary.json"), JSON.stringify({ status: "completed", suite: "mini-shop" }));
    const offered = await evaluate("mini-shop");
    expect(offered.code).toBe(4);
    expect(flat(offered.stderr)).toContain("`--checkpoint demo-20260101-120000@6`");
    const other = await evaluate("mini-shop --checkpoint demo-20260101-120000@5");
    expect([other.code, flat(other.stderr)]).toEqual([2, expect.stringContaining("It has those of step 6")]);
  });

  it.each([
    ["mini-shp --agent expert", "Did you mean `mini-shop`?"],
    ["mini-shop --agent exprt", "Did you mean `expert`?"],
    ["mini-shop --agent expert --split tset", "has no split 'tset'"],
    ["mini-shop --agent expert --task nobody", "has no task 'nobody'"],
    ["mini-shop --agent expert --user-model x", "belong to --user llm"],
    ["tau2-retail --agent gold --user human", "cannot talk with a person"],
    ["mini-shop --agent human --concurrency 4", "one conversation at a time"],
    ["mini-shop --endpoint nowhere --model-name x", "is no address"],
  ])("%s is refused with one message, and nothing is left behind", async (args, message) => {
    const { code, stderr } = await evaluate(args);
    expect([code, flat(stderr)]).toEqual([2, expect.stringContaining(message)]);
    expect(existsSync(folder.runs) ? readdirSync(folder.runs) : []).toEqual([]);
  });

  it.each([
    ["tau2-retail --agent human --task 5", "to play the agent", "no terminal", "--agent expert"],
    ["tau2-retail --agent expert --user human --json", "to play the user", "--json was given", "--user scripted"],
    ["mini-shop --agent human --no-input", "to play the agent", "--no-input was given", "--agent expert"],
  ])("%s: without a person at a terminal exit 4 with why and what else", async (args, what, why, fix) => {
    const { code, stdout, stderr } = await evaluate(args);
    expect([code, stdout]).toEqual([4, ""]);
    expect(stderr.match(/SF-[A-Z-]+/g)).toEqual(["SF-EVAL-NO-PERSON"]);
    for (const part of [what, why, fix]) expect(flat(stderr)).toContain(part);
    expect(existsSync(folder.runs)).toBe(false);
  });

  it("a server that is not there: exit 3 and its address, nothing scored", async () => {
    const { code, stderr } = await evaluate("mini-shop --endpoint http://127.0.0.1:9/v1 --model-name m --tasks 2");
    expect([code, flat(stderr)]).toEqual([3, expect.stringContaining("nothing answers there")]);
    rmSync(folder.runs, { recursive: true, force: true });
  });

  it("the first Ctrl-C keeps what is finished and says how to go on", async () => {
    const args = ["eval", "tau2-retail", "--agent", "expert", "--trials", "40"];
    const running = folder.start(args, {}, real());
    await running.until((text) => /^trial +5\//m.test(text));
    running.child.kill("SIGINT");
    const { code, stdout } = await running.result;
    expect(code).toBe(130);
    expect(stdout).toMatch(/incomplete$/m);
    expect(stdout).toMatch(/`sinkflex eval --resume runs\/eval-tau2-retail-expert-\S+` goes on\.$/m);
  });
});
