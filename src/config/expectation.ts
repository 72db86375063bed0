/** What a key accepts, and what to write instead of a value that it refuses. Pure text from the schema. */
import { nearest } from "../errors.js";
import { isNullable, type Key, notNull } from "./keys.js";

/** Completes the sentence "it must be ...". */
export function expected(key: Key): string {
  if (isNullable(key)) return `${expected(notNull(key))}, or null`;
  if (key.anyOf) return key.anyOf.map(expected).join(" or ");
  if (key.enum) return list(key.enum.map((choice) => `\`${choice}\``));
  if (key.const !== undefined) return `\`${key.const}\``;
  switch (key.type) {
    case "integer":
      return `a whole number${limits(key, ", ")}`;
    case "number":
      return `a number${limits(key, ", ")}`;
    case "boolean":
      return "true or false";
    case "string":
      return key.pattern ? "letters, digits, `.`, `_` or `-`, the first a letter or digit" : "text";
    case "array":
      return listOf(key);
    case "object":
      return "a section";
    default:
      return "null";
  }
}

/** A value as a person would recognise it. */
export function shown(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? "an empty list" : "a list";
  if (value !== null && typeof value === "object") return "a section";
  return shownText(typeof value === "string" ? JSON.stringify(value) : String(value));
}

export function shownText(text: string): string {
  return `\`${text.length > 40 ? `${text.slice(0, 39)}…` : text}\``;
}

/** What to write instead, or undefined when nothing better than the expectation can be said. */
export function remedy(name: string, key: Key, value: unknown, plain: string | undefined): string | undefined {
  const core = notNull(key);
  const text = typeof value === "string" ? value : "";
  if (isNullable(key) && (value === false || isWordForNothing(text)))
    return `Write \`${name}: null\` to switch it off.`;
  if (value === null) return `Remove the key to take its default${defaultOf(key, ", ")}.`;
  if (core.type === "object") return sectionRemedy(name, core, value);
  if (core.type === "array" && (value === null || typeof value !== "object")) {
    return `A list is written in brackets: \`${name}: [${plain ?? text}]\`.`;
  }
  const number = isNumeric(core) && text ? numberRemedy(name, text, plain) : undefined;
  if (number) return number;
  if (core.type === "boolean" && /^(yes|on|y)$/i.test(text))
    return `YAML 1.2 knows only true and false: \`${name}: true\`.`;
  if (core.type === "boolean" && /^(no|off|n)$/i.test(text))
    return `YAML 1.2 knows only true and false: \`${name}: false\`.`;
  if (core.enum) {
    const meant = text && nearest(text, core.enum);
    return meant ? `Did you mean \`${meant}\`?` : undefined;
  }
  if (core.type === "string" && plain !== undefined && !text)
    return `Put it in quotes to make it text: \`"${plain}"\`.`;
  return key.default === undefined ? undefined : `The default is ${shownDefault(key)}.`;
}

/** YAML 1.1, which many other programs read, takes this plain text for something else than text. */
export function otherReading(plain: string): string | undefined {
  if (/^(y|n|yes|no|on|off)$/i.test(plain)) return "a truth value";
  if (/^[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?$/.test(plain)) return "a number";
  if (/^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$/.test(plain)) return "a number in base 60";
  return undefined;
}

/** `optim: {lr: 1e-6}` for the path optim.lr. */
export function inPlace(path: readonly string[], value = "..."): string {
  return path.reduceRight((inner, part, i) => (i === 0 ? `${part}: ${inner}` : `{${part}: ${inner}}`), value);
}

/** A value that the key accepts, for an example; a section shows what it cannot do without. */
export function exampleOf(key: Key): string {
  const { type, enum: choices, properties, required, items } = notNull(key);
  if (choices?.[0]) return choices[0];
  if (type === "integer") return "100";
  if (type === "array" && items && !Array.isArray(items)) return `[${exampleOf(items)}]`;
  if (type !== "object" || !properties) return "...";
  const names = required ?? Object.keys(properties).slice(0, 1);
  return `{${names.map((name) => `${name}: ${exampleOf(properties[name] as Key)}`).join(", ")}}`;
}

/** Why a section's choice is limited: the reason of its first key that has one. */
export function whyOfChoice({ properties }: Key): string | undefined {
  return Object.values(properties ?? {}).find(({ enum: choices, why }) => choices && why)?.why;
}

export function shownDefault(key: Key): string {
  return `\`${typeof key.default === "string" ? key.default : JSON.stringify(key.default)}\``;
}

function sectionRemedy(name: string, section: Key, value: unknown): string {
  const keys = Object.entries(section.properties ?? {});
  const typed = typeof value === "string" ? value : undefined;
  for (const [child, { enum: choices }] of keys) {
    const meant = typed && choices && (choices.includes(typed) ? typed : nearest(typed, choices));
    if (meant) return `Write \`${name}: {${child}: ${meant}}\`.`;
  }
  const [only] = keys;
  if (only && keys.length === 1) return `Write \`${name}: {${only[0]}: ...}\` with ${expected(only[1])}.`;
  return `Its keys are ${keys.map(([child]) => `\`${child}\``).join(", ")}.`;
}

function numberRemedy(name: string, text: string, plain: string | undefined): string | undefined {
  const bare = text.replaceAll(/[_, ]/g, "");
  if (bare === "" || Number.isNaN(Number(bare))) return undefined;
  if (plain === undefined) return `In quotes it is text. Remove the quotes: \`${name}: ${bare}\`.`;
  return `YAML 1.2 has no separators in numbers: \`${name}: ${bare}\`.`;
}

function isWordForNothing(text: string): boolean {
  return /^(off|no|none|nil|null|disabled|false)$/i.test(text);
}

function isNumeric({ type, anyOf, const: only }: Key): boolean {
  return type === "integer" || type === "number" || typeof only === "number" || (anyOf?.some(isNumeric) ?? false);
}

function limits({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Key, separator: string): string {
  if (minimum !== undefined && maximum !== undefined) return ` from ${minimum} to ${maximum}`;
  if (minimum !== undefined && exclusiveMaximum !== undefined) return ` from ${minimum} to below ${exclusiveMaximum}`;
  if (exclusiveMinimum !== undefined) return ` above ${exclusiveMinimum}`;
  return minimum === undefined ? "" : `${separator}${minimum} or more`;
}

function listOf({ items, minItems }: Key): string {
  if (Array.isArray(items)) return `a list of ${items.length} items, each ${expected(items[0] as Key)}`;
  const size = minItems ? " with at least one item" : "";
  return items?.type === "object"
    ? `a list of sections${size}`
    : `a list${size}, each ${items ? expected(items) : "a value"}`;
}

function list(words: string[]): string {
  return words.length > 1 ? `${words.slice(0, -1).join(", ")} or ${words.at(-1)}` : words.join("");
}

function defaultOf(key: Key, before: string): string {
  return key.default === undefined || key.type === "object" ? "" : `${before}${shownDefault(key)}`;
}
