import { existsSync, readFileSync, readlinkSync } from "node:fs";
import { basename, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventually, Folder } from "../fixtures/sinkflex.js";

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
  folder.config();
});
afterEach(() => folder.clear());

describe("sinkflex train", () => {
  it("runs a config to its end and leaves a whole run directory", async () => {
    const { code, stdout, stderr } = await folder.run(["train", "c.yaml"]);
    expect(stderr).toBe("");
    expect(code).toBe(0);
    const [dir = ""] = folder.dirs();
    expect(basename(dir)).toMatch(/^demo-\d{8}-\d{6}$/);
    expect(readlinkSync(join(folder.runs, "latest"))).toBe(basename(dir));
    expect(folder.read("config.yaml")).toBe(readFileSync(join(folder.path, "c.yaml"), "utf8"));
    expect(folder.json("run.json")).toMatchObject({
      v: 1,
      verb: "train",
      run: basename(dir),
      run_dir: dir,
      config_file: join(folder.path, "c.yaml"),
      attempt: 1,
      resume: null,
      config: { name: "demo", seed: 7, train: { steps: 6 }, rollout: { group_size: 8 } },
    });
    expect(folder.json("summary.json")).toMatchObject({
      status: "completed",
      exit_code: 0,
      steps: 6,
      checkpoint: "checkpoints/step-000006",
      controls: { noop: 0 },
      config_sha256: folder.json("run.json").config_sha256,
    });
    expect(
      folder.json("summary.json").evals.map((one: { step: number; mean: number }) => [one.step, one.mean]),
    ).toEqual([
      [0, 0.2],
      [6, 0.8],
    ]);
    expect(existsSync(join(dir, "lock"))).toBe(false);
    expect(stdout).toMatch(/held out +0\.200 \[0\.15, 0\.25\] at step 0 to 0\.800/);
    expect(stdout).toContain(`next        sinkflex runs show ${basename(dir)} --episode rl-000006-t00-s0\n`);
  });

  it.each([
    ["a pipe", {}],
    ["CI", { CI: "true" }],
    ["TERM=dumb", { TERM: "dumb" }],
    ["NO_COLOR", { NO_COLOR: "1" }],
    ["a width of 20", { COLUMNS: "20" }],
  ])("B119 in %s writes no escape bytes and at most a line a step", async (_, env) => {
    const { stdout, stderr } = await folder.run(["train", "c.yaml"], {}, env);
    expect(stdout + stderr).not.toMatch(/\p{Cc}(?<!\n)/u);
    expect(stdout.split("\n").filter((line) => line.startsWith("step ")).length).toBe(6);
    expect(stdout.split("\n").length).toBeLessThan(6 + 24);
  });

  it("--json writes the event stream, byte for byte the record, and nothing else", async () => {
    const { code, stdout, stderr } = await folder.run(["train", "c.yaml", "--json"]);
    expect(code).toBe(0);
    expect(stdout).toBe(folder.read("events.jsonl"));
    expect(folder.events().at(-1)).toMatchObject({ type: "end", status: "completed" });
    expect(stderr).toContain("completed, 6 of 6 steps");
  });

  it("--quiet says only how it ended", async () => {
    expect((await folder.run(["train", "c.yaml", "--quiet"])).stdout.trim()).toMatch(
      /^ended +completed, 6 of 6 steps, \d+ s$/,
    );
  });

  it("B118 shows the first event while the first step still goes on", async () => {
    const running = folder.start(["train", "c.yaml"], { step_s: 60 }, { PYTHONUNBUFFERED: "" });
    await running.until((text) => text.includes("held out at step 0"));
    running.child.kill("SIGKILL");
    await running.result;
  });

  it("--dry-run says what would run, starts nothing and needs no Python", async () => {
    const env = { SINKFLEX_PYTHON: join(folder.path, "no-such-python") };
    const { code, stdout } = await folder.run(["train", "c.yaml", "--dry-run", "--set", "optim.lr=5e-4"], {}, env);
    expect(code).toBe(0);
    expect(stdout).toContain('"lr": 0.0005');
    expect(stdout).toMatch(new RegExp(`run +${join(folder.runs, "demo-")}\\d{8}-\\d{6}\n`));
    expect(stdout).toContain("Nothing was started");
    expect(existsSync(folder.runs)).toBe(false);
  });

  it("--runs keeps the runs elsewhere, and the commands it suggests say so", async () => {
    const { stdout } = await folder.run(["train", "c.yaml", "--runs", "other runs"]);
    const [, id] = /run +other runs\/(demo-[\d-]+)\n/.exec(stdout) ?? [];
    expect(stdout).toContain(
      `next        sinkflex runs show ${id} --episode rl-000006-t00-s0 --runs '${join(folder.path, "other runs")}'\n`,
    );
  });

  it("B127 five starts in the same second get five directories", async () => {
    folder.config({ steps: 1 });
    const results = await Promise.all([1, 2, 3, 4, 5].map(() => folder.run(["train", "c.yaml", "-q"])));
    expect(results.map((result) => result.code)).toEqual([0, 0, 0, 0, 0]);
    expect(folder.dirs()).toHaveLength(5);
    const ids = folder.dirs().map((dir) => folder.json("run.json", dir).run);
    expect(new Set(ids).size).toBe(5);
    expect(ids).toContain(readlinkSync(join(folder.runs, "latest")));
    for (const dir of folder.dirs()) expect(folder.json("summary.json", dir).status).toBe("completed");
  });

  it("a config with an error leaves nothing behind", async () => {
    const { code, stderr } = await folder.run(["train", "c.yaml", "--set", "train.steps=0"]);
    expect(code).toBe(2);
    expect(stderr).toContain("SF-CONFIG");
    expect(existsSync(folder.runs)).toBe(false);
  });

  it("a Python that is not there leaves no run behind", async () => {
    const { code, stderr } = await folder.run(["train", "c.yaml"], {}, { SINKFLEX_PYTHON: "/no/such/python" });
    expect(code).toBe(3);
    expect(stderr).toContain("SF-PYTHON-NOT-FOUND");
    expect(existsSync(folder.runs)).toBe(false);
  });

  it("runs that would lie under a file: one clear message", async () => {
    const { code, stderr } = await folder.run(["train", "c.yaml", "--runs", join(folder.path, "c.yaml", "runs")]);
    expect(code).toBe(1);
    expect(stderr).toContain("SF-RUN-CANNOT-WRITE");
    expect(stderr).toContain("is a file, not a directory");
  });

  it("B109 100 000 events: none is lost and the memory of the command line is flat", async () => {
    folder.config({ steps: 1 });
    const most = async (flood: number) => {
      const running = folder.start(["train", "c.yaml", "-q"], { flood });
      let peak = 0;
      let over = false;
      void running.result.then(() => {
        over = true;
      });
      await eventually(() => {
        try {
          peak = Math.max(
            peak,
            Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${running.pid}/status`, "utf8"))?.[1] ?? 0),
          );
        } catch {
          // gone
        }
        return over;
      });
      expect((await running.result).code).toBe(0);
      return peak / 1024;
    };
    const few = await most(10_000);
    const many = await most(100_000);
    expect(folder.events().filter((event) => event.type === "step")).toHaveLength(100_001);
    expect(folder.read("events.jsonl").length).toBeGreaterThan(40_000_000);
    if (process.platform === "linux") expect(many - few).toBeLessThan(50);
  });
});
