/** `sinkflex schema`: the JSON schema that editors use, or the same facts as a table. */
import type { SchemaOptions } from "../options.js";

export async function run({ markdown }: SchemaOptions): Promise<number> {
  const text = markdown
    ? (await import("../config/markdown.js")).configReference()
    : (await import("../config/keys.js")).schemaText();
  process.stdout.write(text);
  return 0;
}
