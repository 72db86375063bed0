import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { clip } from "../../src/ui/format.js";
import { eventually, exists, Folder } from "../fixtures/sinkflex.js";
import { Screen, STYLE } from "../fixtures/terminal.js";

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
  folder.config({ steps: 500 });
});
afterEach(() => folder.clear());

const big = { columns: 80, rows: 24 };
const slow = { step_s: 0.15, wait_for: "the policy: 41 of 64 episodes live" };
const train = ["train", "c.yaml"];
/** The rows of the live window: from its title to the hint below. */
function windowOf(text: string): string[] {
  const rows = text.split("\n");
  return rows.slice(rows.findLastIndex((row) => /^demo-.*(running|starting|stopping|stopped|completed)/.test(row)));
}

describe("the live window", () => {
  it("shows the run as it goes on, once, and leaves the last picture and the summary", async () => {
    folder.config({ steps: 8 });
    const warning = "8 of 8 groups had no reward variance in step 2, so they taught nothing.";
    const screen = new Screen(folder, train, big, { ...slow, sft: 3, warn_at: [2, "zero_variance", warning] });
    await screen.until((text) => /warm start [23] of 3/.test(text));
    const text = await screen.until((now) => now.includes("step 5 of 8"));
    const rows = windowOf(text);
    expect(rows[0]).toMatch(/^demo-\d{8}-\d{6} +running: (rollout|checkpoint|saving a checkpoint)$/);
    expect(rows[0]).toHaveLength(80);
    expect(rows[1]).toMatch(/^step 5 of 8 {2}━+─+ {2}\d+ s, about \d+ s left$/);
    expect(rows[2]).toBe("cpu, 1 thread · attention flash · mini-shop · 8 tasks x 8 · float32");
    expect(rows).toContain(`warning  ${warning}`);
    expect(rows).toContain(" step  reward  success    std  zero-var  entropy  turns  calls     gap  tok/s");
    expect(rows.filter((row) => /^ +5 +0\.632 /.test(row))).toHaveLength(1);
    expect(rows.at(-1)).toBe("Ctrl-C: finish the step, save a checkpoint and stop");
    expect(text.match(/ step {2}reward /g)).toHaveLength(1); // painted over, not below
    expect((await screen.exited).exitCode).toBe(0);
    const end = await screen.text();
    expect(end.match(/ step {2}reward /g)).toHaveLength(1);
    expect(end).toMatch(/demo-\d{8}-\d{6} +completed\nstep 8 of 8/);
    expect(end).toMatch(/held out +0\.200 \[0\.15, 0\.25\] at step 0 to 0\.800/);
    expect(end).toMatch(/next +sinkflex runs show demo-/);
    expect(end).not.toContain("Ctrl-C:");
    expect(screen.raw).toContain("\x1b[?25h"); // the cursor is back
  });

  it.each([
    [120, 30],
    [80, 24],
    [60, 20],
    [20, 24],
  ])("at %i columns no row is broken", async (columns, rows) => {
    const screen = new Screen(folder, train, { columns, rows }, slow);
    const text = await screen.until((now) => /^step [3-9] of 500/m.test(now) && /^reward|^ step +rew/m.test(now));
    const from = text.split("\n").findIndex((row) => /^step \d/.test(row));
    for (const row of text.split("\n").slice(from)) expect(clip(row, columns)).toBe(row);
    expect(text.match(/^step \d+ of 500/gm)).toHaveLength(1);
    screen.type("\x03");
    expect((await screen.exited).exitCode).toBe(130);
  });

  it("survives a window that becomes narrow and wide again", async () => {
    const screen = new Screen(folder, train, { columns: 120, rows: 30 }, slow);
    await screen.until((text) => text.includes("step 3 of 500") && text.includes("logprob gap"));
    screen.resize({ columns: 60, rows: 30 });
    const narrow = await screen.until((text) => text.includes("step 6 of 500"));
    expect(narrow).not.toContain("logprob gap");
    expect(narrow.match(/step \d+ of 500/g)).toHaveLength(1);
    expect(narrow.match(/^reward /gm)).toHaveLength(1);
    screen.resize({ columns: 120, rows: 30 });
    const wide = await screen.until((text) => text.includes("step 8 of 500") && text.includes("logprob gap"));
    expect(wide.match(/step \d+ of 500/g)).toHaveLength(1);
    screen.type("\x03");
    await screen.exited;
  });

  it("B119 NO_COLOR: the same window without a colour", async () => {
    const screen = new Screen(folder, train, big, slow, { NO_COLOR: "1" });
    await screen.until((text) => text.includes("step 3 of 500"));
    screen.type("\x03");
    await screen.exited;
    expect(screen.raw.match(STYLE)).toBeNull();
    expect(windowOf(await screen.text())[0]).toMatch(/stopped$/);
  });

  it.each([{ CI: "true" }, { TERM: "dumb" }])("B119 on a terminal with %j: plain lines", async (env) => {
    folder.config({ steps: 3 });
    const screen = new Screen(folder, train, big, {}, env);
    expect((await screen.exited).exitCode).toBe(0);
    expect(await screen.text()).toContain("step 3/3  reward 0.451");
    expect(screen.raw.replaceAll(STYLE, "")).not.toContain("\x1b"); // no cursor is moved
    expect(screen.raw.replaceAll("\r\n", "\n")).not.toContain("\r");
  });

  it("paints at most ten times a second, however many events there are", async () => {
    folder.config({ steps: 200 });
    const begun = performance.now();
    const screen = new Screen(folder, train, big, { step_s: 0.001 });
    await screen.exited;
    const seconds = (performance.now() - begun) / 1000;
    const paints = screen.raw.split("\x1b[?2026h").length - 1; // every frame is one synchronised update, clearing another
    expect(folder.events().length).toBeGreaterThan(600);
    expect(paints).toBeGreaterThan(2);
    expect(paints).toBeLessThan(2 * 10 * seconds + 20);
  });
});

