import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { UserError } from "../../../src/errors.js";
import {
  cannotWrite,
  createRun,
  findRun,
  lastCheckpoint,
  listRuns,
  pointLatest,
  readRun,
  runName,
  runOptions,
  writeJson,
  writeWhole,
} from "../../../src/run/dir.js";
import { Recorder } from "../../../src/run/record.js";

const noon = new Date(2026, 10, 30, 17, 22, 5);
let root: string;
beforeEach(() => {
  root = join(mkdtempSync(join(tmpdir(), "sinkflex dir-")), "my runs");
});
afterEach(() => rmSync(join(root, ".."), { recursive: true, force: true }));

function caught(act: () => unknown): UserError {
  try {
    act();
  } catch (error) {
    if (error instanceof UserError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

function run(name: string): string {
  const dir = join(root, name);
  mkdirSync(dir, { recursive: true });
  writeJson(join(dir, "run.json"), { v: 1, run: name, config: {}, attempt: 1 });
  return dir;
}

describe("the directory of a run", () => {
  it("is named after the config and the second", () => {
    expect(runName("mini-shop", noon)).toBe("mini-shop-20261130-172205");
  });

  it("B127 five starts with a frozen clock get five directories", () => {
    const dirs = [1, 2, 3, 4, 5].map(() => createRun(root, "demo", noon));
    expect(dirs.map((dir) => basename(dir))).toEqual([
      "demo-20261130-172205",
      "demo-20261130-172205-2",
      "demo-20261130-172205-3",
      "demo-20261130-172205-4",
      "demo-20261130-172205-5",
    ]);
  });

  it("is newest first in the list, whatever its name, and other folders are left out", () => {
    for (const name of ["b-20261130-172205", "a-20261130-172206", "b-20261130-172205-2", "b-20261130-172205-10"])
      run(name);
    mkdirSync(join(root, "notes"));
    pointLatest(root, join(root, "a-20261130-172206"));
    expect(listRuns(root).map((dir) => basename(dir))).toEqual([
      "a-20261130-172206",
      "b-20261130-172205-10",
      "b-20261130-172205-2",
      "b-20261130-172205",
    ]);
    expect(listRuns(join(root, "nowhere"))).toEqual([]);
  });

  it("is pointed to by latest, replaced in one rename", () => {
    const [first, second] = [run("one-20261130-172205"), run("two-20261130-172206")];
    expect(pointLatest(root, first)).toBe(true);
    expect(pointLatest(root, second)).toBe(true);
    expect(readlinkSync(join(root, "latest"))).toBe("two-20261130-172206");
  });

  it("keeps a folder that somebody called latest", () => {
    const dir = run("one-20261130-172205");
    mkdirSync(join(root, "latest"));
    writeFileSync(join(root, "latest", "mine.txt"), "keep");
    expect(pointLatest(root, dir)).toBe(false);
    expect(readFileSync(join(root, "latest", "mine.txt"), "utf8")).toBe("keep");
  });
});

describe("finding a run", () => {
  it("by name, by path and by latest, which is answered with the real name", () => {
    const dir = run("demo-20261130-172205");
    pointLatest(root, dir);
    expect(findRun(root, "demo-20261130-172205")).toBe(dir);
    expect(findRun("/nowhere", dir)).toBe(dir);
    expect(findRun(root, "latest")).toBe(dir);
    expect(findRun(root, join(root, "latest"))).toBe(dir);
  });

  it("names the nearest when there is none of that name", () => {
    run("demo-20261130-172205");
    const error = caught(() => findRun(root, "demo-20261130-172206"));
    expect(error.problems[0]).toMatchObject({ code: "SF-RUN-NOT-FOUND" });
    expect(error.problems[0]?.fix).toContain("Did you mean `demo-20261130-172205`?");
    expect(error.exitCode).toBe(2);
  });

  it("says that there is none yet", () => {
    const error = caught(() => findRun(root, "latest"));
    expect(error.problems[0]).toMatchObject({ code: "SF-RUN-NOT-FOUND", what: `There is no run in ${root} yet.` });
  });

  it("refuses a folder that is not a run", () => {
    mkdirSync(join(root, "photos"), { recursive: true });
    expect(caught(() => findRun(root, "photos")).problems[0]?.code).toBe("SF-RUN-NOT-A-RUN");
  });

  it.each([
    ["half a file", '{"v":1,"run":', "not JSON"],
    ["another version", '{"v":2,"run":"x","config":{}}', "v 2"],
  ])("refuses a run.json that is %s", (_, text, why) => {
    const dir = run("demo-20261130-172205");
    writeFileSync(join(dir, "run.json"), text);
    const [problem] = caught(() => readRun(dir)).problems;
    expect(problem).toMatchObject({ code: "SF-RUN-NOT-A-RUN", why: expect.stringContaining(why) });
  });

  it("gives the options that find it again, quoted for a shell", () => {
    expect(runOptions("/data/my runs/x")).toBe(" --runs '/data/my runs'");
    expect(runOptions("/data/it's/x")).toBe(" --runs '/data/it'\\''s'");
    expect(runOptions("/data/runs/x")).toBe(" --runs /data/runs");
    expect(runOptions(join(process.cwd(), "runs", "x"))).toBe("");
  });
});

describe("the last checkpoint", () => {
  it("B102 is the one with the highest number, not the last in the alphabet or in time", () => {
    const dir = run("demo-20261130-172205");
    const names = ["step-900", "step-1000", "step-9900", "step-10000", "step-20000.draft-77", "tmp"];
    names.forEach((name, age) => {
      mkdirSync(join(dir, "checkpoints", name), { recursive: true });
      utimesSync(join(dir, "checkpoints", name), 1000 - age, 1000 - age);
    });
    expect(lastCheckpoint(dir)).toEqual({ checkpoint: join(dir, "checkpoints", "step-10000"), step: 10_000 });
  });

  it("is null before the first", () => {
    expect(lastCheckpoint(run("demo-20261130-172205"))).toBeNull();
  });
});

describe("a disk that can't be written", () => {
  it.each([
    ["ENOSPC", "The disk is full.", "Free some space"],
    ["EDQUOT", "Your quota on this disk is used up.", "Free some space"],
    ["EACCES", "You may not write there.", "--runs DIR"],
    ["EROFS", "The file system is read-only.", "--runs DIR"],
  ])("%s is one sentence", (code, why, fix) => {
    const error = cannotWrite("/x/run.json", Object.assign(new Error("no"), { code }));
    expect(error.exitCode).toBe(1);
    expect(error.problems).toHaveLength(1);
    expect(error.problems[0]).toMatchObject({ code: "SF-RUN-CANNOT-WRITE", what: "Can't write /x/run.json.", why });
    expect(error.problems[0]?.fix).toContain(fix);
  });

  it("is told when the runs would be under a file", () => {
    mkdirSync(join(root, ".."), { recursive: true });
    writeFileSync(root, "a file");
    expect(caught(() => createRun(join(root, "runs"), "demo", noon)).problems[0]?.why).toContain("is a file");
  });

  it("leaves the old file whole and no draft behind", () => {
    const dir = run("demo-20261130-172205");
    mkdirSync(join(dir, "summary.json")); // a directory in the way: the rename fails
    const error = caught(() => writeWhole(join(dir, "summary.json"), "new"));
    expect(error.problems[0]?.code).toBe("SF-RUN-CANNOT-WRITE");
    expect(readdirSync(dir).sort()).toEqual(["run.json", "summary.json"]);
  });

  it.runIf(existsSync("/dev/full"))("is told by the record when the disk fills up", () => {
    const dir = run("demo-20261130-172205");
    symlinkSync("/dev/full", join(dir, "events.jsonl"));
    const recorder = new Recorder(dir);
    const error = caught(() => recorder.write(Buffer.from("{}\n")));
    recorder.close();
    expect(error.problems[0]).toMatchObject({ code: "SF-RUN-CANNOT-WRITE", why: "The disk is full." });
  });
});

describe("the record", () => {
  it("begins on a fresh line after half of one", () => {
    const dir = run("demo-20261130-172205");
    writeFileSync(join(dir, "events.jsonl"), '{"a":1}\n{"b"');
    const recorder = new Recorder(dir);
    recorder.write(Buffer.from('{"c":1}\n'));
    recorder.close();
    recorder.close();
    expect(readFileSync(join(dir, "events.jsonl"), "utf8")).toBe('{"a":1}\n{"b"\n{"c":1}\n');
  });

  it("adds nothing to a whole one", () => {
    const dir = run("demo-20261130-172205");
    for (const n of [1, 2]) {
      const recorder = new Recorder(dir);
      recorder.write(Buffer.from(`${n}\n`));
      recorder.close();
    }
    expect(readFileSync(join(dir, "events.jsonl"), "utf8")).toBe("1\n2\n");
  });
});
