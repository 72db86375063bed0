/**
 * The schema as plain data: every key with its type, limits, default and sentence.
 * Read by editors (configs/schema.json), by the key table and by the texts of config errors.
 */
import { z } from "zod";
import { configSchema } from "./schema.js";

/** The part of JSON Schema (draft 7) that our schema uses. */
export interface Key {
  $schema?: string;
  title?: string;
  description?: string;
  /** Why a value outside the limits is refused; not part of the published file. */
  why?: string;
  type?: "object" | "array" | "string" | "number" | "integer" | "boolean" | "null";
  enum?: string[];
  const?: string | number;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  minItems?: number;
  maxItems?: number;
  items?: Key | Key[];
  additionalItems?: boolean;
  anyOf?: Key[];
  properties?: Record<string, Key>;
  required?: string[];
  additionalProperties?: boolean;
  default?: unknown;
}

export type Path = readonly (string | number)[];

let root: Key | undefined;

export function rootKey(): Key {
  root ??= z.toJSONSchema(configSchema, {
    io: "input",
    target: "draft-7",
    override: ({ jsonSchema, path }) => {
      // zod bounds every integer by 2^53 - 1; that is a limit worth showing for the seed alone.
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER && path.at(-1) !== "seed") delete jsonSchema.maximum;
    },
  }) as Key;
  return root;
}

/** The text of configs/schema.json. */
export function schemaText(): string {
  const { $schema, ...rest } = rootKey();
  return `${JSON.stringify({ $schema, title: "A SinkFlex config", ...rest }, published, 2)}\n`;
}

/** The sentence first and the default last; `why` is for errors only. */
function published(_: string, value: unknown): unknown {
  if (value === null || typeof value !== "object" || !("description" in value)) return value;
  const { description, why, default: standard, ...rest } = value as Key;
  return { description, ...rest, ...("default" in value ? { default: standard } : {}) };
}

/** The key at a path, or undefined when the schema has none; list indexes stand for their items. */
export function keyAt(path: Path): Key | undefined {
  let key: Key | undefined = rootKey();
  for (const part of path) {
    const from: Key | undefined = key && notNull(key);
    if (typeof part === "number") key = Array.isArray(from?.items) ? from.items[part] : from?.items;
    else key = own(from?.properties, part);
  }
  return key;
}

/** A nullable key without its null. */
export function notNull(key: Key): Key {
  const [only, ...others] = key.anyOf?.filter(({ type }) => type !== "null") ?? [];
  return only && others.length === 0 ? { ...only, ...rest(key) } : key;
}

export function isNullable(key: Key): boolean {
  return key.anyOf?.some(({ type }) => type === "null") ?? false;
}

/** Every path of the schema, sections before their keys, in order. */
export function allPaths(): string[][] {
  const walk = (key: Key, path: string[]): string[][] => {
    const { properties, items } = notNull(key);
    const inner = items && !Array.isArray(items) ? items : undefined;
    const below = Object.entries(properties ?? (inner && notNull(inner).properties) ?? {});
    return below.flatMap(([name, child]) => [[...path, name], ...walk(child, [...path, name])]);
  };
  return walk(rootKey(), []);
}

/** `a.b[0].c`, as a person would write it. */
export function dotted(path: Path): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === "number") return `${text}[${part}]`;
    return text ? `${text}.${part}` : part;
  }, "");
}

function own<T>(record: Record<string, T> | undefined, name: string): T | undefined {
  return record && Object.hasOwn(record, name) ? record[name] : undefined;
}

function rest({ description, why }: Key): Key {
  return { ...(description ? { description } : {}), ...(why ? { why } : {}) };
}
