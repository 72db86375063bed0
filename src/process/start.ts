/** Starts the worker with a verb, in the folder that holds what it is to do. */
import { UserError } from "../errors.js";
import { workerEnvironment } from "./python.js";
import { Worker } from "./worker.js";

/** `file` is relative to `dir`; what the worker prints is appended to `log`. */
export async function startWorker(
  python: string,
  verb: "train" | "bench" | "eval" | "models" | "export",
  { dir, file, log }: { dir: string; file: string; log: string },
): Promise<Worker> {
  const args = ["-P", "-m", "sinkflex", verb, file];
  const launch = { command: python, args, cwd: dir, env: workerEnvironment(process.env), log };
  return Worker.start(launch).catch((cause: NodeJS.ErrnoException) => {
    throw new UserError(
      {
        code: "SF-PYTHON-NOT-FOUND",
        what: `${python} can't be started (${cause.code ?? cause.message}).`,
        fix: "Run `sinkflex doctor`.",
      },
      { cause },
    );
  });
}
