import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { BenchFolder, flat, lastLine } from "../fixtures/bench-folder.js";
import { eventually, exists, group } from "../fixtures/sinkflex.js";

let bench: BenchFolder;
beforeEach(() => {
  bench = new BenchFolder();
});
afterEach(() => bench.clear());

const linux = process.platform === "linux";

describe("Ctrl-C", () => {
  const pause = () => new Promise((resolve) => setTimeout(resolve, 400));

  it("once: the cell is finished, the table so far is shown and recorded, exit 130", async () => {
    const running = bench.start("--seq 1024 2048 4096 --out new.json", { cell_s: 0.6 });
    await running.until((text) => text.includes("cell 2/6"));
    running.child.kill("SIGINT");
    const { code, stdout } = await running.result;
    expect(code).toBe(130);
    expect(stdout).toContain("Finishing this cell; Ctrl-C again to stop now");
    expect(stdout).toMatch(/^stopped after [3-5] of 6 cells, \d+ s$/m);
    expect(stdout).toMatch(/^ {2}1024 {2}flash /m);
    expect(JSON.parse(readFileSync(join(bench.path, "new.json"), "utf8"))).toMatchObject({ stopped: true });
    expect(bench.left()).toEqual([]);
  });

  it("--json still ends with the record", async () => {
    const running = bench.start("--seq 1024 2048 4096 --json", { cell_s: 0.4 });
    await running.until((text) => text.includes('"kind":"cell"'));
    running.child.kill("SIGINT");
    const { code, stdout } = await running.result;
    expect(code).toBe(130);
    expect(lastLine(stdout)).toMatchObject({ type: "bench", stopped: true });
  });

  it("twice: the cell is not waited for, what was measured is shown", async () => {
    const running = bench.start("--seq 1024 2048", { cell_s: 60, ignore_term: false });
    await running.until((text) => text.includes("note "));
    running.child.kill("SIGINT");
    await running.until((text) => text.includes("Finishing this cell"));
    await pause();
    running.child.kill("SIGINT");
    const { code, stdout } = await running.result;
    expect(code).toBe(130);
    expect(stdout).toContain("stopped before the first cell");
    expect(bench.left()).toEqual([]);
  });

  it("SIGTERM: exit 143", async () => {
    const running = bench.start("--seq 1024", { cell_s: 0.4 });
    await running.until((text) => text.includes("note "));
    running.child.kill("SIGTERM");
    expect((await running.result).code).toBe(143);
  });

  it.runIf(linux)("SIGKILL of the command line leaves no process", async () => {
    const running = bench.start("--json", { cell_s: 1 });
    let text = "";
    running.child.stdout?.on("data", (part) => {
      text += part;
    });
    await running.until((all) => all.includes('"plan"'));
    const { pid } = JSON.parse(text.split("\n")[0] ?? "");
    expect(exists(pid)).toBe(true);
    running.child.kill("SIGKILL");
    await running.result;
    await eventually(() => group(pid).length === 0);
  });
});

describe("a worker that ends otherwise", () => {
  it("dies: which cell, its last words, what was measured before, the log", async () => {
    const { code, stdout, stderr } = await bench.run("--seq 1024 2048 --out new.json", { die_at: [2, "SIGKILL"] });
    expect(code).toBe(1);
    expect(flat(stderr)).toContain(
      "The worker was ended by SIGKILL (while measuring eager at 2048 tokens). SF-WORKER-DIED",
    );
    expect(stderr).toContain("stub: last words");
    const [dir = ""] = bench.left();
    expect(flat(stderr)).toContain(`The log is ${join(dir, "stderr.log")}.`);
    expect(stdout).toMatch(/^failed after 2 of 4 cells, \d+ s$/m);
    expect(stdout).toMatch(/^ {2}1024 {2}flash /m);
    expect(JSON.parse(readFileSync(join(bench.path, "new.json"), "utf8"))).toMatchObject({ stopped: true });
  });

  it("refuses: its reason and exit code, nothing else", async () => {
    const refuse = {
      owner: "infra",
      code: "SF-BENCH-DEVICE",
      what: "--impl triton needs a CUDA device, and the device is cpu.",
      why: "It has no implementation on a CPU.",
      fix: "Choose among eager, flash and transformers.",
    };
    const { code, stdout, stderr } = await bench.run("--impl triton --out new.json", { refuse });
    expect([code, stdout]).toEqual([3, ""]);
    for (const part of [refuse.what, refuse.code, refuse.why, refuse.fix]) expect(flat(stderr)).toContain(part);
    expect(stderr).not.toContain("log");
    expect(bench.left()).toEqual([]);
    expect(existsSync(join(bench.path, "new.json"))).toBe(false);
  });

  it("is of another version: one clear message", async () => {
    const { code, stderr } = await bench.run("", { version: 2 });
    expect(code).toBe(1);
    expect(flat(stderr)).toContain("The worker speaks protocol version 2; this command line speaks 1.");
  });

  it("warns: once, in words", async () => {
    const { stdout } = await bench.run("--seq 1024", { warn_at: [0, "busy", "Another process uses the processor."] });
    expect(stdout.match(/^warning {2}Another process uses the processor\.$/gm)).toHaveLength(1);
  });
});
