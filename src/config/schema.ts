/**
 * The config, defined once. Types, validation, configs/schema.json, docs/config.md and the checks of Python's dataclasses
 * all derive from this file.
 *
 * Every key has one sentence that says what it does and in which unit. A `why` says why a value outside the limits is
 * refused, where the limit alone does not say it. Rules between keys are in rules.ts.
 */
import { z } from "zod";
import { algorithm } from "./algorithm.js";
import { model } from "./model.js";

/** Task domains that can be trained on. */
const suite = z.enum(["mini-shop", "tool-calls", "tau2-retail", "tau2-airline", "tau2-telecom", "tau2-telecom-solo"]);
const share = z.number().min(0).max(1);
const count = z.int().min(1);
const rate = z.number().positive();

const attention = z.strictObject({
  impl: z.enum(["auto", "eager", "flash", "flex", "triton"]).default("auto").meta({
    description: "How attention with sinks is computed; auto chooses and says what it chose and why.",
    why: "Every accepted implementation keeps the learned sinks in the softmax; others drop them without a word.",
  }),
});

const levels = z.array(z.int().min(0).max(4)).min(1).nullable().default(null);

const env = z.strictObject({
  suite: suite.describe("The task domain to train on."),
  split: z.string().min(1).default("train").describe("The part of the suite's tasks to train on."),
  user: z.enum(["scripted"]).default("scripted").describe("Who plays the user."),
  max_turns: count.default(12).describe("Turns of the agent after which an episode is cut."),
  max_errors: count.default(4).describe("Invalid actions after which an episode is cut."),
  levels: levels.describe(
    "Levels of mini-shop (0 to 4) or tool-calls (0 to 3) to draw tasks from; null is all of them.",
  ),
  tasks: z
    .array(z.string().min(1))
    .min(1)
    .nullable()
    .default(null)
    .describe(
      "Ids of the only tasks to train on; null is every task of the split but those that reward doing nothing.",
    ),
  system_prompt: z
    .enum(["full", "none"])
    .optional()
    .describe(
      "Whether the agent reads the policy text and the tool list, or must know them from training; absent is full, and none where the tiny policy has only mini-shop's own words.",
    ),
  examples: z
    .int()
    .min(0)
    .default(0)
    .describe("Example conversations put before every task, as turns of the prompt; they carry no loss."),
});

const rollout = z.strictObject({
  engine: z.enum(["local"]).default("local").describe("Where episodes are sampled; local is the worker itself."),
  group_size: z.int().min(2).default(8).meta({
    description: "Episodes sampled of each task; their rewards are compared with one another.",
    why: "The advantage compares an episode with others of its task; alone it is always 0 and nothing is learned.",
  }),
  tasks_per_step: count.default(8).describe("Different tasks in one training step."),
  max_live_episodes: count.default(256).describe("Episodes that are sampled at the same time at most."),
  temperature: rate.default(1.0).describe("Sampling temperature; log-probabilities use it everywhere."),
  top_p: z.literal(1).default(1).meta({
    description: "Nucleus sampling; only 1 (off) is exact.",
    why: "A smaller top_p rescales what is sampled, while training scores the whole vocabulary: every importance ratio would be multiplied by the kept probability mass (0.8 for top_p 0.8).",
  }),
  top_k: z.literal(0).default(0).meta({
    description: "Sampling among the k likeliest tokens; only 0 (off) is exact.",
    why: "A top_k rescales what is sampled, while training scores the whole vocabulary: every importance ratio would be multiplied by the kept probability mass.",
  }),
  max_new_tokens: count.default(64).describe("Tokens the agent may write in one turn."),
  max_total_tokens: z.int().min(16).default(4096).describe("Tokens of a whole episode after which it is cut."),
});

const optim = z.strictObject({
  lr: rate.default(1e-3).describe("Learning rate of AdamW after the warm-up."),
  betas: z
    .tuple([z.number().min(0).lt(1), z.number().min(0).lt(1)])
    .default([0.9, 0.95])
    .describe("AdamW's decay rates of the mean and of the square of the gradient."),
  weight_decay: z.number().min(0).default(0.0).describe("AdamW's weight decay."),
  warmup_steps: z.int().min(0).default(5).describe("Training steps in which the learning rate rises from 0."),
  schedule: z
    .enum(["constant", "linear"])
    .default("constant")
    .describe(
      "What the learning rate does after the warm-up: stay, or fall linearly to 0 at the end of `train.steps`.",
    ),
  grad_clip: rate.default(1.0).describe("Largest norm of the gradient; a longer one is scaled down."),
});

const demonstrations = z.strictObject({
  agent: z.enum(["expert", "faulty", "gold"]).describe("Who gives the demonstrations."),
  steps: count.describe("Supervised steps with this agent."),
  levels: levels.describe("Levels of the suite that it demonstrates; null is those of `env.levels`."),
});

