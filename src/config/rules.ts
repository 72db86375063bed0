/**
 * Rules between keys, which no single key can check. Pure.
 *
 * `read` gives undefined for a value that is absent without a default or that has a problem of its own, so one mistake
 * is reported once. `has` says whether a key was written at all, be it misspelt.
 */
import type { ErrorCode } from "../errors.js";
import type { Path } from "./keys.js";

export interface Finding {
  code: ErrorCode;
  path: Path;
  /** Whether the caret belongs under the key or under the value. */
  at: "key" | "value";
  what: string;
  why?: string | undefined;
  fix?: string | undefined;
}

type Read = (...path: string[]) => unknown;

type Has = (...path: string[]) => boolean;

export function crossCheck(read: Read, has: Has): Finding[] {
  return [
    ...modelRules(read, has),
    ...envRules(read),
    ...promptRules(read),
    ...rolloutRules(read),
    ...clipRules(read),
    ...aggregateRules(read),
  ];
}

function modelRules(read: Read, has: Has): Finding[] {
  const preset = read("model", "preset");
  const path = read("model", "path");
  const found: Finding[] = [];
  const section = read("model");
  if (section !== null && typeof section === "object" && !has("model", "preset") && !has("model", "path")) {
    const what = "`model` needs `preset` or `path`";
    const fix = "Write `model: {preset: tiny-gpt-oss}`, or `path` with the folder of a checkpoint.";
    found.push({ code: "SF-CONFIG-MISSING-KEY", path: ["model"], at: "key", what, fix });
  }
  if (preset !== undefined && path !== undefined) {
    const fix = "Remove one of them. On the command line, give the whole section: `--set 'model={path: ...}'`.";
    found.push(conflict(["model", "path"], "`model` has both `preset` and `path`", undefined, fix));
  }
  if (typeof path === "string" && /\p{Cc}/u.test(path)) {
    const why = "In double quotes a backslash starts an escape: `\\n` is a new line and `\\t` a tab.";
    const fix = "Write the path in single quotes: 'C:\\new\\tmp'.";
    const what = "`model.path` holds control characters";
    found.push({ code: "SF-CONFIG-PATH", path: ["model", "path"], at: "value", what, why, fix });
  }
  return found;
}

function envRules(read: Read): Finding[] {
  const suite = read("env", "suite");
  if (suite === undefined || suite === "mini-shop" || suite === "tool-calls") return [];
  const no = (path: Path) =>
    conflict(path, `\`${suite}\` has no levels`, "Only mini-shop and tool-calls have.", "Remove `levels`.");
  const found = Array.isArray(read("env", "levels")) ? [no(["env", "levels"])] : [];
  const stages = read("warm_start", "sft", "demonstrations");
  for (const [index, stage] of (Array.isArray(stages) ? stages : []).entries()) {
    if (Array.isArray(stage?.levels)) found.push(no(["warm_start", "sft", "demonstrations", index, "levels"]));
  }
  return found;
}

function promptRules(read: Read): Finding[] {
  const tiny = read("model", "preset") === "tiny-gpt-oss" && read("env", "suite") === "mini-shop";
  if (!tiny || read("env", "system_prompt") !== "full") return [];
  const what = "the tiny policy cannot read mini-shop's system prompt";
  const why = "Its vocabulary is the 250 words that the shop's conversations are made of; the policy text has others.";
  const fix = "Write `system_prompt: none`, or train a checkpoint of your own with `model: {path: ...}`.";
  return [conflict(["env", "system_prompt"], what, why, fix)];
}

function rolloutRules(read: Read): Finding[] {
  const turn = read("rollout", "max_new_tokens");
  const episode = read("rollout", "max_total_tokens");
  const updates = read("algorithm", "mini_batches");
  const tasks = read("rollout", "tasks_per_step");
  const group = read("rollout", "group_size");
  const found: Finding[] = [];
  if (isNumber(turn) && isNumber(episode) && turn > episode) {
    const what = `a turn may have ${turn} tokens (\`max_new_tokens\`), but its episode only ${episode} (\`max_total_tokens\`)`;
    found.push(conflict(["rollout", "max_new_tokens"], what, undefined, "Lower the one or raise the other."));
  }
  if (isNumber(updates) && isNumber(tasks) && isNumber(group) && updates > tasks * group) {
    const what = `\`mini_batches\` is ${updates}, but a training step has only ${tasks * group} episodes`;
    const why = `${tasks} tasks (\`rollout.tasks_per_step\`) of ${group} episodes each (\`rollout.group_size\`).`;
    found.push(conflict(["algorithm", "mini_batches"], what, why, "Lower it."));
  }
  return found;
}

/** People write the interval (0.8, 1.28) where the offsets (0.2, 0.28) are meant. */
function clipRules(read: Read): Finding[] {
  const low = read("algorithm", "clip_low");
  const high = read("algorithm", "clip_high");
  const lowIsEnd = isNumber(low) && low > 0.5 && low < 1;
  const highIsEnd = isNumber(high) && high > 1 && high <= 1.5;
  if (!lowIsEnd && !highIsEnd) return [];
  const written = [isNumber(low) && lowIsEnd ? low : [], isNumber(high) && highIsEnd ? high : []].flat().join(" and ");
  const offsets = [isNumber(low) ? offset(low) : [], isNumber(high) ? offset(high) : []].flat();
  const why = "Both bounds are distances from 1: clip_low 0.2 and clip_high 0.28 clip the ratio to 0.8 ... 1.28.";
  const what = `${written} ${written.includes(" ") ? "look" : "looks"} like the ends of the clip interval; offsets are expected`;
  const fix = `Write offsets: did you mean ${offsets.join("/")}?`;
  return [conflict(["algorithm", lowIsEnd ? "clip_low" : "clip_high"], what, why, fix)];
}

function aggregateRules(read: Read): Finding[] {
  const aggregate = read("algorithm", "aggregate");
  const length = read("algorithm", "constant_length");
  if (aggregate === "constant_length" && length === null) {
    const what = "`aggregate: constant_length` needs the key `constant_length`";
    const why = "Losses are divided by that number; taken from the padded width it would change with every batch.";
    const fix = "Add for example `constant_length: 1024`, the longest episode you expect in tokens.";
    return [{ code: "SF-CONFIG-MISSING-KEY", path: ["algorithm", "aggregate"], at: "value", what, why, fix }];
  }
  if (isNumber(length) && typeof aggregate === "string" && aggregate !== "constant_length") {
    const what = `\`constant_length\` has no effect with \`aggregate: ${aggregate}\``;
    return [
      conflict(["algorithm", "constant_length"], what, undefined, "Remove it, or set `aggregate: constant_length`."),
    ];
  }
  return [];
}

function offset(bound: number): number {
  const distance = bound > 1 ? bound - 1 : bound > 0.5 ? 1 - bound : bound;
  return Number(distance.toFixed(6));
}

function conflict(path: Path, what: string, why: string | undefined, fix: string): Finding {
  return { code: "SF-CONFIG-CONFLICT", path, at: "key", what, why, fix };
}

function isNumber(value: unknown): value is number {
  return typeof value === "number";
}
