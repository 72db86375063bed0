/** `--set a.b=1`: one value given on the command line, which wins over the file. */
import type { Place, Problem } from "../errors.js";
import { type Locate, type Origin, parseTree, pathId, type Tree } from "./document.js";
import { shown, shownText } from "./expectation.js";
import { dotted, keyAt, notNull, type Path } from "./keys.js";
import { unknownKey } from "./names.js";

const OPTION = "--set";

/** Changes the tree in place, in the order given. `echo` says what each override replaced. */
export function applyOverrides(tree: Tree, sets: readonly string[]): { problems: Problem[]; echo: string[] } {
  const problems: Problem[] = [];
  const echo: string[] = [];
  for (const text of sets) {
    const result = applyOne(tree, text);
    if (typeof result === "string") echo.push(result);
    else problems.push(...result);
  }
  return { problems, echo };
}

interface Override {
  /** `a.b=1`, tidied. */
  text: string;
  path: Path;
  value: unknown;
  key: Place;
  origins: Map<string, Origin>;
}

/** The sentence for the reader, or what is wrong. */
function applyOne(tree: Tree, text: string): string | Problem[] {
  const override = parse(text);
  if (Array.isArray(override)) return override;
  const { path, key } = override;
  const container = containerOf(tree, path, key);
  if (typeof container === "string") {
    const section = dotted(path.slice(0, -1));
    const fix = `Set the whole of \`${section}\` at once: \`${OPTION} '${section}=...'\`.`;
    return refuse(`\`${dotted(path)}\` cannot be set: ${container}`, fix, key);
  }
  const echo = `${OPTION} ${override.text}${beaten(tree, path)}`;
  const inside = `${pathId(path).slice(0, -1)},`;
  for (const id of tree.origins.keys()) if (id.startsWith(inside)) tree.origins.delete(id);
  for (const [id, origin] of override.origins) tree.origins.set(id, origin);
  container[path.at(-1) as string] = override.value;
  return echo;
}

function parse(text: string): Override | Problem[] {
  const equals = text.indexOf("=");
  const name = text.slice(0, Math.max(0, equals)).trim();
  const value = text.slice(equals + 1).trim();
  const from = text.length - text.slice(equals + 1).trimStart().length;
  const key = place(text, 0, equals > 0 ? equals : text.length);
  const locate: Locate = (start, end) => place(text, from + start, from + end);

  if (!name) return refuse("an override needs a key and a value", "Write for example `--set optim.lr=5e-4`.", key);
  const path = pathOf(name);
  if (!path) return [unknown(name, value, key)];
  const { tree, problems } = parseTree(value, locate, path);
  if (!tree || problems.length > 0) return problems;
  if (tree.value === undefined) {
    return refuse(`\`${name}\` is given no value`, "Write a value; `null` is one, and `''` is empty text.", key);
  }
  if (tree.value !== null && typeof tree.value === "object" && !/^[[{&!]/.test(value)) {
    const fix = "Put text in quotes; a list is written `[a, b]` and a section `{a: 1}`.";
    return refuse(`${shownText(value)} is not one value`, fix, locate(0, value.length));
  }
  const own = tree.origins.get(pathId(path));
  if (own) own.key = key;
  return { text: `${name}=${value}`, path, value: tree.value, key, origins: tree.origins };
}

/** `a.b`, `a.b.0` and `a.b[0]`, checked against the schema. */
function pathOf(name: string): Path | undefined {
  const path: (string | number)[] = [];
  for (const part of name.replaceAll(/\[(\d+)\]/g, ".$1").split(".")) {
    const here = keyAt(path);
    const isList = here !== undefined && notNull(here).type === "array";
    path.push(isList && /^\d+$/.test(part) ? Number(part) : part);
    if (!keyAt(path)) return undefined;
  }
  return path;
}

function unknown(name: string, value: string, where: Place): Problem {
  const parts = name.split(".");
  let known = parts.length - 1;
  while (known > 0 && !pathOf(parts.slice(0, known).join("."))) known -= 1;
  const section = pathOf(parts.slice(0, known).join(".")) ?? [];
  const { meant, ...problem } = unknownKey(section, parts[known] ?? "", undefined);
  const rest = parts
    .slice(known + 1)
    .map((part) => `.${part}`)
    .join("");
  return { ...problem, where, fix: meant ? `Did you mean \`${OPTION} ${meant}${rest}=${value}\`?` : problem.fix };
}

/** The section or list that holds the path's last part, made where there is none; or why there cannot be one. */
function containerOf(tree: Tree, path: Path, where: Place): Record<string | number, unknown> | string {
  let container = tree.value as Record<string | number, unknown>;
  for (const [i, part] of path.slice(0, -1).entries()) {
    const at = path.slice(0, i + 1);
    if (container[part] === undefined) {
      if (Array.isArray(container)) return `\`${dotted(path.slice(0, i))}\` has only ${container.length} items`;
      container[part] = {};
      tree.origins.set(pathId(at), { key: where, value: where });
    }
    const next = container[part];
    if (next === null || typeof next !== "object") return `\`${dotted(at)}\` is ${shown(next)}`;
    container = next as Record<string | number, unknown>;
  }
  const last = path.at(-1);
  if (Array.isArray(container) && Number(last) >= container.length) {
    return `\`${dotted(path.slice(0, -1))}\` has only ${container.length} items`;
  }
  return container;
}

/** What the override wins over. */
function beaten(tree: Tree, path: Path): string {
  const origin = tree.origins.get(pathId(path));
  if (origin?.value.line === 0) return ` wins over an earlier ${OPTION}`;
  if (origin) return ` wins over ${origin.plain ?? "what stands"} in ${origin.value.file}:${origin.value.line}`;
  const key = keyAt(path);
  const hasDefault = key?.default !== undefined && notNull(key).type !== "object";
  return hasDefault ? ` instead of the default ${JSON.stringify(key.default)}` : "";
}

/** A place in the text of an override, shown as it was typed. */
function place(text: string, start: number, end: number): Place {
  const source = `${OPTION} ${text}`.replaceAll(/\s/g, " ");
  const col = OPTION.length + 1 + start + 1;
  return { file: OPTION, line: 0, col, length: Math.max(1, end - start), source };
}

function refuse(what: string, fix: string, where: Place): Problem[] {
  return [{ code: "SF-CONFIG-SET", what, where, fix }];
}
