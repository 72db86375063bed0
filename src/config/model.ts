/** The section `model` of the config (see schema.ts). */
import { z } from "zod";

/** Models that are built from a seed, and models that `sinkflex models get` brings. */
const presets = ["tiny-gpt-oss", "smollm2-135m"] as const;

const lora = z.strictObject({
  rank: z.int().min(1).default(16).describe("Rank of the two factors that are trained for each weight."),
  alpha: z
    .number()
    .positive()
    .default(32)
    .describe("Scale of what is added to a weight; their product counts alpha / rank times."),
  targets: z
    .array(z.string().min(1))
    .min(1)
    .nullable()
    .default(null)
    .describe("Names of the linear layers that get an adapter; null is those of attention and MLP."),
});

export const model = z.strictObject({
  preset: z.enum(presets).optional().describe("A model by its name; give either this or `path`."),
  path: z
    .string()
    .min(1)
    .optional()
    .describe(
      "Folder of a transformers checkpoint with tokenizer, a GGUF file, or `org/name` of a hub; a relative path starts at this file's folder.",
    ),
  dtype: z
    .enum(["auto", "float32", "bfloat16"])
    .default("auto")
    .describe("Number format of the weights; auto chooses by device and says what it chose."),
  lora: lora
    .nullable()
    .default(null)
    .describe("Low-rank adapters are trained and the weights stay as they are; null trains all weights."),
});
