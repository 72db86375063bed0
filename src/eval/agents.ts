/** Who plays the agent: what was named, or the newest finished run of the suite when somebody agrees to it. */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { EXIT, UserError } from "../errors.js";
import type { EvalOptions } from "../options.js";
import { FILES, findRun, lastCheckpoint, listRuns, readJson, readRun } from "../run/dir.js";
import { nobody } from "./person.js";
import type { AgentRequest, Asked, EvalRequest, NamedAgent } from "./request.js";

export type Checkpoint = Extract<AgentRequest, { kind: "checkpoint" }>;

/** The checkpoint of step `step` (null: the last) of the run called `name`. */
export function checkpointOf(root: string, name: string, step: number | null): Checkpoint {
  const dir = findRun(root, name);
  const { run } = readRun(dir);
  const last = lastCheckpoint(dir);
  const path = step === null ? last?.checkpoint : join(dir, FILES.checkpoints, `step-${String(step).padStart(6, "0")}`);
  if (path === undefined || !existsSync(path)) {
    const kept = stepsOf(dir);
    throw new UserError({
      code: "SF-EVAL-CHECKPOINT",
      what: step === null ? `${run} has no checkpoint.` : `${run} has no checkpoint of step ${step}.`,
      fix: kept.length === 0 ? "Let it run until it has written one." : `It has those of step ${kept.join(", ")}.`,
    });
  }
  return { kind: "checkpoint", run, run_dir: dir, checkpoint: path, step: step ?? (last?.step as number) };
}

function stepsOf(dir: string): number[] {
  const parent = join(dir, FILES.checkpoints);
  if (!existsSync(parent)) return [];
  const steps = readdirSync(parent).flatMap((name) => /^step-(\d+)$/.exec(name)?.slice(1) ?? []);
  return steps.map(Number).sort((a, b) => a - b);
}

/** The last checkpoint of the newest run that was finished on this suite. */
function newestCheckpoint(root: string, suite: string): Checkpoint | null {
  for (const dir of listRuns(root)) {
    const summary = readJson<{ status?: string; suite?: string }>(join(dir, FILES.summary));
    if (summary?.status !== "completed" || summary.suite !== suite || lastCheckpoint(dir) === null) continue;
    return checkpointOf(root, dir, null);
  }
  return null;
}

/**
 * How a checkpoint was trained decides how it is to be asked: its prompt and its limits, unless others were typed. On
 * another suite than its own neither levels nor examples mean the same, and the limit of errors and of length may be too
 * tight for longer conversations: those are of its own suite alone.
 */
export function settingsOf({ run_dir }: Checkpoint, suite: string): Partial<EvalRequest> {
  const { env, rollout } = readRun(run_dir).config as {
    env?: {
      suite?: string;
      system_prompt?: "full" | "none";
      max_turns?: number;
      max_errors?: number;
      examples?: number;
      levels?: number[] | null;
    };
    rollout?: { max_new_tokens?: number; max_total_tokens?: number };
  };
  const own = env?.suite === suite;
  return {
    system_prompt: env?.system_prompt ?? null,
    max_turns: env?.max_turns ?? null,
    max_new_tokens: rollout?.max_new_tokens ?? null,
    ...(own && {
      levels: env.levels ?? null,
      examples: env.examples ?? null,
      max_errors: env.max_errors ?? null,
      max_total_tokens: rollout?.max_total_tokens ?? null,
    }),
  };
}

/** The agent that was named; without one the newest finished run is offered. Throws when nobody is there to agree. */
export async function agentOf(
  named: NamedAgent,
  asked: Asked,
  options: EvalOptions,
  root: string,
): Promise<AgentRequest> {
  if (named !== null) return named.kind === "checkpoint" ? checkpointOf(root, named.name, named.step) : named;
  const offer = newestCheckpoint(root, asked.suite);
  const choices = "Name one with --agent, --checkpoint, --model or --endpoint.";
  const missing = (what: string) =>
    new UserError(
      { code: "SF-EVAL-NO-AGENT", what, fix: choices },
      { exitCode: EXIT.input, left: "Nothing was played." },
    );
  if (offer === null) throw missing(`no agent was named, and ${root} has no finished run of ${asked.suite}.`);
  const name = `${offer.run}@${offer.step}`;
  if (options.yes) return offer;
  if (nobody(options, { stdin: process.stdin, stderr: process.stderr }, process.env) !== null) {
    throw missing(`no agent was named; the newest finished run of ${asked.suite} is \`--checkpoint ${name}\`.`);
  }
  const { confirm } = await import("@inquirer/prompts");
  const message = `No agent was named. Evaluate the newest finished run, ${name}?`;
  const yes = await confirm({ message, default: true }, { output: process.stderr }).catch((error: Error) => {
    if (error.name === "ExitPromptError") return false;
    throw error;
  });
  if (!yes) throw missing("no agent was named.");
  return offer;
}
