import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { supervise } from "../../../src/process/supervise.js";
import { Worker } from "../../../src/process/worker.js";
import { decodeLine, LineSplitter } from "../../../src/protocol/decode.js";
import type { Event } from "../../../src/protocol/events.js";
import { initialState, reduce, standing } from "../../../src/run/state.js";
import { environment, eventually, exists, group, STUB } from "../../fixtures/sinkflex.js";

const linux = process.platform === "linux";
let dir: string;
let started: Worker[] = [];
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "sinkflex-worker-"));
});
afterEach(async () => {
  for (const worker of started) worker.kill();
  await Promise.all(started.map((worker) => worker.exited));
  started = [];
  rmSync(dir, { recursive: true, force: true });
});

async function start(stub: object, steps = 3): Promise<Worker> {
  const config = {
    seed: 7,
    train: { steps },
    env: { suite: "mini-shop" },
    rollout: { group_size: 8, tasks_per_step: 8 },
  };
  const run = { v: 1, verb: "train", run: "demo", run_dir: dir, attempt: 1, resume: null, config };
  writeFileSync(join(dir, "run.json"), JSON.stringify(run));
  mkdirSync(join(dir, "checkpoints"), { recursive: true });
  const worker = await Worker.start({
    command: STUB,
    args: ["-P", "-m", "sinkflex", "train", "run.json"],
    cwd: dir,
    env: environment(stub),
    log: join(dir, "stderr.log"),
  });
  started.push(worker);
  return worker;
}

/** Reads on to the end, calling back with every event. */
async function read(worker: Worker, on: (event: Event) => void = () => {}): Promise<Event[]> {
  const splitter = new LineSplitter();
  const events: Event[] = [];
  const take = (lines: Buffer[]) => {
    for (const line of lines) {
      const decoded = decodeLine(line);
      if (decoded.kind !== "event") throw new Error(`${decoded.kind}: ${line}`);
      events.push(decoded.event);
      on(decoded.event);
    }
  };
  for await (const chunk of worker.events()) take(splitter.push(chunk));
  take(splitter.end());
  return events;
}

const story = { start: initialState, reduce, standing };
const quiet = { record: () => {}, lines: () => {}, event: () => {}, stoppedBy: () => null };

describe("a worker", () => {
  it("tells its events, writes its words to the log, and ends", async () => {
    const worker = await start({});
    const events = await read(worker);
    expect(events.map((event) => event.seq)).toEqual(events.map((_, n) => n));
    expect(events.at(-1)).toMatchObject({ type: "end", status: "completed" });
    expect(await worker.exited).toEqual({ code: 0, signal: null });
    expect(worker.alive).toBe(false);
    expect(readFileSync(join(dir, "stderr.log"), "utf8")).toContain("a word on stdout");
  });

  it("that can't be started is an error, not a silence", async () => {
    const launch = { command: join(dir, "no-python"), args: [], cwd: dir, env: {}, log: join(dir, "log") };
    await expect(Worker.start(launch)).rejects.toMatchObject({ code: "ENOENT" });
    writeFileSync(join(dir, "no-python"), "not a program");
    await expect(Worker.start(launch)).rejects.toMatchObject({ code: "EACCES" });
  });

  it("B130 writes 5 MB to stderr and does not stall", async () => {
    const worker = await start({ stderr_bytes: 5_000_000 });
    const events = await read(worker);
    expect(events.at(-1)?.type).toBe("end");
    expect(statSync(join(dir, "stderr.log")).size).toBeGreaterThan(4_900_000);
  });

  it("B118 is heard while it runs: the pipe for events is its own, and nothing buffers it", async () => {
    const worker = await start({ step_s: 30 });
    for await (const chunk of worker.events()) {
      if (chunk.includes('"rollout"')) break; // the step lasts 30 s and has only begun
    }
    expect(worker.alive).toBe(true);
  });
});

