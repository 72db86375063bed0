/** The table of runs. Pure. */
import type { RunEntry } from "../run/list.js";
import { ABSENT, age, columns, fixed, painter } from "./format.js";

const STYLE = {
  running: "cyan",
  completed: "green",
  stopped: "yellow",
  interrupted: "yellow",
  failed: "red",
} as const;

export function runTable(runs: readonly RunEntry[], look: { width: number; color: boolean }): string[] {
  const paint = painter(look.color);
  const head = ["run", "suite", "status", "steps", "reward", "age"].map((name) => paint("dim", name));
  const rows = runs.map((one) => [
    one.run,
    one.suite ?? ABSENT,
    paint(STYLE[one.status], one.status),
    one.steps_planned === null ? ABSENT : `${one.steps}/${one.steps_planned}`,
    one.reward_first === null ? ABSENT : `${fixed(one.reward_first, 3)} to ${fixed(one.reward_last, 3)}`,
    age(one.age_s),
  ]);
  const widest = (at: (one: RunEntry) => string, least: number) =>
    Math.max(least, ...runs.map((one) => at(one).length));
  const spec = [
    { width: widest((one) => one.run, 3) },
    { width: widest((one) => one.suite ?? "", 5) },
    { width: 11 },
    { width: 9, align: "right" as const },
    { width: 14, align: "right" as const },
    { width: 4, align: "right" as const },
  ];
  // What does not fit is left out from the middle: name, status and age stay.
  const order = [1, 3, 4];
  const total = (shown: readonly number[]) => shown.reduce((sum, index) => sum + (spec[index]?.width ?? 0) + 2, -2);
  let shown = [0, 1, 2, 3, 4, 5];
  for (const index of order) if (total(shown) > look.width) shown = shown.filter((other) => other !== index);
  const pick = <T>(list: readonly T[]) => shown.map((index) => list[index] as T);
  return columns([head, ...rows].map(pick), pick(spec));
}
