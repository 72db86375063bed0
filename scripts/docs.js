#!/usr/bin/env node
/** Writes the files that are generated from the config schema. Run it after `npm run build`; a test holds them current. */
import { writeFileSync } from "node:fs";

const { schemaText } = await import("../dist/config/keys.js");
const { configReference } = await import("../dist/config/markdown.js");

for (const [name, text] of [
  ["configs/schema.json", schemaText()],
  ["docs/config.md", configReference()],
]) {
  writeFileSync(new URL(`../${name}`, import.meta.url), text);
  process.stdout.write(`wrote ${name}\n`);
}
