/** Runs the compiled command line as a user would, in a folder of its own. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const BIN = join(import.meta.dirname, "../../bin/sinkflex.js");

export interface Outcome {
  code: number | null;
  stdout: string;
  stderr: string;
}

export function sinkflex(args: string[], options: { cwd?: string; env?: Record<string, string> } = {}): Outcome {
  const { FORCE_COLOR, NO_COLOR, ...env } = process.env;
  const { status, stdout, stderr } = spawnSync(process.execPath, [BIN, ...args], {
    encoding: "utf8",
    env: { ...env, ...options.env },
    ...(options.cwd ? { cwd: options.cwd } : {}),
  });
  return { code: status, stdout, stderr };
}
