/** The finished trials of a results folder, as the worker wrote them: trials.jsonl, one a line; a later line replaces. */
import { existsSync } from "node:fs";
import { isAbsolute, join, resolve } from "node:path";
import { z } from "zod";
import { nearest, UserError } from "../errors.js";
import { linesOf } from "../run/lines.js";

const message = z.object({
  role: z.enum(["system", "user", "assistant", "tool", "env"]),
  content: z.string(),
  name: z.string().nullish(),
  is_error: z.boolean().nullish(),
  tool_calls: z.array(z.object({ name: z.string(), arguments: z.unknown() })).nullish(),
});

const trial = z.object({
  task_id: z.string(),
  trial: z.int(),
  seed: z.number(),
  level: z.string().nullish(),
  reward: z.number().nullable(),
  graded: z.number().nullish(),
  reward_parts: z.record(z.string(), z.number().nullable()).default({}),
  outcome: z.string(),
  owner: z.string().nullish(),
  reason: z.string().nullish(),
  error: z.string().nullish(),
  turns: z.int(),
  attempts: z.int().nullish(),
  transcript: z.array(message).default([]),
});

export type Trial = z.infer<typeof trial>;
export type Message = z.infer<typeof message>;

/** The results folder called `name`: a path, or a folder in the directory of runs. */
export function resultsFolder(root: string, name: string): string {
  const places = isAbsolute(name) ? [name] : [resolve(name), join(root, name)];
  const found = places.find((place) => existsSync(join(place, "eval.json")));
  if (found !== undefined) return found;
  throw new UserError({
    code: "SF-EVAL-NO-RESULTS",
    what: `${name} is no results folder of an evaluation: it has no eval.json.`,
    fix: "Name a folder that `sinkflex eval` reported.",
  });
}

/** One trial of a folder; the first is number 1, as people see it. */
export function findTrial(folder: string, task: string, number: number): Trial {
  let found: Trial | undefined;
  const seen = new Map<string, number>();
  for (const line of linesOf(join(folder, "trials.jsonl"))) {
    const parsed = trial.safeParse(json(line));
    if (!parsed.success) continue;
    const { task_id, trial: index } = parsed.data;
    seen.set(task_id, Math.max(seen.get(task_id) ?? 0, index + 1));
    if (task_id === task && index === number - 1) found = parsed.data;
  }
  if (found !== undefined) return found;
  const trials = seen.get(task);
  const guess = nearest(task, [...seen.keys()]);
  throw new UserError({
    code: "SF-EVAL-NO-TRIAL",
    what:
      trials === undefined
        ? `Task ${task} has no finished trial in ${folder}.`
        : `Task ${task} has no trial ${number}.`,
    fix:
      trials !== undefined
        ? `Its trials go from 1 to ${trials}.`
        : `${guess === undefined ? "" : `Did you mean \`${guess}\`? `}${seen.size} tasks have finished trials.`,
  });
}

function json(line: Buffer): unknown {
  try {
    return JSON.parse(line.toString("utf8"));
  } catch {
    return null;
  }
}
