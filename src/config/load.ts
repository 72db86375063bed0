/** A config file becomes a config: bytes, text, YAML, overrides, schema, paths. All problems come as one error. */
import { closeSync, openSync, readSync, statSync } from "node:fs";
import { dirname, isAbsolute, join, parse, resolve } from "node:path";
import { type Place, type Problem, UserError } from "../errors.js";
import { diagnose } from "./diagnose.js";
import { type Locate, locator, parseTree, pathId, type Tree } from "./document.js";
import { expandHome, readText } from "./file.js";
import { applyOverrides } from "./override.js";
import type { Config } from "./schema.js";

export interface LoadedConfig {
  /** Every key resolved, in the order of the schema; plain JSON. */
  config: Config;
  /** What the reader should know before the run starts, one sentence each. */
  echo: string[];
  document: {
    /** Absolute path. */
    file: string;
    /** The file as it is, for the copy in the run directory. */
    bytes: Uint8Array;
  };
}

/** Throws a UserError that holds every problem, sorted by line. */
export async function loadConfig(file: string, sets: readonly string[] = []): Promise<LoadedConfig> {
  const { text, bytes } = await readText(file);
  const path = resolve(file);
  const { config, echo } = checkConfig(text, file, sets);
  return { config, echo: [`config ${path}`, ...echo], document: { file: path, bytes } };
}

/**
 * Checks the text of a config as if it stood in `file`. JSON is YAML, so this also takes the resolved config of an
 * earlier run, to go on with it under overrides; `recorded` says so: where its model is, the run knows.
 */
export function checkConfig(
  text: string,
  file: string,
  sets: readonly string[] = [],
  recorded = false,
): Pick<LoadedConfig, "config" | "echo"> {
  const locate = locator(file, text);
  const { tree, problems: written } = parseTree(text, locate);
  if (!tree) throw refused(written);
  if (tree.value === null || typeof tree.value !== "object" || Array.isArray(tree.value)) {
    throw refused([notAMapping(tree, text, locate)]);
  }
  const overrides = applyOverrides(tree, sets);
  const model = recorded ? {} : modelPath(tree, file);
  const { config, problems } = diagnose(tree, { file, line: 1, col: 1 }, nameFor(file));
  const all = [...written, ...overrides.problems, ...problems, ...(model.problem ? [model.problem] : [])];
  if (all.length > 0 || !config) throw refused(all);

  const echo = [...overrides.echo, ...remarks(config)];
  if (model.path !== undefined) {
    config.model.path = model.path;
    echo.push(`model.path: ${model.path}${isAbsolute(model.path) ? "" : ", of a hub: there is no such folder"}`);
  }
  return { config: JSON.parse(JSON.stringify(config)), echo };
}

/** Legal, but worth saying. */
function remarks({ algorithm }: Config): string[] {
  const { clip_low, clip_high } = algorithm;
  if (clip_high >= clip_low) return [];
  const bounds = [1 - clip_low, 1 + clip_high].map((bound) => Number(bound.toFixed(6)));
  return [
    `algorithm.clip_high ${clip_high} is below clip_low ${clip_low}: ratios are clipped to ${bounds.join(" ... ")}`,
  ];
}

/** A model of a hub: two names and a slash. */
const HUB_ID = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;

/**
 * A relative path starts at the folder of the file; one typed after --set at the current folder. What exists there is
 * the model; only what cannot be meant as a path (nothing of that name, nor a folder that it would be in) is a hub id.
 */
function modelPath(tree: Tree, file: string): { path?: string; problem?: Problem } {
  const written = (tree.value as { model?: { path?: unknown } }).model?.path;
  const where = tree.origins.get(pathId(["model", "path"]))?.value;
  if (typeof written !== "string" || written === "" || /\p{Cc}/u.test(written) || !where) return {};
  const path = resolve(where.line === 0 ? "." : dirname(resolve(file)), expandHome(written));
  const refuse = (what: string, fix: string) => ({ problem: { code: "SF-CONFIG-PATH", what, where, fix } as const });
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isFile()) {
    if (beginsWith(path, "GGUF")) return { path };
    const fix = "Give a folder with a checkpoint, or a GGUF file.";
    return refuse(`\`model.path\` is a file, and not a GGUF file: ${path}`, fix);
  }
  if (
    !found &&
    HUB_ID.test(written) &&
    !/\.gguf$/i.test(written) &&
    !statSync(dirname(path), { throwIfNoEntry: false })
  ) {
    return { path: written };
  }
  if (!found?.isDirectory()) {
    const from = where.line === 0 ? "the current folder" : "the folder of the config file";
    return refuse(
      `\`model.path\` is neither a folder nor a file: ${path}`,
      `Give a folder with a checkpoint, a GGUF file, or \`org/name\` of a hub; relative paths start at ${from}.`,
    );
  }
  if (!statSync(join(path, "config.json"), { throwIfNoEntry: false })) {
    return refuse(
      `\`model.path\` has no config.json: ${path}`,
      "Give the folder that holds config.json and the weights.",
    );
  }
  return { path };
}

function beginsWith(path: string, letters: string): boolean {
  const head = Buffer.alloc(letters.length);
  try {
    const file = openSync(path, "r");
    try {
      readSync(file, head);
    } finally {
      closeSync(file);
    }
  } catch {
    return true; // what cannot be read is refused by the worker, with the system's own reason
  }
  return head.toString("latin1") === letters;
}

/** The file's name without extension, reduced to what a run may be called. */
function nameFor(file: string): string {
  return (
    parse(file)
      .name.replaceAll(/[^A-Za-z0-9._-]+/g, "-")
      .replace(/^[^A-Za-z0-9]+/, "") || "run"
  );
}

function notAMapping({ value }: Tree, text: string, locate: Locate): Problem {
  const smallest = "The smallest config names a model, a suite and a number of steps:\n";
  const fix = `${smallest}  model: {preset: tiny-gpt-oss}\n  env: {suite: mini-shop}\n  train: {steps: 40}`;
  if (value === undefined || value === null) {
    const where = locate(0, 0);
    return { code: "SF-CONFIG-EMPTY", what: "the config is empty", where: bare(where), fix };
  }
  const start = Math.max(0, text.search(/\S/));
  const where = locate(start, text.length);
  if (Array.isArray(value))
    return { code: "SF-CONFIG-NOT-A-MAPPING", what: "the config is a list, not keys with values", where, fix };
  const glued = typeof value === "string" ? /^([\w.-]+):(\S+)$/.exec(value) : null;
  const blank = glued ? `A blank is missing after the colon: \`${glued[1]}: ${glued[2]}\`.` : fix;
  return {
    code: "SF-CONFIG-NOT-A-MAPPING",
    what: "the config is a single value, not keys with values",
    where,
    fix: blank,
  };
}

function bare({ file, line, col }: Place): Place {
  return { file, line, col };
}

function refused(problems: readonly Problem[]): UserError {
  const line = ({ where }: Problem) => where?.line || Number.POSITIVE_INFINITY;
  const col = ({ where }: Problem) => where?.col ?? 0;
  const sorted = problems.toSorted((a, b) => (line(a) === line(b) ? col(a) - col(b) : line(a) - line(b)));
  return new UserError(sorted, { left: "Nothing was started." });
}
