import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { holderOf, RunLock } from "../../../src/run/lock.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "sinkflex-lock-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

function leave(holder: object): void {
  writeFileSync(join(dir, "lock"), JSON.stringify({ host: hostname(), worker: null, ...holder }));
}

/** The id of a process that is gone. */
async function gone(): Promise<number> {
  const child = spawn(process.execPath, ["-e", ""]);
  await once(child, "exit");
  return child.pid as number;
}

function take(): RunLock {
  const lock = RunLock.take(dir);
  if (lock instanceof RunLock) return lock;
  throw new Error(`held by ${JSON.stringify(lock)}`);
}

describe("the lock of a run", () => {
  it("is held by one at a time", () => {
    expect(holderOf(dir)).toBeNull();
    const lock = take();
    expect(holderOf(dir)).toMatchObject({ host: hostname(), cli: { pid: process.pid }, worker: null });
    expect(RunLock.take(dir)).toMatchObject({ cli: { pid: process.pid } });
    lock.release();
    expect(holderOf(dir)).toBeNull();
    expect(readdirSync(dir)).toEqual([]);
    take().release();
  });

  it("is void when its process is gone, and is taken over", async () => {
    leave({ cli: { pid: await gone(), started: null } });
    expect(holderOf(dir)).toBeNull();
    take();
    expect(JSON.parse(readFileSync(join(dir, "lock"), "utf8")).cli.pid).toBe(process.pid);
    expect(readdirSync(dir)).toEqual(["lock"]);
  });

  it("is held while the worker still ends, after its command line was killed", async () => {
    const worker = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"]);
    const lock = take();
    lock.noteWorker(worker.pid as number);
    const kept = JSON.parse(readFileSync(join(dir, "lock"), "utf8"));
    leave({ ...kept, cli: { pid: await gone(), started: null } });
    expect(holderOf(dir)?.worker?.pid).toBe(worker.pid);
    worker.kill("SIGKILL");
    await once(worker, "exit");
    expect(holderOf(dir)).toBeNull();
  });

  it.runIf(process.platform === "linux")("is void when the process id belongs to another process by now", () => {
    leave({ cli: { pid: process.pid, started: "1" } });
    expect(holderOf(dir)).toBeNull();
  });

  it("is not judged from another host", () => {
    leave({ host: "elsewhere", cli: { pid: 1, started: null } });
    expect(holderOf(dir)?.host).toBe("elsewhere");
  });

  it("is void when it is unreadable", () => {
    writeFileSync(join(dir, "lock"), "{");
    expect(holderOf(dir)).toBeNull();
    take().release();
  });
});
