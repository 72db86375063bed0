/**
 * From the text of a config to plain values that remember where they stand.
 *
 * YAML 1.2 only, and only the part of it that cannot be misread: one document, no key twice, no merge keys (`<<` belongs
 * to YAML 1.1), no tags of other languages, no key without a value. Nothing here knows the schema.
 */
import { Composer, isAlias, isMap, isScalar, isSeq, type Node, Parser, Scalar, type YAMLMap, type YAMLSeq } from "yaml";
import type { ErrorCode, Place, Problem } from "../errors.js";
import type { Path } from "./keys.js";
import { nestingProblem, syntaxProblems } from "./syntax.js";

/** Where a value came from. `plain` is its text when it was written without quotes. */
export interface Origin {
  key?: Place | undefined;
  value: Place;
  plain?: string | undefined;
}

/** Plain values, and the origin of each under `pathId`. */
export interface Tree {
  value: unknown;
  origins: Map<string, Origin>;
}

/** Turns two offsets of the text into a place. */
export type Locate = (start: number, end: number) => Place;

const MAX_NODES = 10_000;

export function pathId(path: Path): string {
  return JSON.stringify(path);
}

/** Places in a file, which is shown under the name that the user gave it. */
export function locator(file: string, text: string): Locate {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return (start, end) => {
    let line = starts.findLastIndex((from) => from <= start);
    if (line > 0 && start >= text.length && text.endsWith("\n")) line -= 1; // the end of the file is its last line
    const from = starts[line] as number;
    const source = text.slice(from, (starts[line + 1] ?? text.length + 1) - 1).replace(/\r$/, "");
    const col = Math.min(start - from, source.length) + 1;
    return { file, line: line + 1, col, length: Math.max(1, Math.min(end - start, source.length - col + 1)), source };
  };
}

/** The value is undefined when the text is empty; problems of syntax leave no tree. `base` is the path of the text. */
export function parseTree(text: string, locate: Locate, base: Path = []): { tree?: Tree; problems: Problem[] } {
  const tokens = [...new Parser().parse(text)];
  const tooDeep = nestingProblem(tokens, locate);
  if (tooDeep) return { problems: [tooDeep] };
  const composer = new Composer({ version: "1.2", schema: "core", uniqueKeys: false, prettyErrors: false });
  const documents = [...composer.compose(tokens, true, text.length)];
  const problems = syntaxProblems(documents, locate);
  if (problems.length > 0) return { problems };
  const walk = new Walk(locate);
  const contents = documents[0]?.contents;
  const value = contents ? walk.value(contents as Node, base) : undefined;
  return { tree: { value, origins: walk.origins }, problems: walk.problems };
}

class Walk {
  readonly origins = new Map<string, Origin>();
  readonly problems: Problem[] = [];
  private readonly anchors = new Map<string, Node>();
  private readonly open = new Set<Node>();
  private visited = 0;

  constructor(private readonly locate: Locate) {}

  value(node: Node, path: Path, key?: Place): unknown {
    const place = this.place(node);
    if (isAlias(node)) {
      const target = this.anchors.get(node.source);
      if (target && !this.open.has(target)) return this.value(target, path, key);
      const what = target ? `\`*${node.source}\` contains itself` : `\`*${node.source}\` refers to nothing`;
      const fix = target
        ? undefined
        : `Define it earlier in the file with \`&${node.source}\`, or write the value out.`;
      this.problem("SF-CONFIG-ALIAS", what, place, fix);
      this.origins.set(pathId(path), { key, value: place });
      return undefined;
    }
    this.visited += 1;
    if (this.visited === MAX_NODES) this.problem("SF-CONFIG-FILE-TOO-LARGE", "the config holds too many values", place);
    if (this.visited >= MAX_NODES) return undefined;
    if ("anchor" in node && typeof node.anchor === "string") this.anchors.set(node.anchor, node);

    const plain = isScalar(node) && node.type === Scalar.PLAIN && !node.tag ? node.source : undefined;
    if (path.length > 0) this.origins.set(pathId(path), { key, value: place, plain });
    if (isScalar(node)) return node.value;
    this.open.add(node);
    const value = isMap(node) ? this.map(node, path) : isSeq(node) ? this.list(node, path) : undefined;
    this.open.delete(node);
    return value;
  }

  private list(seq: YAMLSeq, path: Path): unknown[] {
    return seq.items.map((item, i) => this.value(item as Node, [...path, i]));
  }

  private map(map: YAMLMap, path: Path): Record<string, unknown> {
    const entries = new Map<string, unknown>();
    const seen = new Map<string, Place>();
    for (const pair of map.items) {
      const keyNode = pair.key as Node | null;
      const place = this.place(keyNode ?? map);
      if (!isScalar(keyNode) || keyNode.value === null) {
        this.problem("SF-CONFIG-SYNTAX", "a key must be a word", place, "Write `key: value`.");
        continue;
      }
      const name = String(keyNode.value);
      const first = seen.get(name);
      if (first) {
        const what = `\`${name}\` is given twice, ${lines(first, place)}`;
        this.problem("SF-CONFIG-DUPLICATE-KEY", what, place, "Keep one of them.");
        continue;
      }
      seen.set(name, place);
      if (name === "<<" && keyNode.type === Scalar.PLAIN) {
        const why = "Merge keys belong to YAML 1.1; a reader of YAML 1.2 ignores them.";
        this.problem("SF-CONFIG-MERGE-KEY", "`<<` is not supported", place, "Write the keys out.", why);
        continue;
      }
      const node = pair.value as Node | null;
      if (!node || (isScalar(node) && node.value === null && !node.source)) {
        const fix = "Write a value, or remove the key to take its default. A section without keys is written `{}`.";
        this.problem("SF-CONFIG-NO-VALUE", `\`${name}\` has no value`, place, fix);
        this.origins.set(pathId([...path, name]), { key: place, value: place });
        continue;
      }
      entries.set(name, this.value(node, [...path, name], place));
    }
    return Object.fromEntries(entries);
  }

  private place(node: Node): Place {
    const [start, end] = node.range ?? [0, 1];
    return this.locate(start, end);
  }

  private problem(code: ErrorCode, what: string, where: Place, fix?: string, why?: string): void {
    this.problems.push({ code, what, where, why, fix });
  }
}

function lines(first: Place, second: Place): string {
  return first.line === second.line ? `both in line ${first.line}` : `in lines ${first.line} and ${second.line}`;
}
