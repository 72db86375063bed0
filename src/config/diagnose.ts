/**
 * From plain values with origins to a config, or to everything that is wrong with them.
 * Pure: whether files exist is asked in load.ts.
 */
import type { z } from "zod";
import type { Place, Problem } from "../errors.js";
import { pathId, type Tree } from "./document.js";
import { exampleOf, expected, inPlace, otherReading, remedy, shown, shownText, whyOfChoice } from "./expectation.js";
import { dotted, keyAt, notNull, type Path } from "./keys.js";
import { unknownKey } from "./names.js";
import { resolveDefaults } from "./resolve.js";
import { crossCheck, type Finding } from "./rules.js";
import { type Config, configSchema } from "./schema.js";

/** `top` is the place of what is missing altogether; `name` is the default of the key `name`. */
export function diagnose(tree: Tree, top: Place, name: string): { config?: Config; problems: Problem[] } {
  const parsed = configSchema.safeParse(tree.value);
  const findings = new Examination(tree).run(parsed.error?.issues ?? []);
  const problems = findings.map(({ path, at, ...problem }) => ({ ...problem, where: placeOf(tree, path, at, top) }));
  return parsed.success && problems.length === 0
    ? { config: resolveDefaults(parsed.data, name), problems }
    : { problems };
}

/** A finding's own key or value, or else the innermost section around it that was written. */
function placeOf(tree: Tree, path: Path, at: "key" | "value", top: Place): Place {
  for (let length = path.length; length > 0; length--) {
    const origin = tree.origins.get(pathId(path.slice(0, length)));
    if (origin) return at === "value" && length === path.length ? origin.value : (origin.key ?? origin.value);
  }
  return top;
}

class Examination {
  private readonly findings: Finding[] = [];
  /** Paths that misspelt keys probably meant: they are not reported as missing too. */
  private readonly meant = new Set<string>();

  constructor(private readonly tree: Tree) {}

  run(issues: readonly z.core.$ZodIssue[]): Finding[] {
    for (const issue of issues) {
      if (issue.code === "unrecognized_keys") for (const name of issue.keys) this.unknown(issue.path as Path, name);
    }
    for (const issue of issues) {
      const path = issue.path as Path;
      if (issue.code === "unrecognized_keys" || this.isBad(path)) continue;
      if (this.value(path) === undefined) this.missing(path);
      else this.refused(path, this.value(path));
    }
    for (const [id, { plain }] of this.tree.origins) if (plain) this.ambiguous(JSON.parse(id), plain);
    const read = (...path: string[]) => (this.isBad(path) ? undefined : (this.value(path) ?? keyAt(path)?.default));
    const has = (...path: string[]) => this.wasWritten(path) || this.meant.has(dotted(path));
    return [...this.findings, ...crossCheck(read, has)];
  }

  private unknown(section: Path, name: string): void {
    const path = [...section, name];
    const value = this.value(path);
    const plain = this.plain(path) ?? (typeof value === "string" ? JSON.stringify(value) : undefined);
    const { meant, ...problem } = unknownKey(section, name, plain && plain.length <= 30 ? plain : undefined);
    if (meant) this.meant.add(meant);
    this.findings.push({ ...problem, path, at: "key" });
  }

  private missing(path: Path): void {
    const key = keyAt(path);
    if (!key || this.wasWritten(path) || this.meant.has(dotted(path))) return;
    const missing = key.required?.map((name) => [...path, name]) ?? [path];
    for (const each of missing) {
      const fix = `Add it, for example:\n  ${inPlace(each.map(String), exampleOf(keyAt(each) ?? {}))}`;
      const what = `\`${dotted(each)}\` is missing`;
      this.findings.push({ code: "SF-CONFIG-MISSING-KEY", path: each, at: "key", what, fix });
    }
  }

  private refused(path: Path, value: unknown): void {
    const key = keyAt(path);
    if (!key) return;
    const plain = this.plain(path);
    const { type, enum: choices, anyOf, const: only } = notNull(key);
    const numeric = type === "integer" || type === "number" || typeof only === "number" || anyOf !== undefined;
    const isText = typeof value === "string" && (choices !== undefined || type === "string");
    const isRight = isText || (typeof value === "number" && numeric) || (Array.isArray(value) && type === "array");
    const code = choices && isText ? "SF-CONFIG-CHOICE" : isRight ? "SF-CONFIG-RANGE" : "SF-CONFIG-TYPE";
    const given = plain === undefined ? shown(value) : shownText(plain);
    this.findings.push({
      code,
      path,
      at: "value",
      what: `\`${dotted(path) || "the config"}\` must be ${expected(key)}, but is ${given}`,
      why: isRight || type === "object" ? (key.why ?? whyOfChoice(key)) : undefined,
      fix: remedy(String(path.at(-1)), key, value, plain),
    });
  }

  /** Text that YAML 1.1 reads as something else, and numbers that it reads as other numbers. */
  private ambiguous(path: Path, plain: string): void {
    const value = this.value(path);
    const name = path.at(-1);
    const at = "value";
    const code = "SF-CONFIG-AMBIGUOUS";
    if (this.isBad(path) || (typeof value !== "string" && typeof value !== "number")) return;
    const why = "Programs that read YAML 1.1 and YAML 1.2 would not see the same value.";
    const reading = otherReading(plain);
    if (typeof value === "string" && reading) {
      const fix = `Put it in quotes: \`${typeof name === "string" ? `${name}: ` : ""}"${plain}"\`.`;
      this.findings.push({ code, path, at, what: `\`${plain}\` may be text or ${reading}`, why, fix });
    }
    if (typeof value === "number" && /^[-+]?0[0-9]+$/.test(plain)) {
      const what = `\`${plain}\` may be ${value} or a number in base 8`;
      this.findings.push({ code, path, at, what, why, fix: `Write it without leading zeros: \`${value}\`.` });
    }
  }

  private isBad(path: Path): boolean {
    return this.findings.some((found) => found.path.every((part, i) => path[i] === part));
  }

  private wasWritten(path: Path): boolean {
    return this.tree.origins.has(pathId(path));
  }

  private plain(path: Path): string | undefined {
    return this.tree.origins.get(pathId(path))?.plain;
  }

  private value(path: Path): unknown {
    let value: unknown = this.tree.value;
    for (const part of path) {
      if (value === null || typeof value !== "object" || !Object.hasOwn(value, part)) return undefined;
      value = (value as Record<string | number, unknown>)[part];
    }
    return value;
  }
}
