/**
 * From the options of `sinkflex bench` to bench.json, which tells the worker what to measure. Pure. All that can be
 * refused without Python is refused here, all problems at once; null is left to the worker to choose.
 */
import { nearest, type Problem, UserError } from "../errors.js";
import type { BenchOptions } from "../options.js";
import { DEVICES, DTYPES, GEOMETRIES, HEADS, LONGEST, SUBJECTS, type Subject, TRAIN, WHAT } from "./choices.js";

export interface BenchRequest {
  v: 1;
  verb: "bench";
  what: Subject;
  seq: number[] | null;
  impls: string[] | null;
  device: string;
  dtype: string;
  num_q_heads: number | null;
  num_kv_heads: number | null;
  head_dim: number | null;
  window: number | null;
  vocabulary: number | null;
  hidden: number | null;
  head: string | null;
  geometry: string | null;
  layers: number | null;
  train: string | null;
  repeat: number | null;
  seconds_per_cell: number | null;
  threads: number | null;
  /** What to type to measure the same again. */
  command: string;
}

type Typed = Partial<BenchOptions>;
type Name = keyof typeof OPTIONS;

/** The options that decide what is measured, as they are typed. */
const OPTIONS = {
  what: "--what",
  seq: "--seq",
  impl: "--impl",
  device: "--device",
  dtype: "--dtype",
  heads: "--heads",
  headDim: "--head-dim",
  window: "--window",
  vocabulary: "--vocabulary",
  hidden: "--hidden",
  head: "--head",
  geometry: "--geometry",
  layers: "--layers",
  train: "--train",
  repeat: "--repeat",
  secondsPerCell: "--seconds-per-cell",
  threads: "--threads",
} as const;

/** Other names for our words. Only for hints. */
const ALIASES: Record<string, string> = {
  gpu: "cuda",
  bf16: "bfloat16",
  fp16: "float16",
  half: "float16",
  fp32: "float32",
  float: "float32",
  attn: "attention",
  logprob: "log-prob",
  logprobs: "log-prob",
};

/** Throws a UserError that holds every problem. */
export function benchRequest(typed: Typed): BenchRequest {
  const problems: Problem[] = [];
  const refuse = (what: string, fix?: string, why?: string) => {
    problems.push({ code: "SF-USAGE-ARGUMENT", what, why, fix });
    return null;
  };

  function word<const T extends string>(name: Name, allowed: readonly T[]): T | null {
    const value = typed[name];
    if (typeof value !== "string") return null;
    const found = allowed.find((one) => one === value);
    return found ?? refuse(`\`${OPTIONS[name]} ${value}\` is unknown`, choice(value, allowed));
  }

  function number(name: Name, most: number, unit: string): number | null {
    const value = typed[name];
    if (typeof value !== "string") return null;
    const found = wholeNumber(value, most);
    return found ?? refuse(`\`${OPTIONS[name]} ${value}\` is not a ${unit}`, `Give a whole number from 1 to ${most}.`);
  }

  const what = typed.what === undefined ? "attention" : word("what", WHAT);
  if (what !== null) problems.push(...misplaced(typed, what));
  const heads = headCounts(typed.heads, refuse);
  const request: BenchRequest = {
    v: 1,
    verb: "bench",
    what: what ?? "attention",
    seq: lengths(typed.seq, refuse),
    impls: what === null ? null : implementations(typed.impl, what, refuse),
    device: word("device", DEVICES) ?? "auto",
    dtype: word("dtype", DTYPES) ?? "auto",
    num_q_heads: heads?.[0] ?? null,
    num_kv_heads: heads?.[1] ?? null,
    head_dim: number("headDim", 1024, "head_dim"),
    window: number("window", LONGEST, "window"),
    vocabulary: number("vocabulary", 1 << 24, "vocabulary size"),
    hidden: number("hidden", 1 << 20, "hidden size"),
    head: word("head", HEADS),
    geometry: word("geometry", GEOMETRIES),
    layers: number("layers", 1024, "number of layers"),
    train: word("train", TRAIN),
    repeat: number("repeat", 10_000, "number of repetitions"),
    seconds_per_cell: number("secondsPerCell", 86_400, "number of seconds"),
    threads: number("threads", 4096, "number of threads"),
    command: command(typed),
  };
  if (problems.length > 0) throw new UserError(problems, { left: "Nothing was measured." });
  return request;
}

