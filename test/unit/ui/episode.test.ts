import { stripVTControlCharacters } from "node:util";
import { describe, expect, it } from "vitest";
import type { Episode, Segment } from "../../../src/run/episodes.js";
import { episodeRows, episodeTable } from "../../../src/ui/episode.js";

function part(kind: Segment["kind"], turn: number, text: string, tokens: number, trained = false): Segment {
  return { kind, turn, text, trained, tokens, logprob_mean: trained ? -0.5 : null };
}

const chat: Episode = {
  id: "rl-1",
  step: 3,
  split: "train",
  task_id: "t1",
  level: "2",
  task_index: 0,
  sample: 1,
  reward: 1,
  graded: 0.75,
  reward_parts: { state: 1, identified: 0.5 },
  outcome: "scored",
  owner: null,
  reason: "resolved",
  error: null,
  terminated: true,
  truncated: false,
  turns: 2,
  calls: [
    { turn: 0, name: "find_user", arguments: { email: "a@b.c" }, valid: true, error: null },
    { turn: 0, name: "get_order", arguments: "o17", valid: false, error: "arguments must be an object" },
  ],
  segments: [
    part("system", -1, "You help.", 3),
    part("user", -1, "hello ☕", 2),
    part("header", 0, "<im_start>assistant\n", 2),
    part("tool_name", 0, "find_user", 1, true),
    part("control", 0, "<im_end>", 1, true),
    part("control", 0, "\n", 1),
    part("tool", 0, '{"user": "u7"}', 4),
    part("tool", 0, "error: arguments must be an object", 6),
    part("header", 1, "<im_start>assistant\n", 2),
    part("text", 1, "Done.", 2, true),
  ],
};

const rows = (episode: Episode, width = 100, color = false) => episodeRows(episode, { width, color });

describe("an episode as a conversation", () => {
  it("B43 prints for every segment how many tokens it has and whether the loss is taken over them", () => {
    const text = rows(chat);
    const at = (start: string) =>
      text.filter((row) => row.startsWith(`  ${start} `)).map((row) => row.slice(0, 31).trim().split(/\s+/));
    expect(at("header")).toEqual([
      ["header", "2", "-"],
      ["header", "2", "-"],
    ]); // the prefix of the template
    expect(at("tool name")).toEqual([["tool", "name", "1", "yes", "p=0.61"]]); // sampled
    expect(at("control")).toEqual([
      ["control", "1", "yes", "p=0.61"],
      ["control", "1", "-"],
    ]); // sampled end, the template's newline
    expect(at("system")).toEqual([["system", "3", "-"]]);
    expect(at("user")).toEqual([["user", "2", "-"]]);
    expect(at("tool  ")).toEqual([
      ["tool", "4", "-"],
      ["tool", "6", "-"],
    ]);
    expect(text.at(-1)).toBe("length   2 turns, 24 tokens, 4 of them sampled (the loss mask)");
  });

  it("marks trained text in brackets without colour, in bold and underlined with it", () => {
    expect(rows(chat).join("\n")).toContain("[[find_user]]");
    expect(rows(chat).join("\n")).not.toContain("[[You help.]]");
    const coloured = rows(chat, 100, true).join("\n");
    expect(coloured).toContain("\x1b[1m\x1b[4mfind_user\x1b[24m\x1b[22m");
    expect(stripVTControlCharacters(coloured)).not.toContain("[[");
  });

  it("names the speakers in their order, and a call with what became of it", () => {
    const text = rows(chat);
    expect(text.filter((row) => /^[a-z]/.test(row)).slice(0, 9)).toEqual(
      [
        "rl-1",
        "step 3, train split, task t1, level 2, sample 1",
        "system",
        "user",
        "agent, turn 0",
        "tool result",
        "agent, turn 1",
        "reward   1.000, graded 0.750",
        "parts    state 1.00, identified 0.50",
      ].slice(0, 9),
    );
    expect(text.find((row) => row.startsWith("  valid call"))).toMatch(/ find_user\({"email":"a@b.c"}\)$/);
    expect(text.find((row) => row.startsWith("  invalid call"))).toMatch(
      / get_order\(o17\): arguments must be an object$/,
    );
    expect(text).toContain("outcome  scored; ended by the task: resolved");
  });

  it("says whose fault it was when there is no reward", () => {
    const failed: Episode = {
      ...chat,
      reward: null,
      graded: null,
      reward_parts: {},
      outcome: "infra_error",
      owner: "env",
      reason: null,
      error: "KeyError",
      terminated: false,
      truncated: true,
    };
    const text = rows(failed);
    expect(text).toContain("reward   none: only scored episodes have one");
    expect(text).toContain("outcome  infra_error (fault of: env); cut by a limit");
    expect(text).toContain("error    KeyError");
  });

  it("loses no text at any width", () => {
    const long = {
      ...chat,
      segments: [part("text", 0, `${"客户 wörter and-a-very-long-word ".repeat(30)}end`, 90, true)],
      calls: [],
    };
    for (const width of [20, 40, 60, 120]) {
      const body = rows(long, width)
        .slice(5, -5)
        .map((row) => row.slice(31))
        .join("");
      expect(body.replaceAll(/\s/g, "")).toContain("wordend]]");
      expect(body.replaceAll(/[^客]/gu, "")).toHaveLength(30);
    }
  });

  it("does not obey what a policy wrote", () => {
    expect(rows({ ...chat, segments: [part("text", 0, "\x1b[2J", 1, true)] }).join("")).not.toContain("\x1b");
  });

  it("lists the episodes of a step", () => {
    expect(
      episodeTable([chat, { ...chat, id: "rl-2", reward: null, outcome: "infra_error", reason: null }], {
        width: 80,
        color: false,
      }),
    ).toEqual([
      "episode  split    task  reward  turns  outcome",
      "rl-1     train    t1     1.000      2  scored: resolved",
      "rl-2     train    t1         -      2  infra_error",
    ]);
  });
});