describe("stopping", () => {
  it("a stop that is sent before the worker listens is honoured", async () => {
    const worker = await start({ load_s: 0.3 });
    worker.stop();
    const events = await read(worker);
    expect(events.at(-1)).toMatchObject({ type: "end", status: "stopped", exit_code: 130 });
    expect(events.some((event) => event.type === "step")).toBe(false);
  });

  it("a stop finishes the step and saves", async () => {
    const worker = await start({ step_s: 0.2 }, 50);
    const events = await read(worker, (event) => {
      if (event.type === "phase" && event.phase === "rollout" && event.step === 2) worker.stop();
    });
    expect(events.filter((event) => event.type === "step").at(-1)).toMatchObject({ step: 2 });
    expect(events.filter((event) => event.type === "checkpoint").at(-1)).toMatchObject({ step: 2 });
    expect(await worker.exited).toEqual({ code: 130, signal: null });
  });

  it.runIf(linux)("B120 the processes that it started end with it", async () => {
    const worker = await start({ children: 2, step_s: 30 });
    let members: number[] = [];
    await read(worker, (event) => {
      if (event.type !== "hello") return;
      members = group(worker.pid);
      worker.terminate();
    });
    expect(members).toHaveLength(3);
    expect(await worker.exited).toMatchObject({ signal: "SIGTERM" });
    await eventually(() => group(worker.pid).length === 0);
  });

  it.runIf(linux)("B120 what it leaves behind after a good end is ended too", async () => {
    const worker = await start({ children: 2 });
    await read(worker);
    expect(await worker.exited).toEqual({ code: 0, signal: null });
    await eventually(() => group(worker.pid).length === 0);
  });

  it("B122 one that ignores SIGTERM is killed after the grace", async () => {
    const worker = await start({ ignore_term: true, deaf: true, step_s: 30 });
    await read(worker, (event) => {
      if (event.type === "hello") worker.terminate(100);
    });
    expect(await worker.exited).toEqual({ code: null, signal: "SIGKILL" });
    expect(exists(worker.pid)).toBe(false);
  });

  it("B122 one that ends early is not waited for: no timer is left", async () => {
    // The worker's own timer, told by its delay: counting all timers of the process would count the test runner's too.
    const set = vi.spyOn(globalThis, "setTimeout");
    const cleared = vi.spyOn(globalThis, "clearTimeout");
    try {
      const worker = await start({ step_s: 30 });
      await read(worker, (event) => {
        if (event.type === "hello") worker.terminate(600_000);
      });
      expect(await worker.exited).toMatchObject({ signal: "SIGTERM" });
      const mine = set.mock.results.filter((_, call) => set.mock.calls[call]?.[1] === 600_000);
      expect(mine).toHaveLength(1);
      expect(cleared).toHaveBeenCalledWith(mine[0]?.value);
    } finally {
      set.mockRestore();
      cleared.mockRestore();
    }
  });

  it("a grandchild that left the group and holds stdout and the event pipe does not delay the end", async () => {
    const worker = await start({ holder: true }); // it sleeps for 30 s
    const events = await read(worker);
    expect(events.at(-1)).toMatchObject({ type: "end", status: "completed" });
  }, 20_000);
});

