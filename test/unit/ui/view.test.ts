import { stripVTControlCharacters } from "node:util";
import { describe, expect, it } from "vitest";
import { initialState, reduce, type State } from "../../../src/run/state.js";
import { clip } from "../../../src/ui/format.js";
import { view } from "../../../src/ui/view.js";
import { hello, metrics, plan, Script, trained } from "../../fixtures/events.js";

const plain = (state: State, width: number, height?: number) =>
  view(state, { width, color: false, ...(height === undefined ? {} : { height }) });

function busy(): Script {
  const script = trained(23).add("phase", { phase: "rollout", step: 24, total: 60 });
  for (const n of [22, 23]) {
    script.add("warn", {
      code: "zero_variance",
      what: `31 of 32 groups had no reward variance in step ${n}, so they taught nothing.`,
      fix: "Raise rollout.group_size.",
    });
  }
  const waiting = "the policy: 41 of 256 episodes live";
  return script.add("beat", { phase: "rollout", step: 24, waiting_for: waiting, rss_bytes: 612e6 }, 2);
}

function states(): [string, State][] {
  const warm = trained(0);
  warm.events.length = 8;
  const wide = busy().add("warn", { code: "wide", what: "客户 ".repeat(60), fix: null });
  return [
    ["nothing yet", initialState],
    ["hello", new Script().add("hello", hello).state],
    ["warm start", warm.state],
    ["busy", busy().state],
    ["wide text", wide.state],
    ["done", trained(60).add("end", { status: "completed", exit_code: 0 }).state],
  ];
}

