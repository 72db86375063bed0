/** What the worker tells of an evaluation: its plan, its trials, its report. Numbers that were not finite are null. */
import { z } from "zod";

const maybe = z.number().nullish();
const text = z.string().nullish();
/** Of the suite's tasks; absent: all of them. */
const levels = z.array(z.int()).nullish();
const counts = z.record(z.string(), z.number()).default({});

export const reportSchema = z.looseObject({
  type: z.literal("eval"),
  suite: z.string(),
  split: z.string(),
  levels,
  agent: z.string(),
  agent_kind: text,
  user: z.string(),
  scripted_user: z.boolean(),
  score_mode: text,
  tasks: z.int(),
  trials: z.int(),
  mean: maybe,
  ci_low: maybe,
  ci_high: maybe,
  pass_hat: z.record(z.string(), z.number().nullable()).default({}),
  pass_hat_ci: z.record(z.string(), z.tuple([z.number().nullable(), z.number().nullable()]).nullable()).default({}),
  tasks_with_too_few_trials: z.array(z.string()).default([]),
  coverage: z.number(),
  complete: z.boolean(),
  infra_errors: counts,
  graded_mean: maybe,
  components: z.record(z.string(), z.number().nullable()).default({}),
  dropped_components: counts,
  truncated: counts,
  turns_mean: maybe,
  tool_calls: maybe,
  tool_errors: maybe,
  parse_failures: maybe,
  user_owned_calls: maybe,
  length_finishes: maybe,
  tokens: counts,
  cost: maybe,
  noop_mean: maybe,
  noop_ids: z.array(z.string()).default([]),
  known_odd: z.record(z.string(), z.string()).default({}),
  package: text,
  version: text,
  data_sha256: text,
  prompt_sha256: text,
  results_path: text,
});

export const evalPlanShape = {
  suite: z.string(),
  split: z.string(),
  levels,
  agent: z.string(),
  agent_kind: z.string(),
  user: z.string(),
  score_mode: text,
  tasks: z.int(),
  trials: z.int(),
  total: z.int(),
  done_before: z.int(),
  concurrency: z.int(),
  noop_mean: maybe,
  dropped_components: counts,
  known_odd: z.record(z.string(), z.string()).default({}),
  version: text,
  data_sha256: text,
  notes: z.array(z.string()).default([]),
};

export const trialShape = {
  kind: z.enum(["started", "waiting", "finished"]),
  task_id: z.string(),
  trial: z.int(),
  turn: z.int(),
  waiting_for: text,
  reward: maybe,
  outcome: text,
  owner: text,
  reason: text,
  error: text,
  wall_s: maybe,
};

/** What a person who takes part is shown, and where one line is expected of them: the answer is `{"type": "say"}`. */
export const humanShape = {
  kind: z.enum(["shown", "ask"]),
  task_id: z.string(),
  trial: z.int(),
  side: z.enum(["user", "agent"]),
  /** Of `shown`: brief, user, assistant, tool, error, problem, note. */
  what: text,
  title: text,
  text,
  /** Of `ask`: lines and beginnings of lines that are understood. */
  words: z.array(z.string()).default([]),
};

export const comparisonSchema = z.looseObject({
  type: z.literal("eval_compare"),
  base: z.string(),
  candidate: z.string(),
  suite: z.string(),
  warnings: z.array(z.string()).default([]),
  tasks: z.int(),
  base_mean: maybe,
  candidate_mean: maybe,
  difference: maybe,
  ci_low: maybe,
  ci_high: maybe,
  gained: z.array(z.string()),
  lost: z.array(z.string()),
  only_base: z.array(z.string()),
  only_candidate: z.array(z.string()),
});

export type Report = z.infer<typeof reportSchema>;
export type Comparison = z.infer<typeof comparisonSchema>;
