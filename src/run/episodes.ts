/** Finished episodes, as the worker wrote them: episodes/step-NNNNNN[-split].jsonl, one record a line. */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { distance } from "fastest-levenshtein";
import { z } from "zod";
import { UserError } from "../errors.js";
import { FILES } from "./dir.js";
import { linesOf } from "./lines.js";

const segment = z.object({
  kind: z.enum(["system", "user", "tool", "env", "header", "think", "text", "tool_name", "tool_args", "control"]),
  turn: z.int(),
  text: z.string(),
  /** True where the tokens were sampled, so that the loss is taken over them. */
  trained: z.boolean(),
  tokens: z.int(),
  logprob_mean: z.number().nullish(),
});

const record = z.object({
  id: z.string(),
  step: z.int(),
  split: z.string(),
  task_id: z.string(),
  level: z.union([z.string(), z.number()]).nullish(),
  task_index: z.int().nullish(),
  sample: z.int().nullish(),
  reward: z.number().nullable(),
  graded: z.number().nullish(),
  reward_parts: z.record(z.string(), z.number().nullable()).default({}),
  outcome: z.string(),
  owner: z.string().nullish(),
  reason: z.string().nullish(),
  error: z.string().nullish(),
  terminated: z.boolean(),
  truncated: z.boolean(),
  turns: z.int(),
  calls: z
    .array(
      z.object({
        turn: z.int(),
        name: z.string(),
        arguments: z.unknown(),
        valid: z.boolean(),
        error: z.string().nullish(),
      }),
    )
    .default([]),
  segments: z.array(segment),
});

export type Episode = z.infer<typeof record>;
export type Segment = z.infer<typeof segment>;

/** The episodes of a run in the order of their files; `step` narrows to one. Lines that are no record are passed over. */
export function* episodesOf(dir: string, step?: number, holding?: string): Generator<Episode, void, void> {
  const parent = join(dir, FILES.episodes);
  if (!existsSync(parent)) return;
  const files = readdirSync(parent)
    .map((name) => ({ name, of: Number(/^step-(\d+)(?:-.+)?\.jsonl$/.exec(name)?.[1] ?? Number.NaN) }))
    .filter(({ of }) => !Number.isNaN(of) && (step === undefined || of === step))
    .sort((a, b) => a.of - b.of || (a.name < b.name ? -1 : 1));
  for (const { name } of files) {
    for (const line of linesOf(join(parent, name))) {
      if (holding !== undefined && !line.includes(holding)) continue;
      const parsed = record.safeParse(json(line));
      if (parsed.success) yield parsed.data;
    }
  }
}

const NEAREST = 5;

/** One episode by its id. An evaluation may play a task again under the same id in another step: the newest is taken. */
export function findEpisode(dir: string, run: string, id: string, step?: number): Episode {
  let found: Episode | undefined;
  for (const episode of episodesOf(dir, step, JSON.stringify(id).slice(1, -1))) if (episode.id === id) found = episode;
  if (found !== undefined) return found;
  const ids = new Set<string>();
  for (const episode of episodesOf(dir, step)) ids.add(episode.id);
  const where = step === undefined ? run : `step ${step} of ${run}`;
  const near = [...ids]
    .map((other) => ({ other, gap: distance(other, id) }))
    .sort((a, b) => a.gap - b.gap || (a.other < b.other ? -1 : 1))
    .slice(0, NEAREST)
    .map(({ other }) => `\`${other}\``);
  throw new UserError({
    code: "SF-RUN-EPISODE-NOT-FOUND",
    what: `There is no episode \`${id}\` in ${where}.`,
    why: ids.size === 0 ? `${where} has no finished episodes on disk.` : undefined,
    fix:
      ids.size === 0
        ? `\`sinkflex runs show ${run}\` says how far it is.`
        : `The nearest are ${near.join(", ")}. \`sinkflex runs show ${run} --step N\` lists the episodes of a step.`,
  });
}

function json(line: Buffer): unknown {
  try {
    return JSON.parse(line.toString("utf8"));
  } catch {
    return null;
  }
}
