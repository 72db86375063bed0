import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { clip } from "../../src/ui/format.js";
import { Folder } from "../fixtures/sinkflex.js";
import { Screen, type Size, STYLE } from "../fixtures/terminal.js";

/** Evaluations on a terminal, with the real worker. */

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
});
afterEach(() => folder.clear());

const normal = { columns: 80, rows: 40 };

function evaluate(args: string, size: Size = normal): Screen {
  const python = process.env.SINKFLEX_PYTHON;
  if (!python) throw new Error("SINKFLEX_PYTHON is not set: run the tests by `npm test`, which sets it");
  return new Screen(folder, ["eval", ...args.split(" ")], size, {}, { SINKFLEX_PYTHON: python });
}

/** Waits until the prompt stands empty below the text, then types a line. */
async function answer(screen: Screen, below: string | RegExp, line: string, enter = "\r"): Promise<string> {
  const text = await screen.until((now) => {
    const rows = now.split("\n");
    const before = rows.slice(0, -1).join("\n").split("\nyou> ").at(-1) as string;
    const found = typeof below === "string" ? before.includes(below) : below.test(before);
    return rows.at(-1) === "you> " && found;
  });
  screen.type(`${line}${enter}`);
  return text;
}

const trials = () => {
  const [results] = readdirSync(folder.runs);
  const lines = readFileSync(join(folder.runs, results as string, "trials.jsonl"), "utf8").split("\n");
  return lines.filter(Boolean).map((line) => JSON.parse(line));
};

describe("a person plays", () => {
  it("the customer of telecom, with the phone in their hand", async () => {
    const task = "[mobile_data_issue]data_saver_mode_on|user_abroad_roaming_enabled_off[PERSONA:Easy]";
    const screen = evaluate(`tau2-telecom --agent expert --user human --task ${task}`);
    const brief = await answer(screen, "Hi! How can I help you today?", "/run toggle_roaming");
    expect(brief).toContain("\nuser      human: scores are not those of a simulated user\n");
    expect(brief).toMatch(/^you are the customer; this is what you know and want$/m);
    expect(brief).toContain("      You are John Smith with phone number 555-123-2002.");
    await answer(screen, "The conversation has not begun", "/help");
    await answer(screen, "its result is shown to you only", "My data is slow");
    await answer(screen, /^agent\n {2}Could you give me your name and phone number/m, "/run check_st", "");
    await screen.until((now) => now.endsWith("you> /run check_st"));
    screen.type("\t");
    await screen.until((now) => now.endsWith("you> /run check_status_bar"));
    screen.type("\r");
    await answer(screen, /^your check_status_bar\n.*Data Saver/m, "/run toggle_data_saver_mode");
    await answer(screen, /^your toggle_data_saver_mode$/m, "/run toggle_roaming");
    await answer(screen, /^your toggle_roaming$/m, "/done");
    expect((await screen.exited).exitCode).toBe(0);
    const text = await screen.text();
    expect(text.replaceAll("\n", "")).toContain(`trial 1/1  task ${task} #1  reward 1.00  1 turn  user stop`);
    expect(text).toMatch(/^user +human; not comparable with scores of simulated users$/m);
    expect(text).not.toMatch(/waits for|━/); // no live window
    for (const row of text.split("\n")) expect(clip(row, 80)).toBe(row);
    expect(screen.raw.replaceAll(STYLE, "")).not.toContain("\x1b[?25l");
    expect(trials()).toMatchObject([{ reward: 1, reason: "user_stop", turns: 1, parse_failures: 0 }]);
  });

  it("the agent of mini-shop; what was typed too early stands at the next prompt", async () => {
    const screen = evaluate("mini-shop --agent human --tasks 2 --split tune");
    const brief = await answer(screen, /^customer\n {2}\S/m, "/call find_user name=ann");
    expect(brief).toMatch(/^you are the agent; this is your policy$/m);
    expect(brief).toMatch(/ {2}find_user, get_order, get_product,/);
    await answer(screen, "find_user needs the argument 'zip'", "/call find_user name=ann zip=00000");
    await answer(screen, /^result of find_user\n {2}error unknown user$/m, "useless\rtoo early\rand");
    await screen.until((now) => now.endsWith("\nyou> too early and"));
    screen.type("\x15useless\r");
    await answer(screen, /^customer$/m, "useless");
    const text = await screen.until((now) => /conversation 2 of 2/.test(now) && now.endsWith("\nyou> "));
    expect(text).toMatch(
      /^customer\n {2}bye\n\ntrial 1\/2 {2}task \S+ #1 {2}reward 0\.00 {2}4 turns {2}user gave up$/m,
    );
    expect(text.match(/this is your policy/g)).toHaveLength(1);
    screen.type("\x04");
    expect((await screen.exited).exitCode).toBe(130);
    const end = await screen.text();
    expect(end).toContain("Stopping: this trial is dropped, finished ones are kept;");
    expect(end).toMatch(/pass\^1 0\.000 \[.*\] {2}incomplete$/m);
    expect(trials()).toHaveLength(1);
    const [first] = trials();
    expect(first.transcript.filter(({ role }: { role: string }) => role === "assistant").length).toBe(4);
  });

  it("and stops by Ctrl-C at the prompt; nothing is asked afterwards", async () => {
    const screen = evaluate("mini-shop --agent human --tasks 1");
    await screen.until((now) => now.endsWith("\nyou> "));
    screen.type("half a li\x03");
    expect((await screen.exited).exitCode).toBe(130);
    const end = await screen.text();
    expect(end.match(/^you>/gm)).toHaveLength(1);
    expect(end).toMatch(/`sinkflex eval --resume runs\/eval-mini-shop-human-\S+` goes on\.$/m);
  });
});

describe("the live window of an evaluation", () => {
  it("shows a table and a bar, and gives place to the report", async () => {
    const screen = evaluate("mini-shop --agent expert --trials 8 --split tune", { columns: 80, rows: 24 });
    const text = await screen.until((now) => /^[1-9]\d* of 4000 trials/m.test(now));
    const rows = text.split("\n");
    const window = rows.slice(rows.findLastIndex((row) => /^eval mini-shop +playing$/.test(row)));
    expect(window[0]).toHaveLength(80);
    expect(window[1]).toMatch(/^\d+ of 4000 trials {2}reward \d\.\d{3} {2}━*─+ {2}\d+ s$/);
    expect(window.slice(2, 4)).toEqual(["", expect.stringMatching(/^task +trial {2}turns {2}reward {2}state$/)]);
    expect(window[4]).toMatch(/^tune-L\d-\d{5} +\d +\d+ +1\.00 {2}user stop$/);
    expect(window.at(-1)).toBe("Ctrl-C: stop after this turn; finished trials are kept");
    for (const row of window) expect(clip(row, 80)).toBe(row);
    screen.type("\x03");
    expect((await screen.exited).exitCode).toBe(130);
    const end = await screen.text();
    expect(end).not.toMatch(/playing$|of 4000 trials {2}reward|Ctrl-C:/m); // no ghost of the window
    expect(end.match(/^eval {6}mini-shop, split tune: 500 tasks, 8 trials each$/gm)).toHaveLength(1);
    expect(end).toMatch(/^mini-shop tune, expert: pass\^1 1\.000 .*incomplete$/m);
    expect(screen.raw).toContain("\x1b[?25h"); // the cursor is back
  });
});