type Refuse = (what: string, fix?: string, why?: string) => null;

/** In the order they were typed, each once. */
function lengths(typed: readonly string[] | undefined, refuse: Refuse): number[] | null {
  if (typed === undefined) return null;
  const found = typed.map((text) => {
    const length = wholeNumber(text, LONGEST);
    return length ?? refuse(`\`--seq ${text}\` is not a length`, lengthHint(text));
  });
  return [...new Set(found.filter((length) => length !== null))];
}

function lengthHint(text: string): string {
  const allowed = `A length is a whole number of tokens from 1 to ${LONGEST}.`;
  if (/^\d+(,\d+)+$/.test(text)) return `Put blanks between lengths: \`--seq ${text.replaceAll(",", " ")}\`.`;
  const short = /^(\d+)k$/i.exec(text)?.[1];
  return short === undefined ? allowed : `Did you mean \`${Number(short) * 1024}\`? ${allowed}`;
}

function implementations(typed: readonly string[] | undefined, what: Subject, refuse: Refuse): string[] | null {
  if (typed === undefined) return null;
  const own: readonly string[] = SUBJECTS[what].impls;
  for (const impl of typed.filter((one) => !own.includes(one))) {
    const other = WHAT.find((subject) => (SUBJECTS[subject].impls as readonly string[]).includes(impl));
    if (other === undefined) refuse(`\`--impl ${impl}\` is unknown`, choice(impl, own));
    else {
      const fix = `Measure it with \`--what ${other}\`, or leave it out: ${what} has ${own.join(", ")}.`;
      refuse(`\`--impl ${impl}\` is an implementation of ${other}, not of ${what}`, fix);
    }
  }
  return [...new Set(typed)];
}

/** `64/8`: every key head serves as many query heads. */
function headCounts(text: string | undefined, refuse: Refuse): [number, number] | null {
  if (text === undefined) return null;
  const [, left = "", right = ""] = /^(\d+)\/(\d+)$/.exec(text) ?? [];
  const counts = [wholeNumber(left, 4096), wholeNumber(right, 4096)] as const;
  const [queries, keys] = counts;
  if (queries === null || keys === null) {
    const fix = "Give query heads and key heads, each from 1 to 4096, such as `--heads 64/8`.";
    return refuse(`\`--heads ${text}\` is not a pair of head counts`, fix);
  }
  if (queries % keys === 0) return [queries, keys];
  const fix = `Make the first a multiple of the second, such as \`--heads ${Math.ceil(queries / keys) * keys}/${keys}\`.`;
  const why = "Every key head serves the same number of query heads.";
  return refuse(`\`--heads ${text}\`: ${queries} query heads cannot share ${keys} key heads evenly`, fix, why);
}

/** Options that size another subject than the one that is measured. */
function misplaced(typed: Typed, what: Subject): Problem[] {
  return WHAT.filter((subject) => subject !== what).flatMap((subject) =>
    SUBJECTS[subject].options
      .filter((name) => typed[name] !== undefined && !(SUBJECTS[what].options as readonly string[]).includes(name))
      .map((name): Problem => {
        const has = SUBJECTS[what].has;
        return {
          code: "SF-USAGE-OPTION",
          what: `\`${OPTIONS[name]}\` does not belong to \`--what ${what}\``,
          why: `${has.charAt(0).toUpperCase()}${has.slice(1)}.`,
          fix: `Leave it out, or measure \`--what ${subject}\`.`,
        };
      }),
  );
}

function choice(value: string, allowed: readonly string[]): string {
  const alias = ALIASES[value.toLowerCase()];
  const meant = alias !== undefined && allowed.includes(alias) ? alias : nearest(value, allowed);
  const list = `${allowed.slice(0, -1).join(", ")} or ${allowed.at(-1)}`;
  return `${meant === undefined ? "" : `Did you mean \`${meant}\`? `}It can be ${list}.`;
}

function wholeNumber(text: string, most: number): number | null {
  const value = /^\d+$/.test(text) ? Number(text) : 0;
  return value >= 1 && value <= most ? value : null;
}

function command(typed: Typed): string {
  const words = (Object.keys(OPTIONS) as Name[]).flatMap((name) => {
    const value = typed[name];
    return value === undefined ? [] : [OPTIONS[name], ...(typeof value === "string" ? [value] : value)];
  });
  return ["sinkflex", "bench", ...words].join(" ");
}
