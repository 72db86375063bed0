import { PassThrough } from "node:stream";
import { describe, expect, it } from "vitest";
import { initialState, reduce } from "../../../src/run/state.js";
import { JsonScreen } from "../../../src/ui/json.js";
import { PlainScreen } from "../../../src/ui/plain.js";
import { type Taste, wantsLive } from "../../../src/ui/screen.js";
import { runPicture } from "../../../src/ui/screens.js";
import { Script, trained } from "../../fixtures/events.js";

const taste: Taste = { json: false, quiet: false, verbose: false, color: false };

function written(script: Script, more: Partial<Taste> = {}): string[] {
  let text = "";
  const screen = new PlainScreen({ write: (part) => (text += part) }, { ...taste, ...more }, runPicture);
  let state = initialState;
  for (const event of script.events) {
    state = reduce(state, event);
    screen.event(state, event);
  }
  screen.close();
  return text.split("\n").slice(0, -1);
}

describe("plain lines", () => {
  it("B119 at most one line a step beside the start and the evaluations, without ESC and carriage return", () => {
    const lines = written(trained(60).add("end", { status: "completed", exit_code: 0 }));
    expect(lines.filter((line) => line.startsWith("step "))).toHaveLength(60);
    expect(lines.length).toBeLessThanOrEqual(60 + 8 + 7 + 4); // steps, warm start, evaluations, the start
    expect(lines.join("\n")).not.toMatch(/\p{Cc}(?<!\n)/u);
  });

  it("of a long run every N-th step, the first and the last", () => {
    const script = new Script();
    for (let n = 1; n <= 5003; n++) script.add("step", { stage: "rl", step: n, total: 5003, metrics: { reward: 0.5 } });
    const steps = written(script).map((line) => Number(/^step +(\d+)\/5003/.exec(line)?.[1]));
    expect(steps.length).toBeLessThanOrEqual(202);
    expect(steps[0]).toBe(1);
    expect(steps.slice(1, -1).every((step) => step % 26 === 0)).toBe(true);
    expect(steps.at(-1)).toBe(5003);
  });

  it("say the numbers in words that can be searched for", () => {
    const lines = written(trained(12));
    expect(lines).toContain(
      "step 12/60  reward 0.615  success 0.595  std 0.284  zero-var 0.17  entropy 0.544  gap 1.3e-6  grad 0.64  9.9k tokens/s  2 m 16 s, about 2 m 10 s left",
    );
    expect(lines).toContain("warm start 800/800  loss 0.368  14.2k tokens/s  1 m 39 s");
    expect(lines).toContain(
      "held out at step 0  mini-shop 0.185 [0.14, 0.23]  200 report tasks x 1, exact, doing nothing 0.000",
    );
    expect(lines).toContain("attention  flash: auto: flash is exact on the CPU and its memory is linear in the length");
  });

  it("warn once for each code", () => {
    const script = new Script();
    for (const n of [1, 2, 3]) script.add("warn", { code: "a", what: `first\nline ${n}`, fix: "Do this." });
    expect(written(script)).toEqual(["warning  first line 1. Do this."]);
    expect(written(script, { quiet: true })).toEqual(["warning  first line 1. Do this."]);
  });

  it("are silent with --quiet, and say phases and checkpoints with --verbose", () => {
    expect(written(trained(20), { quiet: true })).toEqual([]);
    const lines = written(trained(20), { verbose: true });
    expect(lines).toContain("checkpoint checkpoints/step-000020 (7.4 MB)");
    expect(lines).toContain("phase rollout, step 20");
  });

  it("break a long silence with what is being waited for, once a minute", () => {
    const script = trained(1);
    for (let n = 1; n <= 30; n++)
      script.add("beat", { phase: "rollout", step: 2, waiting_for: "the policy", rss_bytes: 1 }, 5);
    const waits = written(script).filter((line) => line.startsWith("waiting for the policy (rollout, step 2)"));
    expect(waits).toHaveLength(2);
  });
});

describe("the choice of the screen", () => {
  it.each([
    ["a terminal", true, {}, {}, true],
    ["no terminal", false, {}, {}, false],
    ["CI", true, { CI: "true" }, {}, false],
    ["CI=false", true, { CI: "false" }, {}, true],
    ["a dumb terminal", true, { TERM: "dumb" }, {}, false],
    ["NO_COLOR", true, { NO_COLOR: "1" }, {}, true],
    ["--json", true, {}, { json: true }, false],
    ["--quiet", true, {}, { quiet: true }, false],
  ])("B119 %s", (_, isTTY, env, more, live) => {
    expect(wantsLive({ write: () => {}, isTTY }, { ...taste, ...more }, env)).toBe(live);
  });
});

describe("--json", () => {
  it("passes the lines on as they are, and waits while the reader is slow", async () => {
    const out = new PassThrough({ highWaterMark: 10 });
    let people = "";
    const screen = new JsonScreen(out, { write: (text) => (people += text) });
    const line = '{"v":1,"seq":0,"t":0,"type":"later","x":"☕"}\n';
    let done = false;
    const waiting = Promise.resolve(screen.lines(Buffer.from(line))).then(() => {
      done = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(done).toBe(false);
    expect(String(out.read())).toBe(line);
    await waiting;
    screen.notice("stopping");
    expect(people).toBe("stopping\n");
  });

  it("does not wait for a reader that is gone", async () => {
    const out = new PassThrough({ highWaterMark: 10 });
    out.on("error", () => {});
    const screen = new JsonScreen(out, { write: () => {} });
    const waiting = screen.lines(Buffer.from("a long line that fills the pipe\n"));
    out.destroy();
    await waiting;
    await screen.lines(Buffer.from("another\n"));
  });
});
