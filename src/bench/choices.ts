/** The words that `sinkflex bench` takes, once for its help and for its checks. Constants only: the grammar imports it. */

/** What can be measured; of each its implementations, the options that size it, and what those leave out. */
export const SUBJECTS = {
  attention: {
    impls: ["eager", "flash", "flex", "triton", "transformers", "fla"],
    options: ["heads", "headDim", "window"],
    has: "attention is measured alone: it has heads, a head_dim and a window",
  },
  "log-prob": {
    impls: ["naive", "linear"],
    options: ["vocabulary", "hidden", "head"],
    has: "the log-prob head has a vocabulary and a hidden size, and is frozen or trained",
  },
  model: {
    impls: ["eager", "ours"],
    options: ["geometry", "layers", "train"],
    has: "a model has a geometry and layers, and is trained in full or by LoRA",
  },
} as const;

export type Subject = keyof typeof SUBJECTS;

export const WHAT = Object.keys(SUBJECTS) as Subject[];
export const DEVICES = ["auto", "cpu", "cuda"] as const;
export const DTYPES = ["auto", "float32", "bfloat16", "float16"] as const;
export const HEADS = ["frozen", "trained"] as const;
export const TRAIN = ["full", "lora"] as const;

export const GEOMETRIES = ["scaled", "gpt-oss-20b"] as const;

/** The longest length that may be asked for; what does not fit is found out by measuring. */
export const LONGEST = 16_777_216;

/** The implementation that the others are compared with. */
export function baseline(what: string): string {
  return what === "log-prob" ? "naive" : "eager";
}