const warmStart = z.strictObject({
  sft: z
    .strictObject({
      lr: rate.default(4e-3).describe("Learning rate, falling linearly to 0."),
      episodes_per_step: count.default(24).describe("Demonstrated episodes in one supervised step."),
      grad_clip: rate.default(1.0).describe("Largest norm of the gradient."),
      demonstrations: z.array(demonstrations).min(1).describe("The stages, one after the other."),
    })
    .describe("Supervised learning from demonstrations."),
});

const train = z.strictObject({
  steps: z.int().min(1).meta({
    description: "Training steps to take.",
    why: "With no step there is nothing to train.",
  }),
  tokens_per_micro_batch: z
    .int()
    .min(64)
    .default(8192)
    .describe("Tokens of one pass; what sequences share counts once. Less needs less memory, changes no result."),
  activation_checkpointing: z
    .boolean()
    .default(false)
    .describe(
      "Keep each layer's input alone and compute the rest again on the way back: far less memory, a third more time.",
    ),
  logprob_gap_limit: rate
    .default(0.01)
    .describe(
      "Largest mean difference of sampled and recomputed log-probabilities at the first step; above it the run fails.",
    ),
  max_infra_rate: share
    .default(0.2)
    .describe("Share of episodes lost to infrastructure faults above which the run stops."),
  zero_variance_warn: share.default(0.9).describe("Share of groups with equal rewards above which the run warns."),
});

const evaluation = z.strictObject({
  suites: z.array(suite).min(1).optional().describe("Suites to measure; absent is, and so far only may be, env.suite."),
  every: z
    .int()
    .min(0)
    .default(10)
    .describe("Training steps between evaluations; 0 measures only before the first and after the last."),
  split: z.string().min(1).default("tune").describe("Part of the tasks for evaluations on the way."),
  tasks: count.default(60).describe("Tasks in an evaluation on the way."),
  report_split: z
    .string()
    .min(1)
    .default("report")
    .describe("Part of the tasks for the first and the last evaluation."),
  report_tasks: count.default(200).describe("Tasks in the first and the last evaluation."),
  trials: count.default(1).describe("Times each task is tried."),
  temperature: z
    .number()
    .min(0)
    .default(1.0)
    .describe("Sampling temperature while measuring; 0 takes the likeliest token."),
});

const checkpoint = z.strictObject({
  every: z.int().min(0).default(20).describe("Training steps between checkpoints; 0 saves only the last."),
  keep: z.int().min(1).default(3).meta({
    description: "Newest checkpoints of this run that are kept.",
    why: "0 would delete every checkpoint, the last one too.",
  }),
});

const launch = z.strictObject({
  engine: z.enum(["local"]).default("local").describe("How the worker is started; local is one process."),
});

export const configSchema = z.strictObject({
  name: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/)
    .optional()
    .describe("First part of the run directory's name; absent is the name of this file."),
  seed: z.int().min(0).max(Number.MAX_SAFE_INTEGER).default(0).describe("Where all randomness starts."),
  device: z
    .enum(["auto", "cpu", "cuda"])
    .default("auto")
    .describe("Where to train; auto takes a GPU when there is one."),
  threads: z
    .union([z.literal("auto"), count])
    .default("auto")
    .describe(
      "CPU threads of the worker; auto takes 1 for a small model, measures it for a large one, and keeps the number when a run is resumed. Another number rounds sums differently, so give one where two machines must agree.",
    ),
  model: model.describe("The policy that is trained."),
  attention: attention.prefault({}).describe("The attention operator."),
  env: env.describe("The environment: tasks, user and limits."),
  rollout: rollout.prefault({}).describe("How episodes are sampled."),
  algorithm: algorithm.prefault({}).describe("From rewards to a loss."),
  optim: optim.prefault({}).describe("The optimiser."),
  warm_start: warmStart
    .nullable()
    .default(null)
    .describe("What is learned before reinforcement learning; null is nothing."),
  train: train.describe("Length and guards of training."),
  eval: evaluation.nullable().prefault({}).describe("Measuring on held-out tasks; null measures nothing."),
  checkpoint: checkpoint.prefault({}).describe("Saving and keeping the policy."),
  launch: launch.prefault({}).describe("Starting the worker."),
});

export type Parsed = z.output<typeof configSchema>;
type Filled<T, K extends keyof T> = Omit<T, K> & { [P in K]-?: Exclude<T[P], undefined> };

/** The config with every default resolved, also those that depend on other keys. This is what run.json holds. */
export type Config = Filled<Omit<Parsed, "env" | "algorithm" | "eval">, "name"> & {
  env: Filled<Parsed["env"], "system_prompt">;
  algorithm: Filled<Parsed["algorithm"], "clip_high">;
  eval: Filled<NonNullable<Parsed["eval"]>, "suites"> | null;
};
