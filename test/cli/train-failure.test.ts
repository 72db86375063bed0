import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Folder } from "../fixtures/sinkflex.js";

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
  folder.config();
});
afterEach(() => folder.clear());

describe("a worker that dies", () => {
  it("by a signal: what, the last words, the log, the checkpoint and how to go on", async () => {
    const { code, stdout, stderr } = await folder.run(["train", "c.yaml"], { die_at: [4, "SIGKILL"] });
    expect(code).toBe(1);
    const text = stderr.replaceAll(/\s+/g, " ");
    expect(text).toContain("The worker was ended by SIGKILL (in phase rollout, after step 4). SF-WORKER-DIED");
    expect(text).toContain("stub: last words");
    expect(text).toContain(join(folder.dirs()[0] ?? "", "stderr.log"));
    expect(text).toMatch(
      /The last checkpoint is of step 2: `sinkflex train --resume demo-[\d-]+` goes on from there\./,
    );
    expect(stdout).toContain("failed, 4 of 6 steps");
    expect(folder.json("summary.json")).toMatchObject({
      status: "failed",
      exit_code: 1,
      steps: 4,
      error: { code: "SF-WORKER-DIED" },
    });
    expect(folder.events().at(-1)).toMatchObject({ type: "end", status: "failed", seq: -1 });
  });

  it("without a word: no end event and exit code 0 are no success", async () => {
    const { code, stderr } = await folder.run(["train", "c.yaml"], { die_at: [1, 0] });
    expect(code).toBe(1);
    expect(stderr.replaceAll(/\s+/g, " ")).toContain("ended with exit code 0 and without a word");
  });

  it("B130 after 5 MB on stderr: no stall, and the last 50 lines are shown", async () => {
    const { code, stderr } = await folder.run(["train", "c.yaml"], { die_at: [2, "SIGSEGV"], stderr_bytes: 5_000_000 });
    expect(code).toBe(1);
    const [, shown = ""] = /The last 50 lines of \S.*?:\n((?: {2}.*\n)+)/.exec(stderr) ?? [];
    expect(shown.trimEnd().split("\n")).toHaveLength(50);
    expect(shown).toContain("stub: last words");
    expect(stderr.length).toBeLessThan(10_000);
  });

  it("in --json says so on stderr, by its code, and ends the stream with an end", async () => {
    const { stdout, stderr } = await folder.run(["train", "c.yaml", "--json"], { die_at: [2, "SIGKILL"] });
    expect(stderr).toContain("error SF-WORKER-DIED:");
    expect(JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "")).toMatchObject({ type: "end", status: "failed" });
  });
});

describe("a worker that fails", () => {
  it("in its own words: they are shown, the log is not", async () => {
    const error = {
      owner: "env",
      code: "SF-INFRA-RATE",
      what: "40 % of the episodes failed.",
      why: "The shop is closed.",
      fix: "Open it.",
      where: "step 3",
    };
    const { code, stderr } = await folder.run(["train", "c.yaml"], { fail_at: [3, error] });
    expect(code).toBe(1);
    for (const part of [error.what, error.code, error.why, error.fix, "step 3"]) expect(stderr).toContain(part);
    expect(stderr).not.toContain("The last 2 lines");
    expect(folder.json("summary.json").error).toMatchObject(error);
  });

  it("of a bug: the end of the log is shown too", async () => {
    const error = { owner: "infra", code: "SF-BUG", what: "KeyError: 'x'", why: "a bug", fix: "Report it." };
    const { stderr } = await folder.run(["train", "c.yaml"], { fail_at: [3, error] });
    expect(stderr).toContain("lines of ");
    expect(stderr).toContain("KeyError: 'x'");
  });

  it("of another version: one clear message", async () => {
    const { code, stderr } = await folder.run(["train", "c.yaml"], { version: 2, step_s: 30 });
    expect(code).toBe(1);
    expect(stderr.replaceAll(/\s+/g, " ")).toContain(
      "The worker speaks protocol version 2; this command line speaks 1.",
    );
  });
});

describe("a worker that talks nonsense", () => {
  it("is warned about and goes on; what it said is in the log", async () => {
    const { code, stdout } = await folder.run(["train", "c.yaml"], { raw: "what?\n{}\n" });
    expect(code).toBe(0);
    expect(stdout.match(/warning {2}The worker sent a line that is no event/g)).toHaveLength(1);
    expect(folder.read("stderr.log")).toContain("what?");
  });
});

describe("a full disk", () => {
  const full = (files: string, after = 0) => ({
    NODE_OPTIONS: `--import=${new URL("../fixtures/full-disk.mjs", import.meta.url)}`,
    SF_FULL: files,
    SF_FULL_AFTER: String(after),
  });

  it("while it trains: one message, the worker finishes its step and stops, exit 1, and the run can go on", async () => {
    folder.config({ steps: 500 });
    const { code, stdout, stderr } = await folder.run(
      ["train", "c.yaml"],
      { step_s: 0.02 },
      full("events\\.jsonl$", 4000),
    );
    expect(code).toBe(1);
    expect(stderr.match(/SF-RUN-CANNOT-WRITE/g)).toHaveLength(1);
    const text = stderr.replaceAll(/\s+/g, " ");
    expect(text).toContain("The disk is full.");
    expect(text).toMatch(/The run was stopped\. The last checkpoint is of step \d+: `sinkflex train --resume demo-/);
    expect(stdout).not.toContain("500 of 500");
    expect(folder.json("summary.json")).toMatchObject({ status: "failed", exit_code: 1 });
    const { step } = folder.events().findLast((event) => event.type === "step");
    const again = await folder.run(["train", "--resume", "latest", "--set", `train.steps=${step + 5}`, "-q"]);
    expect(again.code).toBe(0);
  });

  it("before it starts: one message, nothing left behind", async () => {
    const { code, stderr } = await folder.run(["train", "c.yaml"], {}, full("run\\.json"));
    expect(code).toBe(1);
    expect(stderr.match(/SF-RUN-CANNOT-WRITE/g)).toHaveLength(1);
    expect(folder.dirs()).toEqual([]);
  });

  it("at the very end: the failure of the summary is told", async () => {
    const { code, stderr } = await folder.run(["train", "c.yaml"], {}, full("summary\\.json"));
    expect(code).toBe(1);
    expect(stderr.match(/SF-RUN-CANNOT-WRITE/g)).toHaveLength(1);
    expect(folder.events().at(-1)).toMatchObject({ status: "completed" });
  });
});
