/** Keys that the schema does not have: where they belong, what they are called here, or why there is no such thing. */
import { nearest } from "../errors.js";
import { inPlace } from "./expectation.js";
import { allPaths, dotted, keyAt, notNull, type Path } from "./keys.js";

/** Names that other training programs use for our keys. Only for hints; a config that uses them is refused. */
export const FOREIGN: Readonly<Record<string, string>> = {
  learning_rate: "optim.lr",
  max_grad_norm: "optim.grad_clip",
  adam_betas: "optim.betas",
  wd: "optim.weight_decay",
  num_warmup_steps: "optim.warmup_steps",
  num_generations: "rollout.group_size",
  n: "rollout.group_size",
  batch_size: "rollout.tasks_per_step",
  train_batch_size: "rollout.tasks_per_step",
  max_tokens: "rollout.max_new_tokens",
  max_completion_length: "rollout.max_new_tokens",
  max_length: "rollout.max_total_tokens",
  max_seq_len: "rollout.max_total_tokens",
  num_epochs: "algorithm.epochs",
  num_train_epochs: "algorithm.epochs",
  num_iterations: "algorithm.epochs",
  ppo_epochs: "algorithm.epochs",
  beta: "algorithm.kl.coef",
  kl_coef: "algorithm.kl.coef",
  epsilon: "algorithm.clip_low",
  clip_eps: "algorithm.clip_low",
  clip_range: "algorithm.clip_low",
  epsilon_high: "algorithm.clip_high",
  loss_agg_mode: "algorithm.aggregate",
  max_steps: "train.steps",
  num_steps: "train.steps",
  micro_batch_size: "train.tokens_per_micro_batch",
  attn_implementation: "attention.impl",
  model_name: "model.path",
  model_name_or_path: "model.path",
  precision: "model.dtype",
  environment: "env.suite",
  task: "env.suite",
  save_steps: "checkpoint.every",
  save_total_limit: "checkpoint.keep",
  keep_last: "checkpoint.keep",
  eval_steps: "eval.every",
};

/** Things that a config cannot ask for, with the reason. */
const ABSENT: Readonly<Record<string, string>> = {
  min_p: "Cutting unlikely tokens rescales what is sampled and falsifies every importance ratio.",
  repetition_penalty: "A penalty rescales what is sampled and falsifies every importance ratio.",
  output_dir: "Runs are kept in ./runs; choose another directory with the option --runs DIR.",
  resume: "A run goes on with the option --resume RUN.",
};

export interface UnknownKey {
  code: "SF-CONFIG-UNKNOWN-KEY" | "SF-CONFIG-MISPLACED-KEY";
  what: string;
  why?: string | undefined;
  fix?: string | undefined;
  /** The path that was probably meant. */
  meant?: string | undefined;
}

/** Explains a key that its section does not have; `value` is its text, for the example, when it is short. */
export function unknownKey(section: Path, name: string, value: string | undefined): UnknownKey {
  const key = keyAt(section);
  const siblings = Object.keys((key && notNull(key).properties) ?? {});
  const paths = allPaths();
  const word = normal(name);
  const place = section.length === 0 ? "at the top level" : `in \`${dotted(section)}\``;
  const unknown = (meant: string | undefined, fix: string | undefined, why?: string): UnknownKey => {
    return { code: "SF-CONFIG-UNKNOWN-KEY", what: `unknown key \`${name}\` ${place}`, why, fix, meant };
  };
  const sibling = (found: string) => unknown(dotted([...section, found]), `Did you mean \`${found}\`?`);
  const ours = (path: string) => unknown(path, `SinkFlex calls it \`${path}\`:\n  ${inPlace(path.split("."), value)}`);

  if (siblings.includes(word)) return sibling(word);
  const homes = paths.filter((path) => path.at(-1) === word).sort((a, b) => a.length - b.length);
  if (homes[0]) return misplaced(name, place, homes, value);
  if (Object.hasOwn(FOREIGN, word)) return ours(FOREIGN[word] as string);
  if (Object.hasOwn(ABSENT, word)) return unknown(undefined, "Remove the key.", ABSENT[word]);
  const near = nearest(word, siblings);
  if (near) return sibling(near);
  const foreign = nearest(word, Object.keys(FOREIGN));
  if (foreign) return ours(FOREIGN[foreign] as string);
  const far = nearest(
    word,
    paths.map((path) => path.at(-1) as string),
  );
  const found = paths.find((path) => path.at(-1) === far)?.join(".");
  if (found) return unknown(found, `Did you mean \`${found}\`?`);
  return unknown(undefined, `The keys ${place} are ${siblings.map((text) => `\`${text}\``).join(", ")}.`);
}

function misplaced(name: string, place: string, homes: string[][], value: string | undefined): UnknownKey {
  const sections = homes.map((path) => (path.length > 1 ? `\`${path.slice(0, -1).join(".")}\`` : "the top level"));
  const home = homes[0] as string[];
  return {
    code: "SF-CONFIG-MISPLACED-KEY",
    what: `\`${name}\` does not belong ${place}`,
    fix: `Move it to ${sections.join(" or ")}:\n  ${inPlace(home, value)}`,
    meant: home.join("."),
  };
}

/** `num-epochs`, `numEpochs` and `Num_Epochs` are one word. */
function normal(name: string): string {
  const words = name.replaceAll(/([a-z0-9])([A-Z])/g, "$1_$2");
  return words.toLowerCase().replaceAll(/[-\s]/g, "_");
}
