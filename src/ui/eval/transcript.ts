/** A trial as a conversation: one block a speaker, calls and results as they were. Pure. */
import type { Message, Trial } from "../../eval/trials.js";
import { fixed, labelRows, type Paint, painter, plural, printable, wrapText } from "../format.js";

interface Look {
  width: number;
  color: boolean;
}

const SPEAKERS: Record<Message["role"], string> = {
  system: "system",
  user: "customer",
  assistant: "agent",
  tool: "tool result",
  env: "environment",
};
const INDENT = "  ";

export function trialRows(trial: Trial, look: Look): string[] {
  const paint = painter(look.color);
  const level = trial.level ? `, ${trial.level}` : "";
  const title = paint("bold", printable(`task ${trial.task_id}, trial ${trial.trial + 1}${level}`));
  const rows = [title];
  let calling = false; // a result follows its call without a heading between
  for (const message of trial.transcript) {
    const result = message.role === "tool";
    if (!result || !calling) rows.push("", paint("bold", speaker(message)));
    calling = result || (message.tool_calls ?? []).length > 0;
    rows.push(...body(message, look, paint));
  }
  return [...rows, "", ...closing(trial, look)];
}

function speaker({ role, tool_calls: calls }: Message): string {
  return role === "user" && (calls ?? []).length > 0 ? "customer, with a tool of their own" : SPEAKERS[role];
}

function body(message: Message, look: Look, paint: Paint): string[] {
  const width = Math.max(20, look.width - INDENT.length);
  const words = message.content === "" ? [] : wrapText(printable(message.content), width);
  const style = message.is_error ? "red" : message.role === "tool" ? "dim" : null;
  const mark = message.is_error ? "error: " : message.role === "tool" ? "-> " : "";
  const shown = words.map((row, index) => {
    const text = index === 0 ? `${mark}${row}` : row;
    return `${INDENT}${style === null ? text : paint(style, text)}`;
  });
  const calls = (message.tool_calls ?? []).flatMap((call) =>
    wrapText(printable(`${call.name}(${argumentsText(call.arguments)})`), width).map(
      (row) => `${INDENT}${paint("cyan", row)}`,
    ),
  );
  return [...shown, ...calls];
}

function argumentsText(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

function closing(trial: Trial, look: Look): string[] {
  const parts = Object.entries(trial.reward_parts).map(([name, value]) => `${name} ${fixed(value, 2)}`);
  const owner = trial.owner ? ` (fault of ${trial.owner})` : "";
  const rows: [string, string][] = [
    ["reward", trial.reward === null ? "none: only scored trials have one" : fixed(trial.reward, 2)],
    ...(parts.length > 0 ? [["parts", parts.join(", ")] as [string, string]] : []),
    ["outcome", `${trial.outcome}${owner}${trial.reason ? `: ${trial.reason}` : ""}, ${plural(trial.turns, "turn")}`],
    ...(trial.error ? [["error", trial.error] as [string, string]] : []),
    ["seed", String(trial.seed)],
  ];
  return labelRows(
    rows.map(([label, text]): [string, string] => [label, printable(text)]),
    look.width,
  );
}