describe("the view", () => {
  it.each(states())("of %s is never wider than the window", (_, state) => {
    const narrow = Array.from({ length: 50 }, (_, n) => n + 10);
    for (const width of [...narrow, 79, 80, 81, 99, 100, 119, 120, 121, 200]) {
      for (const row of view(state, {
        width,
        color: false,
        notice: "Ctrl-C: finish the step, save a checkpoint and stop",
      })) {
        expect(clip(row, width)).toBe(row);
      }
    }
  });

  it.each(states())("of %s fits into a window of 20 rows and up", (_, state) => {
    for (const width of [40, 60, 80, 120]) {
      for (const height of [20, 21, 22, 24, 30, 50]) {
        expect(view(state, { width, height, color: false, notice: "n" }).length).toBeLessThanOrEqual(height);
      }
    }
  });

  it("says the same with and without colour", () => {
    for (const [, state] of states()) {
      const coloured = view(state, { width: 80, color: true });
      expect(coloured.map((row) => stripVTControlCharacters(row).trimEnd())).toEqual(
        plain(state, 80).map((row) => row.trimEnd()),
      );
    }
    expect(plain(busy().state, 80).join("\n")).not.toContain("\x1b");
    expect(view(busy().state, { width: 80, color: true }).join("\n")).toContain("\x1b[");
  });

  it("at 80 columns", () => {
    expect(plain(busy().state, 80, 24).join("\n")).toBe(
      [
        "mini-shop-20261130-172200                                       running: rollout",
        "step 23 of 60  ━━━━━━━━━━━━━─────────────────────  2 m 48 s, about 1 m 40 s left",
        "cpu, 2 threads · attention flash · mini-shop · 32 tasks x 8 · float32",
        "",
        "warning  31 of 32 groups had no reward variance in step 23, so they taught",
        "         nothing. Raise rollout.group_size. (2 times)",
        "",
        " step  reward  success    std  zero-var  entropy  turns  calls     gap  tok/s",
        "   13   0.602    0.582  0.291      0.19    0.520    6.1    2.4  1.3e-6   9.9k",
        "   14   0.596    0.576  0.214      0.20    0.497    6.1    2.4  1.3e-6   9.9k",
        "   15   0.653    0.633  0.124      0.21    0.475    6.1    2.4  1.3e-6   9.9k",
        "   16   0.685    0.665  0.104      0.23    0.454    6.1    2.4  1.3e-6  10.0k",
        "   17   0.657    0.637  0.172      0.24    0.435    6.1    2.4  1.3e-6  10.0k",
        "   18   0.667    0.647  0.266      0.26    0.416    6.1    2.4  1.3e-6  10.0k",
        "   19   0.726    0.706  0.299      0.27    0.398    6.1    2.4  1.3e-6  10.0k",
        "   20   0.731    0.711  0.241      0.29    0.381    6.1    2.4  1.3e-6  10.0k",
        "   21   0.700    0.680  0.145      0.30    0.365    6.1    2.4  1.3e-6  10.0k",
        "   22   0.730    0.710  0.100      0.31    0.350    6.1    2.4  1.3e-6  10.0k",
        "   23   0.778    0.758  0.147      0.33    0.335    6.1    2.4  1.3e-6  10.0k",
        "",
        "reward      ▃▃▃▄▄▄▄▅▅▅▅▅▅▅▆▆▆▆▆▆▆▆▇  0.27 to 0.78",
        "held out    0.731 [0.68, 0.78] · step 20 · before 0.185 · 60 tune tasks x 1",
        "now         rollout, step 24 · waiting for the policy: 41 of 256 episodes live",
      ].join("\n"),
    );
  });

  it.each([
    [60, "step 0 of 60  ────────────────────────  3 s, about 54 m left"],
    [80, "step 0 of 60  ────────────────────────────────────────────  3 s, about 54 m left"],
    [120, "step 0 of 60  ──────────────────────────────────────────────────  3 s, about 54 m left"],
  ])("at %i columns foresees the end before the first step", (width, row) => {
    const most = { step_s: 90, eval_s: 600, warm_start_s: 0, total_s: 6000 };
    const expected = { step_s: 45, eval_s: 540, warm_start_s: 0, total_s: 3240 };
    const script = new Script().add("hello", hello, 0).add("plan", { ...plan, forecast: { expected, most } }, 3);
    expect(plain(script.state, width)[1]).toBe(row);
  });

  it.each([
    [60, ["reward", "success", "std", "zero-var", "entropy", "gap"], ["turns", "tok/s"]],
    [80, ["reward", "success", "std", "zero-var", "entropy", "turns", "calls", "gap", "tok/s"], ["grad"]],
    [120, ["reward std", "zero-var", "tool calls", "logprob gap", "grad norm", "tokens/s"], []],
  ])("at %i columns shows what matters most", (width, there, missing) => {
    const head = plain(busy().state, width).find((row) => row.includes("success")) ?? "";
    for (const name of there) expect(head).toContain(name);
    for (const name of missing) expect(head).not.toContain(name);
  });

  it("lines up the numbers under their names", () => {
    for (const width of [40, 60, 80, 100, 120, 160]) {
      const rows = plain(busy().state, width);
      const at = rows.findIndex((row) => row.includes("success"));
      const ends = (row: string) =>
        [...row.matchAll(/\S+(?: std| gap| norm| calls)?/g)].map((match) => match.index + match[0].length);
      const head = ends(rows[at] ?? "");
      for (const row of rows.slice(at + 1, at + 6)) expect(ends(row)).toEqual(head);
    }
  });

  it("B28 shows the measured share of groups without variance, and the warning with its reason above the table", () => {
    // Reward 1 with probability 0.1819 in 1000 groups of 2: p^2 + (1-p)^2 = 0.7024 of them have no variance.
    const share = 0.1819 ** 2 + (1 - 0.1819) ** 2;
    const script = new Script().add("hello", hello).add("plan", plan);
    script.add("step", { stage: "rl", step: 1, total: 60, metrics: { ...metrics(1), frac_reward_zero_std: share } });
    script.add("warn", {
      code: "zero_variance",
      what: "0.70 of the groups had no variance: rare success in groups of 2.",
      fix: "Raise rollout.group_size.",
    });
    const rows = plain(script.state, 80);
    const head = rows.findIndex((row) => row.includes("zero-var"));
    expect(rows[head + 1]?.slice(0, (rows[head] ?? "").indexOf("zero-var") + 8)).toMatch(/ 0\.70$/);
    const warning = rows.findIndex((row) =>
      row.startsWith("warning  0.70 of the groups had no variance: rare success"),
    );
    expect(warning).toBeGreaterThan(0);
    expect(warning).toBeLessThan(head);
  });

  it("keeps the newest warning in sight when there are many, and the table too", () => {
    const script = busy();
    for (let n = 0; n < 20; n++) script.add("warn", { code: `c${n}`, what: `warning number ${n}`, fix: null });
    const text = plain(script.state, 80, 24).join("\n");
    expect(text).toContain("warning number 19");
    expect(text).not.toContain("warning number 3\n");
    expect(text).toMatch(/\n +23 +0\.778/);
  });

  it("says in words what the status is", () => {
    const ended = (status: "completed" | "stopped" | "failed") => busy().add("end", { status, exit_code: 0 }).state;
    const title = (state: State, more = {}) => view(state, { width: 80, color: false, ...more })[0];
    expect(title(initialState)).toMatch(/starting$/);
    expect(title(busy().state)).toMatch(/running: rollout$/);
    expect(title(busy().state, { stopping: true })).toMatch(/stopping$/);
    expect(title(busy().state, { interrupted: true })).toMatch(/interrupted$/);
    for (const status of ["completed", "stopped", "failed"] as const)
      expect(title(ended(status))).toMatch(new RegExp(`${status}$`));
  });

  it("shows the warm start in a row of its own until the first training step", () => {
    const warm = trained(0);
    warm.events.length = 8;
    const rows = plain(warm.state, 80);
    expect(rows[1]).toMatch(/^warm start 400 of 800 {2}━+─+ {2}51 s, about 50 s left$/);
    expect(rows.find((row) => row.startsWith("warm start  "))).toBe(
      "warm start  loss 1.397  from 3.798  lr 0.004  demonstrations of expert",
    );
    expect(plain(trained(1).state, 80).some((row) => row.includes("demonstrations"))).toBe(false);
  });

  it("shows what is waited for only while it is", () => {
    const text = (state: State) => plain(state, 120).join("\n");
    expect(text(busy().state)).toContain(
      "now         rollout, step 24 · waiting for the policy: 41 of 256 episodes live · memory 612 MB",
    );
    const later = busy().add("phase", { phase: "update", step: 24, total: 60 }).state;
    expect(text(later)).toContain("now         update, step 24 · memory 612 MB");
    expect(text(busy().add("end", { status: "completed", exit_code: 0 }).state)).not.toContain("now  ");
  });

  it("does not obey escape sequences in texts of others", () => {
    const script = busy().add("warn", { code: "evil", what: "\x1b[2Jgone", fix: null });
    expect(plain(script.state, 80).join("\n")).not.toContain("\x1b");
  });

  it("shows numbers that were not finite as absent", () => {
    const event = {
      v: 1,
      seq: 9,
      t: 9,
      type: "step",
      stage: "rl",
      step: 1,
      total: 9,
      metrics: { reward: null, success: null },
    } as const;
    expect(plain(reduce(initialState, event), 60).join("\n")).toMatch(/\n +1 +- +- +- /);
  });
});
