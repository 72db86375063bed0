import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Folder } from "../fixtures/sinkflex.js";

let folder: Folder;
let run: string;
let dir: string;
beforeAll(async () => {
  folder = new Folder();
  folder.config({ steps: 4 });
  const { code } = await folder.run(["train", "c.yaml", "-q"], {
    sft: 3,
    warn_at: [2, "zero_variance", "7 of 8 groups"],
  });
  expect(code).toBe(0);
  [dir = ""] = folder.dirs();
  run = basename(dir);
});
afterAll(() => folder.clear());

describe("runs list", () => {
  it("has a row for every run, also with `runs` alone, and as JSON", async () => {
    for (const args of [["runs"], ["runs", "list"]]) {
      const { code, stdout, stderr } = await folder.run(args);
      expect([code, stderr]).toEqual([0, ""]);
      expect(stdout).toMatch(
        new RegExp(`^run .*\\n${run} {2}mini-shop {2}completed .* 4/4 {2}0\\.200 to 0\\.800 .*\\n$`),
      );
    }
    const [entry] = JSON.parse((await folder.run(["runs", "--json"])).stdout);
    expect(entry).toMatchObject({ run, dir, status: "completed", steps: 4, reward_first: 0.2, reward_last: 0.8 });
  });

  it("says that there is none yet", async () => {
    const { code, stdout } = await folder.run(["runs", "--runs", "nowhere"]);
    expect(code).toBe(0);
    expect(stdout).toContain("There are no runs in");
  });

  it("tells a run that goes on from one that was killed and one that failed", async () => {
    const other = new Folder();
    other.config({ steps: 500 });
    const args = ["train", "c.yaml", "--runs", "r"];
    await other.run([...args, "--set", "name=failed"], { die_at: [2, "SIGKILL"] });
    const killed = other.start([...args, "--set", "name=killed"], { step_s: 0.05 });
    await killed.until((text) => text.includes("step   3/500"));
    killed.child.kill("SIGKILL");
    await killed.result;
    const going = other.start([...args, "--set", "name=going"], { step_s: 0.05 });
    await going.until((text) => text.includes("step   3/500"));
    const entries = JSON.parse((await other.run(["runs", "--runs", "r", "--json"])).stdout);
    const status = Object.fromEntries(
      entries.map((one: { run: string; status: string }) => [one.run.split("-")[0], one.status]),
    );
    expect(status).toEqual({ failed: "failed", killed: "interrupted", going: "running" });
    going.child.kill("SIGINT");
    await going.result;
    other.clear();
  });
});

