/** Defaults that depend on other keys. */
import { type Config, configSchema, type Parsed } from "./schema.js";

/** The second parse brings the keys into the schema's order. */
export function resolveDefaults(parsed: Parsed, name: string): Config {
  const { algorithm, env, eval: measured, model } = parsed;
  const wordsOnly = model.preset === "tiny-gpt-oss" && env.suite === "mini-shop";
  return configSchema.parse({
    ...parsed,
    name: parsed.name ?? name,
    env: { ...env, system_prompt: env.system_prompt ?? (wordsOnly ? "none" : "full") },
    algorithm: { ...algorithm, clip_high: algorithm.clip_high ?? algorithm.clip_low },
    eval: measured && { ...measured, suites: measured.suites ?? [parsed.env.suite] },
  }) as Config;
}
