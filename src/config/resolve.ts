/** Defaults that depend on other keys. */
import { type Config, configSchema, type Parsed } from "./schema.js";

/** The second parse brings the keys into the schema's order. */
export function resolveDefaults(parsed: Parsed, name: string): Config {
  const { algorithm, eval: measured } = parsed;
  return configSchema.parse({
    ...parsed,
    name: parsed.name ?? name,
    algorithm: { ...algorithm, clip_high: algorithm.clip_high ?? algorithm.clip_low },
    eval: measured && { ...measured, suites: measured.suites ?? [parsed.env.suite] },
  }) as Config;
}