describe("Ctrl-C on the terminal", () => {
  it("once: says what happens, finishes the step and saves", async () => {
    const screen = new Screen(folder, train, big, slow);
    await screen.until((text) => text.includes("step 3 of 500"));
    screen.type("\x03");
    const text = await screen.until((now) => now.includes("Finishing the step and saving; Ctrl-C again to stop now"));
    expect(windowOf(text)[0]).toMatch(/stopping$/);
    expect(text).not.toContain("^C");
    expect((await screen.exited).exitCode).toBe(130);
    const end = await screen.text();
    expect(windowOf(end)[0]).toMatch(/stopped$/);
    expect(end).toMatch(/checkpoint +runs\/demo-[\d-]+\/checkpoints\/step-00000\d/);
    expect(end).toMatch(/next +sinkflex train --resume demo-/);
  });

  it("twice: stops at once", async () => {
    const screen = new Screen(folder, train, big, { step_s: 60 });
    await screen.until((text) => text.includes("held out") && text.includes("rollout, step 1"));
    const worker = folder.events().find((event) => event.type === "hello").pid;
    screen.type("\x03");
    await screen.until((text) => text.includes("Finishing the step"));
    await new Promise((resolve) => setTimeout(resolve, 400));
    screen.type("\x03");
    expect((await screen.exited).exitCode).toBe(130);
    expect(exists(worker)).toBe(false);
    expect(await screen.text()).toMatch(/checkpoint +none was written/);
  });

  it("B120 closing the window ends every process, with a checkpoint", async () => {
    const screen = new Screen(folder, train, big, slow);
    await screen.until((text) => text.includes("step 3 of 500"));
    const worker = folder.events().find((event) => event.type === "hello").pid;
    screen.close();
    await eventually(() => !exists(screen.pid) && !exists(worker));
    expect(folder.json("summary.json")).toMatchObject({ status: "stopped", exit_code: 143 });
  });
});
