/**
 * An episode as a conversation. Pure. One block a speaker; in it one row a segment: what it is, how many tokens, whether
 * the loss is taken over them, and the text. Trained text is bold and underlined, or in [[double brackets]] without
 * colour, so that the loss mask can be read off the page.
 */
import type { Episode, Segment } from "../run/episodes.js";
import { columns, fixed, type Paint, painter, plural, printable, wrapText } from "./format.js";

export interface EpisodeLook {
  width: number;
  color: boolean;
}

const NAMES: Partial<Record<Segment["kind"], string>> = {
  tool_name: "tool name",
  tool_args: "arguments",
  env: "error",
};
const SPEAKERS: Partial<Record<Segment["kind"], string>> = {
  system: "system",
  user: "user",
  tool: "tool result",
  env: "environment",
};
const MARGIN = 31;

export function episodeRows(episode: Episode, look: EpisodeLook): string[] {
  const paint = painter(look.color);
  const rows = [...heading(episode, look, paint), ""];
  rows.push(paint("dim", marginText("", "tokens", "sampled", "text")));
  let speaker = "";
  for (const segment of episode.segments) {
    const next = SPEAKERS[segment.kind] ?? `agent, turn ${segment.turn}`;
    if (next !== speaker) {
      if (speaker.startsWith("agent")) rows.push(...calls(episode, speaker, look, paint));
      if (speaker !== "") rows.push("");
      rows.push(paint("bold", next));
    }
    speaker = next;
    rows.push(...segmentRows(segment, look, paint));
  }
  if (speaker.startsWith("agent")) rows.push(...calls(episode, speaker, look, paint));
  return [...rows, "", ...closing(episode, look, paint)];
}

function heading(episode: Episode, look: EpisodeLook, paint: Paint): string[] {
  const group = [
    `task ${episode.task_id}`,
    ...(episode.level === null || episode.level === undefined ? [] : [`level ${episode.level}`]),
    ...(episode.sample === null || episode.sample === undefined ? [] : [`sample ${episode.sample}`]),
  ];
  const text = `step ${episode.step}, ${episode.split} split, ${group.join(", ")}`;
  return [paint("bold", printable(episode.id)), ...wrapText(printable(text), look.width)];
}

function segmentRows(segment: Segment, look: EpisodeLook, paint: Paint): string[] {
  const name = NAMES[segment.kind] ?? segment.kind;
  const trained = segment.trained ? confidence(segment.logprob_mean) : "-";
  const lines = wrapText(
    marked(printable(segment.text), segment.trained, look.color),
    Math.max(20, look.width - MARGIN),
  );
  return lines.map((line, index) => {
    const margin = index === 0 ? marginText(name, String(segment.tokens), trained, "") : " ".repeat(MARGIN);
    const text = segment.trained ? paint(["bold", "underline"], line) : line;
    return `${paint("dim", margin)}${text}`.trimEnd();
  });
}

function marked(text: string, trained: boolean, color: boolean): string {
  return trained && !color ? `[[${text}]]` : text;
}

/** How likely the tokens were when they were sampled (geometric mean); "yes" where that was not recorded. */
function confidence(logprob: number | null | undefined): string {
  return logprob === null || logprob === undefined ? "yes" : `yes p=${fixed(Math.exp(logprob), 2)}`;
}

function marginText(kind: string, tokens: string, trained: string, text: string): string {
  return `  ${kind.padEnd(9)} ${tokens.padStart(6)}  ${trained.padEnd(11)}${text}`;
}

/** What became of the calls of an agent turn. */
function calls(episode: Episode, speaker: string, look: EpisodeLook, paint: Paint): string[] {
  const turn = Number(speaker.split(" ").at(-1));
  return episode.calls
    .filter((call) => call.turn === turn)
    .flatMap((call) => {
      const verdict = call.valid ? paint("green", "valid call") : paint("red", "invalid call");
      const problem = call.error ? `: ${call.error}` : "";
      const text = printable(`${call.name}(${compactJson(call.arguments)})${problem}`);
      const label = call.valid ? "valid call" : "invalid call";
      return wrapText(text, look.width - MARGIN).map((row, index) =>
        index === 0 ? `  ${verdict}${" ".repeat(MARGIN - 2 - label.length)}${row}` : `${" ".repeat(MARGIN)}${row}`,
      );
    });
}

function compactJson(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

function closing(episode: Episode, look: EpisodeLook, paint: Paint): string[] {
  const tokens = (trained: boolean) =>
    episode.segments.filter((one) => !trained || one.trained).reduce((sum, one) => sum + one.tokens, 0);
  const how = episode.terminated ? "ended by the task" : episode.truncated ? "cut by a limit" : "not ended";
  const owner = episode.owner ? ` (fault of: ${episode.owner})` : "";
  const parts = Object.entries(episode.reward_parts).map(([name, value]) => `${name} ${fixed(value, 2)}`);
  const graded = episode.graded === null || episode.graded === undefined ? "" : `, graded ${fixed(episode.graded, 3)}`;
  const reward =
    episode.reward === null ? "none: only scored episodes have one" : `${fixed(episode.reward, 3)}${graded}`;
  const rows: [string, string][] = [
    ["reward", reward],
    ...(parts.length > 0 ? [["parts", parts.join(", ")] as [string, string]] : []),
    ["outcome", `${episode.outcome}${owner}; ${how}${episode.reason ? `: ${episode.reason}` : ""}`],
    ...(episode.error ? [["error", episode.error] as [string, string]] : []),
    [
      "length",
      `${plural(episode.turns, "turn")}, ${plural(tokens(false), "token")}, ${tokens(true)} of them sampled (the loss mask)`,
    ],
  ];
  return rows.flatMap(([label, text]) =>
    wrapText(printable(text), look.width - 9).map(
      (row, index) =>
        `${paint("dim", index === 0 ? label.padEnd(9) : " ".repeat(9))}${label === "reward" ? paint("bold", row) : row}`,
    ),
  );
}

/** The episodes of a step, one row each. */
export function episodeTable(episodes: readonly Episode[], look: EpisodeLook): string[] {
  const paint = painter(look.color);
  const longest = (pick: (one: Episode) => string, least: number, most: number) =>
    Math.min(most, Math.max(least, ...episodes.map((one) => pick(one).length)));
  const id = longest((one) => one.id, 7, 40);
  const task = longest((one) => one.task_id, 4, 24);
  const head = ["episode", "split", "task", "reward", "turns", "outcome"].map((name) => paint("dim", name));
  const rows = episodes.map((one) => [
    printable(one.id),
    printable(one.split),
    printable(one.task_id),
    fixed(one.reward, 3),
    String(one.turns),
    printable(one.reason ? `${one.outcome}: ${one.reason}` : one.outcome),
  ]);
  const used = id + 7 + task + 6 + 5 + 10;
  return columns(
    [head, ...rows],
    [
      { width: id },
      { width: 7 },
      { width: task },
      { width: 6, align: "right" },
      { width: 5, align: "right" },
      { width: Math.max(10, Math.min(40, look.width - used)) },
    ],
  );
}
