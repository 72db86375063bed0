import { existsSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventually, exists, Folder, group, type Running } from "../fixtures/sinkflex.js";

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
  folder.config({ steps: 500 });
});
afterEach(() => folder.clear());

const linux = process.platform === "linux";
const inStep = (n: number) => (text: string) => text.includes(`step ${String(n).padStart(3)}/500`);
/** Longer than two presses may be apart and still count as one. */
const pause = () => new Promise((resolve) => setTimeout(resolve, 400));

function workerOf(): number {
  return folder.events().find((event) => event.type === "hello").pid;
}

async function begun(stub: object, when = inStep(3)): Promise<Running> {
  const running = folder.start(["train", "c.yaml"], stub);
  await running.until(when);
  return running;
}

describe("one Ctrl-C", () => {
  it("B120 finishes the step, saves, ends every process and exits 130", async () => {
    const running = await begun({ step_s: 0.1, children: 2 });
    const worker = workerOf();
    expect(exists(worker)).toBe(true);
    running.child.kill("SIGINT");
    const { code, stdout } = await running.result;
    expect(code).toBe(130);
    expect(stdout).toContain("Finishing the step and saving; Ctrl-C again to stop now");
    const summary = folder.json("summary.json");
    expect(summary).toMatchObject({ status: "stopped", exit_code: 130 });
    expect(summary.checkpoint).toBe(`checkpoints/step-${String(summary.steps).padStart(6, "0")}`);
    expect(existsSync(join(folder.runs, "latest", summary.checkpoint, "trainer.json"))).toBe(true);
    expect(stdout).toMatch(/next +sinkflex train --resume demo-/);
    if (linux) await eventually(() => group(worker).length === 0);
  });

  it("is honoured while Python still starts", async () => {
    const running = folder.start(["train", "c.yaml"], { load_s: 0.5 });
    await running.until((text) => text.includes("run demo-"));
    running.child.kill("SIGINT");
    expect((await running.result).code).toBe(130);
    expect(folder.json("summary.json")).toMatchObject({ status: "stopped", steps: 0, checkpoint: null });
  });

  it.each(["SIGTERM", "SIGHUP"] as const)("B120 %s does the same and exits 143", async (signal) => {
    const running = await begun({ step_s: 0.1, children: 1 });
    const worker = workerOf();
    running.child.kill(signal);
    expect((await running.result).code).toBe(143);
    expect(folder.json("summary.json")).toMatchObject({ status: "stopped", exit_code: 143 });
    if (linux) await eventually(() => group(worker).length === 0);
  });
});

describe("a second Ctrl-C", () => {
  it("B120 does not wait for the step", async () => {
    const running = await begun({ step_s: 60, children: 2 }, (text) => text.includes("held out at step 0"));
    const worker = workerOf();
    running.child.kill("SIGINT");
    await running.until((text) => text.includes("Finishing the step"));
    await pause();
    running.child.kill("SIGINT");
    const { code, stdout } = await running.result;
    expect(code).toBe(130);
    expect(stdout).toContain("Stopping now; this step is lost, saved checkpoints stay");
    expect(folder.json("summary.json")).toMatchObject({ status: "stopped", checkpoint: null });
    expect(folder.events().at(-1)).toMatchObject({ type: "end", seq: -1, status: "stopped", exit_code: 130 });
    if (linux) await eventually(() => group(worker).length === 0);
  });

  it("B122 ends a worker that ignores everything", async () => {
    const stub = { step_s: 60, deaf: true, ignore_term: true };
    const running = await begun(stub, (text) => text.includes("held out at step 0"));
    const worker = workerOf();
    running.child.kill("SIGINT");
    await pause();
    running.child.kill("SIGINT");
    expect((await running.result).code).toBe(130);
    expect(exists(worker)).toBe(false);
  });

  it("a third kills at once", async () => {
    const stub = { step_s: 60, deaf: true, ignore_term: true };
    const running = await begun(stub, (text) => text.includes("held out at step 0"));
    for (let press = 0; press < 3; press++) {
      running.child.kill("SIGINT");
      await pause();
    }
    const { code, stdout } = await running.result;
    expect(code).toBe(130);
    expect(stdout).toContain("Killing the worker");
  });
});

describe("the end of the command line itself", () => {
  it.runIf(linux)("SIGKILL leaves no process, and the run counts as interrupted and can go on", async () => {
    const running = await begun({ step_s: 0.1, children: 2 });
    const worker = workerOf();
    running.child.kill("SIGKILL");
    await running.result;
    await eventually(() => group(worker).length === 0);
    expect(JSON.parse((await folder.run(["runs", "--json"])).stdout)[0]).toMatchObject({ status: "interrupted" });
    const { code } = await folder.run(["train", "--resume", "latest", "--set", "train.steps=8", "-q"]);
    expect(code).toBe(0);
    expect(folder.json("summary.json")).toMatchObject({ status: "completed", attempt: 2 });
  });

  it("a reader of --json that goes away ends neither the run nor its record", async () => {
    folder.config({ steps: 30 });
    const running = folder.start(["train", "c.yaml", "--json"], { step_s: 0.01 });
    await running.until((text) => text.includes('"plan"'));
    running.child.stdout?.destroy();
    expect((await running.result).code).toBe(0);
    expect(folder.events().filter((event) => event.type === "step")).toHaveLength(30);
  });

  it("a worker that says its end and then hangs is not waited for", async () => {
    folder.config({ steps: 2 });
    const { code } = await folder.run(["train", "c.yaml", "-q"], { hang_after_end: true });
    expect(code).toBe(0);
    expect(folder.json("summary.json").status).toBe("completed");
  });
});
