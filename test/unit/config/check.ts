/** Shorthands of the config tests: texts in, problems or a config out. */
import { checkConfig } from "../../../src/config/load.js";
import type { Config } from "../../../src/config/schema.js";
import { type Problem, UserError } from "../../../src/errors.js";

export const SMALLEST = "model: {preset: tiny-gpt-oss}\nenv: {suite: mini-shop}\ntrain: {steps: 5}\n";

export function configOf(text: string, sets: string[] = []): Config {
  return checkConfig(text, "my.yaml", sets).config;
}

export function echoOf(text: string, sets: string[] = []): string[] {
  return checkConfig(text, "my.yaml", sets).echo;
}

/** The problems of a text that must be refused. */
export function problemsOf(text: string, sets: string[] = []): readonly Problem[] {
  try {
    checkConfig(text, "my.yaml", sets);
  } catch (error) {
    if (error instanceof UserError) return error.problems;
    throw error;
  }
  throw new Error(`accepted:\n${text}`);
}

/** The only problem of a text that must be refused for one reason. */
export function problemOf(text: string, sets: string[] = []): Problem {
  const problems = problemsOf(text, sets);
  if (problems.length !== 1) throw new Error(`one problem expected:\n${problems.map(({ what }) => what).join("\n")}`);
  return problems[0] as Problem;
}
