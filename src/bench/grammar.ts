/** The options of `sinkflex bench` and its help. What the words may be, request.ts judges: then all problems come at once. */
import type { Command } from "commander";
import { DEVICES, DTYPES, GEOMETRIES, HEADS, SUBJECTS, TRAIN, WHAT } from "./choices.js";

const ABOUT = `
Each length and implementation is a cell, measured in a process of its own:
first its numbers against the reference, then memory and time. A cell that does
not fit into memory is a result. What is not given is chosen and told.

Implementations:
${WHAT.map((what) => `  ${what.padEnd(10)} ${SUBJECTS[what].impls.join(", ")}`).join("\n")}

Examples:
  sinkflex bench --seq 4096 8192
  sinkflex bench --device cpu --seq 2048 4096 --impl eager flash --heads 16/2
  sinkflex bench --what log-prob --vocabulary 201088 --hidden 2880 --seq 1024
  sinkflex bench --what model --seq 1024 2048 4096 --out before.json
  sinkflex bench --what model --seq 1024 2048 4096 --compare before.json

Exit codes:
  0 measured   1 a cell failed   2 usage   3 not ready   130 stopped by you`;

/** `absolute` makes a path independent of the working directory. */
export function benchGrammar(command: Command, absolute: (path: string) => string): Command {
  const choices = (words: readonly string[]) => words.join(", ");
  return command
    .description("measure attention, log-probs or a training step: time, memory, error")
    .option("--what <subject>", `what to measure: ${choices(WHAT)}; attention unless given`)
    .option("--seq <tokens...>", "the lengths to measure at")
    .option("--impl <name...>", "the implementations to measure, listed below")
    .option("--device <name>", choices(DEVICES))
    .option("--dtype <name>", choices(DTYPES))
    .option("--heads <q/kv>", "attention: query heads and key heads, such as 64/8")
    .option("--head-dim <n>", "attention: size of a head")
    .option("--window <tokens>", "attention: sliding window")
    .option("--vocabulary <n>", "log-prob: size of the vocabulary")
    .option("--hidden <n>", "log-prob: size of a hidden state")
    .option("--head <kind>", `log-prob: ${choices(HEADS)}`)
    .option("--geometry <name>", `model: ${choices(GEOMETRIES)}`)
    .option("--layers <n>", "model: number of layers")
    .option("--train <how>", `model: ${choices(TRAIN)}`)
    .option("--repeat <n>", "timed repetitions of each cell")
    .option("--seconds-per-cell <s>", "longest time for a cell; a slower one is not tried")
    .option("--threads <n>", "threads on a CPU")
    .option("--out <file>", "write the figures, machine, versions and command as JSON", absolute)
    .option("--compare <file>", "show each figure beside the one in this record", absolute)
    .option("-y, --yes", "answer yes to every question")
    .addHelpText("after", ABOUT);
}
