/**
 * What the worker tells the command line: one JSON object a line, the envelope `{v, seq, t, type}` and a body.
 *
 * Conventions. `t` is seconds since the worker started. Numbers that were not finite travel as null and their names
 * are listed in `nonfinite`. Additive changes (a new field, a new type) keep `v`: unknown fields are dropped here and
 * unknown types are reported as such, while events.jsonl keeps the line as it came. `seq` -1 marks the few events that
 * the command line writes itself (an `attempt` marker, a `warn`, the `end` of a worker that died without one), so that
 * a replay of the file shows what the live view showed.
 */
import { z } from "zod";
import { benchKinds } from "./bench.js";
import { comparisonSchema, evalPlanShape, humanShape, reportSchema, trialShape } from "./eval.js";

/** The major version of the protocol that this command line speaks. */
export const PROTOCOL_VERSION = 1;

/** `seq` of an event written by the command line. */
export const SEQ_CLI = -1;

const envelope = { v: z.literal(PROTOCOL_VERSION), seq: z.int(), t: z.number() };
const maybe = z.number().nullable();
const optional = z.number().nullish();

function event<const T extends string, S extends z.ZodRawShape>(type: T, shape: S) {
  return z.object({ ...envelope, type: z.literal(type), ...shape });
}

function bench<const K extends string, S extends z.ZodRawShape>(kind: K, shape: S) {
  return event("bench", { kind: z.literal(kind), ...shape });
}

const benchEvent = z.discriminatedUnion("kind", [
  bench("plan", benchKinds.plan),
  bench("cell_started", benchKinds.cell_started),
  bench("progress", benchKinds.progress),
  bench("cell", benchKinds.cell),
  bench("result", benchKinds.result),
]);

const failure = z.object({
  owner: z.string().nullish(),
  code: z.string(),
  what: z.string(),
  where: z.string().nullish(),
  why: z.string().nullish(),
  fix: z.string().nullish(),
});

/** Seconds of a training step, of all evaluations, of the warm start, and of the run. */
const foreseen = z.object({ step_s: z.number(), eval_s: z.number(), warm_start_s: z.number(), total_s: z.number() });

export const eventSchema = z.discriminatedUnion("type", [
  event("attempt", { attempt: z.int(), step: z.int(), checkpoint: z.string() }),
  event("hello", {
    pid: z.int(),
    python: z.string(),
    platform: z.string(),
    verb: z.string(),
    attempt: z.int().nullable(),
    run: z.string().nullable(),
    seed: z.number().nullable(),
  }),
  event("phase", { phase: z.string(), step: z.number(), total: maybe, detail: z.string().nullish() }),
  event("plan", {
    steps: z.int(),
    sft_steps: z.int(),
    device: z.string(),
    device_name: z.string().nullish(),
    threads: maybe,
    threads_measured: z
      .array(z.object({ threads: z.int(), decode_per_second: z.number(), update_per_second: z.number() }))
      .nullish(),
    dtype: z.string(),
    attention_impl: z.string(),
    attention_reason: z.string(),
    model: z.object({ name: z.string(), parameters: z.number(), trainable: optional, vocabulary: optional }),
    suite: z.string(),
    domain_version: z.union([z.string(), z.number()]).nullish(),
    data_sha256: z.string().nullish(),
    user: z.string().nullish(),
    splits: z.record(z.string(), z.number()).nullish(),
    group_size: z.int(),
    tasks_per_step: z.int(),
    system_prompt: z.string().nullish(),
    examples: z.int().nullish(),
    noop_mean: optional,
    evaluation: z.object({ every: z.int(), episodes: z.int(), report_episodes: z.int() }).nullish(),
    forecast: z.object({ expected: foreseen.nullable(), most: foreseen }).nullish(),
    notes: z.array(z.string()).default([]),
    versions: z.record(z.string(), z.string().nullable()).nullish(),
  }),
  event("step", {
    stage: z.enum(["sft", "rl"]),
    step: z.int(),
    total: z.int(),
    metrics: z.record(z.string(), z.union([z.number(), z.string(), z.boolean(), z.null()])),
  }),
  event("episode", {
    id: z.string(),
    step: z.int(),
    split: z.string(),
    task_id: z.string(),
    reward: maybe,
    outcome: z.string(),
    owner: z.string().nullish(),
    reason: z.string().nullish(),
    truncated: z.boolean().nullish(),
  }),
  event("eval", {
    suite: z.string(),
    split: z.string(),
    step: z.int(),
    agent: z.string(),
    tasks: z.int(),
    trials: z.int(),
    mean: maybe,
    ci_low: maybe,
    ci_high: maybe,
    score_mode: z.string(),
    greedy: z.boolean().nullish(),
    graded_mean: optional,
    infra_errors: optional,
    coverage: optional,
    noop_mean: optional,
    turns_per_episode: optional,
  }),
  benchEvent,
  event("eval_plan", evalPlanShape),
  event("trial", trialShape),
  event("human", humanShape),
  event("eval_report", { report: reportSchema }),
  event("eval_comparison", { comparison: comparisonSchema }),
  event("model", { folder: z.string(), license: z.string().nullish() }),
  event("checkpoint", { step: z.int(), path: z.string(), bytes: z.number() }),
  event("beat", {
    phase: z.string(),
    step: z.number(),
    waiting_for: z.string().nullish(),
    rss_bytes: optional,
  }),
  event("warn", { code: z.string(), what: z.string(), fix: z.string().nullish() }),
  event("end", {
    status: z.enum(["completed", "stopped", "failed"]),
    exit_code: z.int(),
    step: z.number().nullish(),
    checkpoint: z.string().nullish(),
    error: failure.nullish(),
  }),
]);

export type Event = z.infer<typeof eventSchema>;
export type EventOf<T extends Event["type"]> = Extract<Event, { type: T }>;
export type Failure = z.infer<typeof failure>;

export type BenchEventOf<K extends EventOf<"bench">["kind"]> = Extract<EventOf<"bench">, { kind: K }>;

export const EVENT_TYPES: ReadonlySet<string> = new Set(
  eventSchema.options.flatMap((option) => ("shape" in option ? [option.shape.type.value as string] : ["bench"])),
);

/** What an event `bench` can be about; another kind is an additive change. */
export const BENCH_KINDS: ReadonlySet<string> = new Set(Object.keys(benchKinds));
