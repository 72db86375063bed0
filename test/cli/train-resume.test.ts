import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Folder } from "../fixtures/sinkflex.js";

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
  folder.config({ steps: 6 });
});
afterEach(() => folder.clear());

const died = { die_at: [5, "SIGKILL"] }; // the last checkpoint is of step 4
const steps = () =>
  folder
    .events()
    .filter((event) => event.type === "step")
    .map((event) => event.step);

describe("train --resume", () => {
  it("goes on from the last checkpoint, as the next attempt, with every record kept in order", async () => {
    await folder.run(["train", "c.yaml", "-q"], died);
    const first = folder.read("events.jsonl");
    const { code, stdout } = await folder.run(["train", "--resume", "latest"]);
    expect(code).toBe(0);
    expect(stdout).toContain("resume from step 4, attempt 2");
    expect(folder.json("run.json")).toMatchObject({
      attempt: 2,
      resume: { step: 4, checkpoint: join(folder.dirs()[0] ?? "", "checkpoints", "step-000004") },
    });
    expect(folder.read("events.jsonl").startsWith(first)).toBe(true);
    const mark = folder.events().find((event) => event.type === "attempt");
    expect(mark).toMatchObject({ seq: -1, attempt: 2, step: 4, checkpoint: "checkpoints/step-000004" });
    expect(steps()).toEqual([1, 2, 3, 4, 5, 5, 6]);
    expect(folder.dirs()).toHaveLength(1);
    expect(folder.json("summary.json")).toMatchObject({ status: "completed", attempt: 2, steps: 6 });
  });

  it("B106 every record of every attempt stays, also half a line of one that was killed", async () => {
    await folder.run(["train", "c.yaml", "-q"], died);
    const record = join(folder.dirs()[0] ?? "", "events.jsonl");
    writeFileSync(record, '{"v":1,"seq":99,"t":1,"ty', { flag: "a" });
    await folder.run(["train", "--resume", "latest", "-q"]);
    const lines = folder.read("events.jsonl").trimEnd().split("\n");
    expect(lines).toContain('{"v":1,"seq":99,"t":1,"ty');
    expect(lines.filter((line) => line.includes('"type":"attempt"'))).toHaveLength(1);
    expect((await folder.run(["runs", "show", "latest"])).stdout).toContain("completed, 6 of 6 steps");
  });

  it("B107 Ctrl-C while it loads, then again: from the same checkpoint, never from step 0", async () => {
    await folder.run(["train", "c.yaml", "-q"], died);
    const loading = folder.start(["train", "--resume", "latest"], { load_s: 0.5 });
    await loading.until((text) => text.includes("run demo-"));
    loading.child.kill("SIGINT");
    expect((await loading.result).code).toBe(130);
    expect(folder.json("summary.json")).toMatchObject({ status: "stopped", checkpoint: "checkpoints/step-000004" });
    const { code } = await folder.run(["train", "--resume", "latest", "-q"]);
    expect(code).toBe(0);
    expect(folder.json("run.json")).toMatchObject({ attempt: 3, resume: { step: 4 } });
    expect(steps()).toEqual([1, 2, 3, 4, 5, 5, 6]);
  });

  it("takes the config that the run was started with, when it is the same file", async () => {
    await folder.run(["train", "c.yaml", "-q"], died);
    expect((await folder.run(["train", "c.yaml", "--resume", "latest", "-q"])).code).toBe(0);
  });

  it("may train further, but not otherwise", async () => {
    await folder.run(["train", "c.yaml", "-q"]);
    expect((await folder.run(["train", "--resume", "latest", "--set", "train.steps=8", "-q"])).code).toBe(0);
    expect(folder.json("run.json").config.train.steps).toBe(8);
    expect(steps()).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });
});

describe("a resume that is refused", () => {
  async function refused(args: string[], code: string, ...parts: string[]): Promise<void> {
    const before = folder.dirs().map((dir) => folder.read("run.json", dir));
    const result = await folder.run(["train", "--resume", ...args]);
    expect(result.stderr).toContain(code);
    expect(result.code).toBe(2);
    for (const part of parts) expect(result.stderr.replaceAll(/\s+/g, " ")).toContain(part);
    expect(
      folder
        .dirs()
        .filter((dir) => !dir.endsWith("photos"))
        .map((dir) => folder.read("run.json", dir)),
    ).toEqual(before);
  }

  it("no such run, and none at all", async () => {
    await refused(["latest"], "SF-RUN-NOT-FOUND", "There is no run in");
    await folder.run(["train", "c.yaml", "-q"]);
    await refused(["latset"], "SF-RUN-NOT-FOUND", "Did you mean `latest`?");
  });

  it("a directory that is not a run", async () => {
    mkdirSync(join(folder.path, "photos"));
    await refused(["photos"], "SF-RUN-NOT-A-RUN", "it has no run.json");
  });

  it("a run without a checkpoint: it never starts again from step 0 in silence", async () => {
    await folder.run(["train", "c.yaml", "-q"], { die_at: [1, "SIGKILL"] });
    await refused(["latest"], "SF-RUN-NO-CHECKPOINT", `sinkflex train ${join(folder.path, "c.yaml")}`);
    expect(steps()).toEqual([1]);
  });

  it("a run that is complete", async () => {
    await folder.run(["train", "c.yaml", "-q"]);
    await refused(["latest"], "SF-RUN-COMPLETE", "all 6 steps are done", "--set train.steps=12");
  });

  it("another config, or a value that would train something else", async () => {
    await folder.run(["train", "c.yaml", "-q"], died);
    await refused(["latest", "--set", "optim.lr=1e-4"], "SF-RUN-OTHER-CONFIG", "`--set optim.lr=1e-4` would change");
    folder.config({ steps: 7 });
    await refused(["latest", "c.yaml"], "SF-RUN-OTHER-CONFIG", "c.yaml is not the config");
    rmSync(join(folder.path, "c.yaml"));
    await refused(["latest", "c.yaml"], "SF-CONFIG-FILE-MISSING");
  });

  it("a run that is still running", async () => {
    folder.config({ steps: 500 });
    const running = folder.start(["train", "c.yaml"], { step_s: 0.05 });
    await running.until((text) => text.includes("step   3/500"));
    await refused(["latest"], "SF-RUN-ACTIVE", `process ${running.pid}`);
    running.child.kill("SIGINT");
    expect((await running.result).code).toBe(130);
  });
});
