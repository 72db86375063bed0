/** Has the worker write a checkpoint's policy into a folder of the user's: whole, or not at all. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EXIT, UserError } from "../errors.js";
import { untilStopped } from "./folder.js";
import { Stopped } from "./install.js";
import { askWorker, type ExportRequest } from "./models-worker.js";
import type { Report } from "./progress.js";

/** Resolves when the folder is there. */
export async function writeExport(request: ExportRequest, python: string, report: Report): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "sinkflex-"));
  const log = join(dir, "worker.log");
  const stage = (text: string) => report.stage(`Exporting: ${text}`);
  const { detail, note } = report;
  let unexplained = false;
  try {
    await untilStopped(
      () => note("Stopping; nothing half-written is kept."),
      (signal) => askWorker(request, { python, dir, log, signal, stage, detail, note }),
    );
    report.end(true);
  } catch (error) {
    report.end(false);
    if (error instanceof Stopped) {
      throw new UserError(
        { code: "SF-EXPORT", what: "The export was stopped.", fix: "The same command begins it again." },
        {
          left: "Nothing half-written is kept.",
          exitCode: error.message === "SIGINT" ? EXIT.interrupted : EXIT.terminated,
        },
      );
    }
    unexplained = error instanceof UserError && error.exitCode === EXIT.failed; // its message names the log
    throw error;
  } finally {
    if (!unexplained) rmSync(dir, { recursive: true, force: true });
  }
}
