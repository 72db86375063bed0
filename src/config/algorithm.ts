/** The section `algorithm` of the config (see schema.ts). */
import { z } from "zod";

const count = z.int().min(1);

const kl = z.strictObject({
  coef: z.number().min(0).default(0).describe("Weight of the KL penalty; 0 loads no reference policy."),
  estimator: z.enum(["k3", "k2"]).default("k3").describe("How the KL divergence is estimated from samples."),
});

const offset = "The bound is an offset from 1: 0.2 clips the ratio at 1 - 0.2 below and at 1 + 0.2 above.";
export const algorithm = z.strictObject({
  reward: z
    .enum(["exact", "graded"])
    .default("exact")
    .describe(
      "What is learned from: exact success, or its mean with the share of sub-goals met. Evaluations stay exact.",
    ),
  advantage: z
    .enum(["grpo", "reinforce_plus_plus"])
    .default("grpo")
    .describe("Whether an episode is compared with the others of its task (GRPO) or of the whole step (REINFORCE++)."),
  normalize: z
    .enum(["std", "none"])
    .default("std")
    .describe("Whether advantages are divided by the standard deviation of what is compared."),
  loss: z.enum(["clip"]).default("clip").describe("The policy loss."),
  clip_low: z.number().min(0).lt(1).default(0.2).meta({
    description: "How far below 1 the probability ratio may fall before it is clipped.",
    why: offset,
  }),
  clip_high: z.number().min(0).optional().meta({
    description: "How far above 1 the probability ratio may rise before it is clipped; absent is the same as clip_low.",
    why: offset,
  }),
  aggregate: z
    .enum(["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant_length"])
    .default("token_mean")
    .describe("How token losses become one loss; the mean runs over the whole training step."),
  constant_length: count
    .nullable()
    .default(null)
    .describe("Tokens to divide each episode's loss by; needed with aggregate constant_length and only there."),
  zero_variance: z
    .enum(["exclude", "keep"])
    .default("exclude")
    .describe("Whether groups with equal rewards count in the loss's mean."),
  mask_truncated: z.boolean().default(false).describe("Whether episodes cut by a limit are left out of the loss."),
  mini_batches: count.default(1).describe("Optimiser updates that a training step is divided into."),
  epochs: count.default(1).describe("Times the episodes of a training step are used."),
  kl: kl.prefault({}).describe("Penalty for leaving the reference policy."),
});
