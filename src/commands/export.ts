/** `sinkflex export`: a run's policy as a folder that other libraries load. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { EXIT, UserError } from "../errors.js";
import { checkpointOf } from "../eval/agents.js";
import type { ExportOptions } from "../options.js";
import { writeExport } from "../process/export.js";
import { sizeOf } from "../process/models.js";
import { reportTo } from "../process/progress.js";
import { resolvePython } from "../process/python.js";
import { defaultRoot, shownPath } from "../run/dir.js";
import { bytes } from "../ui/format.js";

export async function run(options: ExportOptions): Promise<number> {
  const { folder, merge } = options;
  const [, name = "", step] = /^(.*?)(?:@(\d+))?$/.exec(options.run) ?? [];
  const found = checkpointOf(options.runs ?? defaultRoot(), name, step === undefined ? null : Number(step));
  refuseUsed(folder);
  const python = await resolvePython({ ...options, python: options.python });
  await writeExport({ checkpoint: found.checkpoint, folder, merge }, python.path, await reportTo(process.stderr));
  const size = sizeOf(folder);
  const kind = existsSync(join(folder, "adapter_config.json")) ? "adapter" : "model";
  const { run: from, step: at } = found;
  if (options.json) {
    process.stdout.write(
      `${JSON.stringify({ type: "export", run: from, step: at, folder, kind, merge, bytes: size })}\n`,
    );
  } else {
    const what = kind === "model" ? "a model" : "an adapter in peft's layout";
    process.stdout.write(`${from}@${at} is exported: ${shownPath(folder)} (${what}, ${bytes(size)})\n`);
  }
  return EXIT.ok;
}

/** Before Python starts; the worker, which writes, refuses it too. */
function refuseUsed(folder: string): void {
  const there = statSync(folder, { throwIfNoEntry: false });
  if (!there || (there.isDirectory() && readdirSync(folder).length === 0)) return;
  throw new UserError(
    {
      code: "SF-EXPORT",
      what: `${folder} is there already${there.isDirectory() ? " and not empty" : ""}.`,
      fix: "Name a folder that does not exist yet: an export replaces nothing.",
    },
    { left: "Nothing was written." },
  );
}