describe("runs show", () => {
  it("shows the last picture of a run and how it ended, from the same events", async () => {
    for (const name of ["latest", run, join("runs", run)]) {
      const { code, stdout } = await folder.run(["runs", "show", name]);
      expect(code).toBe(0);
      expect(stdout).toMatch(new RegExp(`^${run} +completed\\n`));
      expect(stdout).toContain("warning  7 of 8 groups.\n");
      expect(stdout).toMatch(/\n +4 +0\.551 /);
      expect(stdout).toContain("ended       completed, 4 of 4 steps");
      expect(stdout).toContain(`next        sinkflex runs show ${run} --episode rl-000004-t00-s0\n`);
    }
  });

  it("shows every interesting number as JSON", async () => {
    const shown = JSON.parse((await folder.run(["runs", "show", "latest", "--json"])).stdout);
    expect(shown).toMatchObject({ ...folder.json("summary.json"), run, dir, status: "completed", attempt: 1 });
  });

  it("prints an episode as a conversation with its loss mask, tool results and reward", async () => {
    const { code, stdout } = await folder.run(["runs", "show", "latest", "--episode", "rl-000003-t00-s0"]);
    expect(code).toBe(0);
    for (const part of [
      "[[find_user]]",
      '[[{"email": "mia@example.com"}]]',
      "hello, cancel order o17 please ☕ 客户",
      '{"user": "u7"}',
      "reward   1.000, graded 0.750",
      "parts    state 1.00, identified 0.50",
      "length   2 turns, 38 tokens, 15 of them sampled (the loss mask)",
    ]) {
      expect(stdout).toContain(part);
    }
    const narrowed = await folder.run([
      "runs",
      "show",
      "latest",
      "--episode",
      "rl-000003-t00-s0",
      "--step",
      "3",
      "--json",
    ]);
    expect(JSON.parse(narrowed.stdout)).toMatchObject({ id: "rl-000003-t00-s0", step: 3, reward: 1 });
  });

  it("names the nearest episodes when there is none of that id, in the run or in the step", async () => {
    const unknown = await folder.run(["runs", "show", "latest", "--episode", "rl-000003-t00-s1"]);
    expect(unknown.code).toBe(2);
    expect(unknown.stderr).toContain("SF-RUN-EPISODE-NOT-FOUND");
    expect(unknown.stderr).toContain("`rl-000003-t00-s0`");
    const elsewhere = await folder.run(["runs", "show", "latest", "--episode", "rl-000003-t00-s0", "--step", "2"]);
    expect(elsewhere.code).toBe(2);
    expect(elsewhere.stderr.replaceAll(/\s+/g, " ")).toContain("The nearest are `rl-000002-t00-s0`.");
  });

  it("lists the episodes of a step, and says when there are none", async () => {
    const { stdout } = await folder.run(["runs", "show", "latest", "--step", "2"]);
    expect(stdout).toMatch(/rl-000002-t00-s0 +train +cancel-17 +1\.000 +2 +scored: resolved\n/);
    expect((await folder.run(["runs", "show", "latest", "--step", "99"])).stdout).toContain("No episodes of step 99");
  });

  it("refuses what is no run, and one that a newer version wrote", async () => {
    mkdirSync(join(folder.runs, "photos"));
    expect(await folder.run(["runs", "show", "photos"])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("SF-RUN-NOT-A-RUN"),
    });
    writeFileSync(join(folder.runs, "photos", "run.json"), '{"v":2,"run":"photos","config":{}}');
    expect(await folder.run(["runs", "show", "photos"])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("v 2"),
    });
  });
});

describe("runs tail", () => {
  it("of a run that is over shows it and ends; as JSON it is the record", async () => {
    expect((await folder.run(["runs", "tail", "latest"])).stdout).toContain("step 4/4  reward 0.551");
    expect((await folder.run(["runs", "tail", "latest", "--json"])).stdout).toBe(folder.read("events.jsonl", dir));
  });

  it("follows a run to its end", async () => {
    const other = new Folder();
    other.config({ steps: 8 });
    const running = other.start(["train", "c.yaml"], { step_s: 0.4 });
    await running.until((text) => text.includes("step 1/8"));
    const tail = other.start(["runs", "tail", "latest"]);
    await tail.until((text) => text.includes("step 1/8"));
    expect(other.read("events.jsonl")).not.toContain('"end"');
    const [followed, trained] = await Promise.all([tail.result, running.result]);
    expect([followed.code, trained.code]).toEqual([0, 0]);
    expect(followed.stdout).toContain("step 8/8");
    expect(followed.stdout).toContain("held out at step 8");
    other.clear();
  });

  it("Ctrl-C ends the watching, not the run", async () => {
    const other = new Folder();
    other.config({ steps: 500 });
    const running = other.start(["train", "c.yaml"], { step_s: 0.05 });
    await running.until((text) => text.includes("step   3/500"));
    const tail = other.start(["runs", "tail", "latest"]);
    await tail.until((text) => text.includes("step   3/500"));
    tail.child.kill("SIGINT");
    expect((await tail.result).code).toBe(130);
    expect(running.child.exitCode).toBeNull();
    running.child.kill("SIGINT");
    expect((await running.result).code).toBe(130);
    other.clear();
  });

  it("passes over half a line", async () => {
    appendFileSync(join(dir, "events.jsonl"), '{"v":1,"se');
    expect((await folder.run(["runs", "tail", "latest"])).code).toBe(0);
    expect((await folder.run(["runs", "show", "latest"])).stdout).toContain("completed, 4 of 4 steps");
  });
});
