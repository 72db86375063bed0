/** `sinkflex models`: which models can be had, which are here and where, and getting one. */
import { homedir } from "node:os";
import { EXIT } from "../errors.js";
import type { ModelsOptions } from "../options.js";
import { listModels, type ModelEntry, modelsDir, sizeOf } from "../process/models.js";
import { commandFor, modelFolder, wantedByName } from "../process/models-find.js";
import { reportTo } from "../process/progress.js";
import { resolvePython } from "../process/python.js";
import { ABSENT, bytes, columns, compact, painter } from "../ui/format.js";

export async function run(options: ModelsOptions): Promise<number> {
  return options.model === undefined ? list(options) : get(options, options.model);
}

function print(rows: readonly string[]): number {
  process.stdout.write(rows.map((row) => `${row}\n`).join(""));
  return EXIT.ok;
}

const STATE = { here: "here", absent: "can be had", built: "built in" } as const;

function list({ json, color }: ModelsOptions): number {
  const models = listModels();
  if (json) return print([JSON.stringify({ type: "models", dir: modelsDir(), models })]);
  const paint = painter(color);
  const rows = models.map(({ name, state, parameters, bytes: size, license, folder, source }) => [
    name,
    paint(state === "here" ? "green" : "dim", STATE[state]),
    parameters === null ? ABSENT : compact(parameters),
    bytes(size),
    license ?? ABSENT,
    state === "here" && folder !== null ? shortened(folder) : source,
  ]);
  const widest = (column: number) => Math.max(8, ...rows.map((row) => row[column]?.length ?? 0));
  const head = ["model", "state", "weights", "on disk", "licence", "where"].map((name) => paint("dim", name));
  const widths = [widest(0), 10, 8, 8, 12, widest(5)].map((width, column) => ({
    width,
    align: column === 2 || column === 3 ? ("right" as const) : ("left" as const),
  }));
  const absent = models.find((one): one is ModelEntry => one.state === "absent");
  const offer =
    absent === undefined
      ? []
      : ["", `sinkflex models get ${absent.name}   a download of ${bytes(absent.download_bytes)}`];
  return print([...columns([head, ...rows], widths), ...offer]);
}

/** With the home folder as `~`. */
function shortened(path: string): string {
  const home = homedir();
  return path.startsWith(`${home}/`) ? `~${path.slice(home.length)}` : path;
}

async function get(options: ModelsOptions, word: string): Promise<number> {
  const wanted = wantedByName(word);
  const python = wanted.kind === "built" ? "" : (await resolvePython({ ...options, python: options.python })).path;
  const report = await reportTo(process.stderr);
  const found = await modelFolder(wanted, { python, report, typed: commandFor({ path: word }) });
  const size = found === null ? null : sizeOf(found.folder);
  if (options.json) {
    const { folder = null, got = false, license = null } = found ?? {};
    return print([JSON.stringify({ type: "model", name: wanted.name, folder, got, license, bytes: size })]);
  }
  if (found === null) return print([`${word} is built from the seed at every start: there is nothing to get.`]);
  const verb = found.got ? "now here" : "here already";
  return print([
    `${wanted.name} is ${verb}: ${found.folder} (${[bytes(size), found.license].filter(Boolean).join(", ")})`,
  ]);
}
