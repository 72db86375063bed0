import { describe, expect, it } from "vitest";
import type { RunEntry } from "../../../src/run/list.js";
import { runTable } from "../../../src/ui/runs.js";
import { summaryRows } from "../../../src/ui/summary.js";
import { hello, Script, trained } from "../../fixtures/events.js";

const place = { run: "demo-1", dir: "runs/demo-1", options: "" };
const look = { width: 100, color: false };

describe("the exit summary", () => {
  it("says how it ended, what was learned, against what, where it is and what to type", () => {
    const script = trained(60).add("end", { status: "completed", exit_code: 0 });
    expect(summaryRows(script.state, place, look)).toEqual([
      "ended       completed, 60 of 60 steps, 4 m 26 s",
      "reward      0.331 to 0.892 in training (means of the first and last 5 steps)",
      "held out    0.185 [0.14, 0.23] at step 0 to 0.917 [0.87, 0.97] at step 60 (mini-shop, 200 report",
      "            tasks x 1, exact)",
      "controls    doing nothing 0.000",
      "checkpoint  runs/demo-1/checkpoints/step-000060 (step 60, 7.4 MB)",
      "run         runs/demo-1",
      "",
      "next        sinkflex runs show demo-1 --episode rl-000060-t00-s0",
    ]);
  });

  it("offers to go on after a stop, and finds a run that is kept elsewhere", () => {
    const script = trained(25).add("end", { status: "stopped", exit_code: 130 });
    const rows = summaryRows(script.state, { ...place, options: " --runs /data" }, look);
    expect(rows[0]).toBe("ended       stopped, 25 of 60 steps, 2 m 51 s");
    expect(rows.slice(-2)).toEqual([
      "next        sinkflex train --resume demo-1 --runs /data",
      "            sinkflex runs show demo-1 --episode rl-000025-t00-s0 --runs /data",
    ]);
    expect(rows.join(" ").replaceAll(/ +/g, " ")).toContain(
      "0.731 [0.68, 0.78] at step 20 (mini-shop, 60 tune tasks x 1, exact, step 0 on 200 report tasks)",
    );
  });

  it("offers no resume when there is no checkpoint", () => {
    const rows = summaryRows(
      new Script().add("hello", hello).add("end", { status: "failed", exit_code: 1 }).state,
      place,
      look,
    );
    expect(rows).toEqual([
      "ended       failed, before the first step, 0 s",
      "checkpoint  none was written",
      "run         runs/demo-1",
      "",
      "next        sinkflex runs show demo-1",
    ]);
  });
});

describe("the table of runs", () => {
  const entry: RunEntry = {
    run: "demo-20261130-172205",
    dir: "/x",
    suite: "mini-shop",
    status: "completed",
    steps: 60,
    steps_planned: 60,
    reward_first: 0.185,
    reward_last: 0.86,
    age_s: 4000,
  };
  const runs: RunEntry[] = [
    entry,
    {
      ...entry,
      run: "b-20261130-172205",
      status: "interrupted",
      steps: 3,
      steps_planned: null,
      reward_first: null,
      reward_last: null,
      suite: null,
    },
  ];

  it("has a row for each", () => {
    expect(runTable(runs, { width: 100, color: false })).toEqual([
      "run                   suite      status           steps          reward   age",
      "demo-20261130-172205  mini-shop  completed        60/60  0.185 to 0.860   1 h",
      "b-20261130-172205     -          interrupted          -               -   1 h",
    ]);
  });

  it("keeps name, status and age in a narrow window", () => {
    expect(runTable(runs, { width: 45, color: false })[1]).toBe("demo-20261130-172205  completed     1 h");
  });

  it("colours words only when asked", () => {
    expect(runTable(runs, { width: 100, color: true }).join("")).toContain("\x1b[32mcompleted");
  });
});