describe("supervising", () => {
  it("records every line before anything is made of it", async () => {
    const worker = await start({});
    let recorded = "";
    const seen: string[] = [];
    const outcome = await supervise(worker, story, join(dir, "stderr.log"), {
      ...quiet,
      record: (lines) => {
        recorded += lines.toString("utf8");
      },
      event: (state, event) => {
        expect(recorded).toContain(`"seq":${event.seq},`);
        expect(state.events).toBe(seen.length + 1);
        seen.push(event.type);
      },
    });
    expect(outcome.state.status).toBe("completed");
    expect(recorded.trimEnd().split("\n")).toHaveLength(seen.length);
  });

  it("loses none of 100 000 events, and a slow reader slows the worker instead of filling the memory", async () => {
    const worker = await start({ flood: 100_000 }, 1);
    let [lines, largest, turn] = [0, 0, 0];
    const outcome = await supervise(worker, story, join(dir, "stderr.log"), {
      ...quiet,
      record: (bytes) => {
        for (const byte of bytes) if (byte === 0x0a) lines += 1;
        largest = Math.max(largest, bytes.length);
      },
      lines: () => (++turn % 20 === 0 ? new Promise((resolve) => setTimeout(resolve, 5)) : undefined),
    });
    expect(outcome.state.events).toBe(lines);
    expect(lines).toBeGreaterThan(100_000);
    expect(largest).toBeLessThan(1_000_000);
  });

  it("counts and shows lines that are no events, keeps them in the log, and goes on", async () => {
    const raw = 'Traceback: oh no\n{"v":1,"seq":1,"t":0,"type":"weather","sun":true}\n{"v":1,"type":"step"}\n';
    const worker = await start({ raw });
    let recorded = "";
    const { state } = await supervise(worker, story, join(dir, "stderr.log"), {
      ...quiet,
      record: (lines) => {
        recorded += lines.toString("utf8");
      },
    });
    expect(state.status).toBe("completed");
    expect(state.warnings).toMatchObject([{ code: "malformed_event", count: 2 }]);
    expect(recorded).toContain('{"v":1,"seq":1,"t":0,"type":"weather","sun":true}\n');
    expect(recorded).not.toContain("Traceback: oh no\n");
    expect(readFileSync(join(dir, "stderr.log"), "utf8")).toContain("Traceback: oh no");
  });

  it("B117 reads a last line without a newline, cut inside its characters", async () => {
    const what = "café ☕ 客户".repeat(40);
    const worker = await start({
      raw: `${JSON.stringify({ v: 1, seq: 1, t: 0, type: "warn", code: "x", what })}`,
      chop: 7,
    });
    const { state } = await supervise(worker, story, join(dir, "stderr.log"), quiet);
    expect(state.warnings).toMatchObject([{ code: "x", what, count: 1 }]);
  });

  it("refuses a worker of another version and ends it", async () => {
    const worker = await start({ version: 2, step_s: 30 });
    const { state, exit } = await supervise(worker, story, join(dir, "stderr.log"), quiet);
    expect(exit.signal).toBe("SIGTERM");
    expect(state.end).toMatchObject({ seq: -1, status: "failed", error: { code: "SF-WORKER-PROTOCOL" } });
    expect(state.end?.error?.what).toContain("version 2; this command line speaks 1");
  });

  it.each([
    [[2, "SIGKILL"], "ended by SIGKILL (in phase rollout, after step 2)", "memory ran out"],
    [[2, "SIGSEGV"], "ended by SIGSEGV", "Native code"],
    [[2, 7], "exit code 7", "log"],
  ])("writes the end of a worker that died of %j", async (dieAt, what, why) => {
    const worker = await start({ die_at: dieAt });
    let recorded = "";
    const { state } = await supervise(worker, story, join(dir, "stderr.log"), {
      ...quiet,
      record: (lines) => {
        recorded += lines.toString("utf8");
      },
    });
    expect(state.end).toMatchObject({ seq: -1, status: "failed", exit_code: 1, error: { code: "SF-WORKER-DIED" } });
    expect(state.end?.error?.what).toContain(what);
    expect(state.end?.error?.why).toContain(why);
    expect(JSON.parse(recorded.trimEnd().split("\n").at(-1) ?? "")).toEqual(state.end);
  });

  it("asks the worker to stop when the record can't be written, and reads on to its end", async () => {
    const worker = await start({ step_s: 0.05 }, 100);
    let calls = 0;
    const full = new Error("full");
    const { state, recordError } = await supervise(worker, story, join(dir, "stderr.log"), {
      ...quiet,
      record: () => {
        calls += 1;
        if (calls >= 2) throw full;
      },
    });
    expect(recordError).toBe(full);
    expect(calls).toBe(2);
    expect(state.end).toMatchObject({ status: "stopped", exit_code: 130 });
  });
});
