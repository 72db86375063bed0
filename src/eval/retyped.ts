/** The options of `sinkflex eval`, written as a command. Pure. */
import type { EvalOptions } from "../options.js";

const LEFT_OUT = new Set(["suite", "out", "resume", "yes", "retryErrors"]);

/**
 * What to type to measure the same again. Paths are named absolutely, so that the command means the same elsewhere.
 * Options of presentation are left out.
 */
export function retyped(typed: Partial<EvalOptions>): string {
  const words = OPTION_NAMES.flatMap((name) => {
    const value = typed[name];
    if (value === undefined || LEFT_OUT.has(name)) return [];
    const option = `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    return value === true ? [option] : [option, ...(Array.isArray(value) ? value : [String(value)])];
  });
  return ["sinkflex", "eval", typed.suite ?? "", ...words].join(" ");
}

const OPTION_NAMES = [
  "agent",
  "checkpoint",
  "model",
  "endpoint",
  "modelName",
  "split",
  "tasks",
  "task",
  "levels",
  "trials",
  "concurrency",
  "user",
  "userEndpoint",
  "userModel",
  "scoreMode",
  "judgeEndpoint",
  "judgeModel",
  "temperature",
  "strictArguments",
  "maxNewTokens",
  "maxTurns",
  "examples",
  "trialTimeout",
  "budget",
  "prices",
  "seed",
] as const satisfies readonly (keyof EvalOptions)[];
