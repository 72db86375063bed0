/** docs/config.md, written from the schema. */
import { expected, shownDefault } from "./expectation.js";
import { isNullable, type Key, notNull, rootKey } from "./keys.js";

const OPENING = `# Config reference

Generated from the schema (\`src/config/schema.ts\`) by \`node scripts/docs.js\`; \`sinkflex schema --markdown\` prints it.

- A config is one YAML 1.2 file. The smallest one that trains is \`configs/minimal.yaml\`.
- Every key that is not given takes the default below. A key that is not listed here is refused.
- The first line \`# yaml-language-server: $schema=...\` gives editors completion and these sentences.
- \`--set a.b=1\`, repeatable, wins over the file. The value is read as YAML: \`--set env.levels=[0,1]\`,
  \`--set eval=null\`, \`--set warm_start.sft.demonstrations.0.steps=100\`. Both values are printed.
- A relative path starts at the folder of the config file, one given with \`--set\` at the current folder; \`~\` is the
  home folder. The absolute path is printed.
- All problems are reported at once, each with file, line and column, and the exit code is 2.
- Text that YAML 1.1 would read differently (\`off\`, \`16_384\`, \`0123\`, \`12:30\`), keys given twice, merge keys (\`<<\`)
  and keys without a value are refused, so that no other program reads another config in the same file.
`;

export function configReference(): string {
  const sections = Object.entries(rootKey().properties ?? {});
  const isSection = ([, key]: [string, Key]) => notNull(key).properties !== undefined;
  const parts = [
    OPENING,
    "## Top level\n",
    table(
      sections.filter((entry) => !isSection(entry)),
      rootKey(),
    ),
  ];
  for (const [name, key] of sections.filter(isSection)) parts.push(...section(name, key));
  return parts.join("\n");
}

function section(name: string, key: Key): string[] {
  const core = notNull(key);
  const without = isNullable(key) ? ` Default: ${key.default === null ? "`null`" : "the defaults of its keys"}.` : "";
  return [`## ${name}\n`, `${key.description}${without}\n`, table(leaves(core), core)];
}

/** Keys of inner sections are listed under their dotted names. */
function leaves(section: Key, prefix = ""): [string, Key][] {
  return Object.entries(section.properties ?? {}).flatMap(([name, key]): [string, Key][] => {
    const inner = notNull(key);
    const items = inner.items && !Array.isArray(inner.items) ? inner.items : undefined;
    if (inner.properties) return leaves(inner, `${prefix}${name}.`);
    if (items?.properties) return [[`${prefix}${name}`, key], ...leaves(items, `${prefix}${name}[].`)];
    return [[`${prefix}${name}`, key]];
  });
}

function table(keys: [string, Key][], section: Key): string {
  const rows = keys.map(([name, key]) => {
    const standard = key.default === undefined ? absent(name, section) : shownDefault(key);
    return `| \`${name}\` | ${expected(key)} | ${standard} | ${key.description ?? ""} |`;
  });
  return ["| key | accepts | default | meaning |", "|---|---|---|---|", ...rows, ""].join("\n");
}

function absent(name: string, section: Key): string {
  return section.required?.includes(name) || name.includes(".") ? "required" : "see meaning";
}
