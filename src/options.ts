/**
 * What the command line hands to a command, and the one decision about colour.
 * The commands and cli.ts share these types; nobody but cli.ts imports a command.
 */
import { existsSync } from "node:fs";

export interface GlobalOptions {
  /** stdout carries only the event stream; text for people goes to stderr. */
  json: boolean;
  /** Colour is wanted on stdout. For another stream ask wantsColor. */
  color: boolean;
  verbose: boolean;
  quiet: boolean;
  /** False with --no-input: never ask; what needs a yes then fails. */
  input: boolean;
  /** The Python to use: an absolute path, or a bare name to be looked up in PATH. */
  python?: string;
  /** Absolute path of the directory that holds the runs, when --runs was given. */
  runs?: string;
}

export interface TrainOptions extends GlobalOptions {
  /** Absent only together with `resume`, whose run knows its config. */
  config?: string;
  /** `a.b=1` as typed, in order. */
  set: string[];
  /** A run's name or path, or `latest`. */
  resume?: string;
  dryRun: boolean;
  /** Answer yes to every question. */
  yes: boolean;
}

export interface RunsOptions extends GlobalOptions {
  action: "list" | "show" | "tail";
  /** A run's name or path, or `latest`; present for `show` and `tail`. */
  run?: string;
  episode?: string;
  step?: number;
  /** Of a results folder: the task, and which of its trials (from 1). */
  task?: string;
  trial?: number;
}

export interface DoctorOptions extends GlobalOptions {
  fix: boolean;
}

/** As typed: src/bench/request.ts judges the words and numbers. */
export interface BenchOptions extends GlobalOptions {
  what?: string;
  seq?: string[];
  impl?: string[];
  device?: string;
  dtype?: string;
  heads?: string;
  headDim?: string;
  window?: string;
  vocabulary?: string;
  hidden?: string;
  head?: string;
  geometry?: string;
  layers?: string;
  train?: string;
  repeat?: string;
  secondsPerCell?: string;
  threads?: string;
  /** Absolute path of the record to write. */
  out?: string;
  /** Absolute path of the record to compare with. */
  compare?: string;
  /** Answer yes to every question. */
  yes: boolean;
}

/** As typed: src/eval/request.ts judges the words and numbers. */
export interface EvalOptions extends GlobalOptions {
  suite?: string;
  agent?: string;
  checkpoint?: string;
  /** A preset, the absolute path of a model folder or GGUF file, or a hub id. */
  model?: string;
  endpoint?: string;
  modelName?: string;
  split?: string;
  tasks?: string;
  task?: string[];
  levels?: string[];
  trials?: string;
  concurrency?: string;
  user?: string;
  userEndpoint?: string;
  userModel?: string;
  scoreMode?: string;
  judgeEndpoint?: string;
  judgeModel?: string;
  temperature?: string;
  maxNewTokens?: string;
  maxTurns?: string;
  examples?: string;
  trialTimeout?: string;
  budget?: string;
  prices?: string;
  seed?: string;
  /** Absolute path of the results folder. */
  out?: string;
  /** Absolute path of a results folder to go on with. */
  resume?: string;
  strictArguments?: boolean;
  retryErrors?: boolean;
  /** Answer yes to every question. */
  yes: boolean;
}

export interface EvalCompareOptions extends GlobalOptions {
  /** Results folders as typed. */
  base: string;
  candidate: string;
  yes: boolean;
}

export interface ModelsOptions extends GlobalOptions {
  /** What to get: a preset, an absolute path or a hub id. Absent: list what there is. */
  model?: string;
  /** Answer yes to every question. */
  yes: boolean;
}

export interface ExportOptions extends GlobalOptions {
  /** A run's name or path, or `latest`; `@STEP` behind it names a checkpoint that is not the last. */
  run: string;
  /** Absolute path of the folder to write. */
  folder: string;
  merge: boolean;
  /** Answer yes to every question. */
  yes: boolean;
}

export interface SchemaOptions extends GlobalOptions {
  markdown: boolean;
}

/** A model as typed: an absolute path where it can only be one or exists; else a name, of a preset or of a hub. */
export function modelWord(text: string, absolute: (path: string) => string): string {
  const name = /^[\w.-]+(?:\/[\w.-]+)?$/.test(text) && !/^\.|\.gguf$/i.test(text);
  return name && !existsSync(absolute(text)) ? text : absolute(text);
}

/** --no-color, then FORCE_COLOR, then NO_COLOR, then whether the stream is a terminal that can show it. */
export function wantsColor(stream: { isTTY?: boolean }, allowed: boolean, env: NodeJS.ProcessEnv): boolean {
  if (!allowed) return false;
  if (env.FORCE_COLOR !== undefined) return env.FORCE_COLOR !== "0" && env.FORCE_COLOR !== "false";
  if (env.NO_COLOR !== undefined && env.NO_COLOR !== "") return false;
  return stream.isTTY === true && env.TERM !== "dumb";
}
