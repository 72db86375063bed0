/** The options of `sinkflex export`. */
import type { Command } from "commander";
import type { ExportOptions, GlobalOptions } from "./options.js";

type Typed = Omit<ExportOptions, keyof GlobalOptions>;

/** `absolute` makes a path independent of the working directory. */
export function exportGrammar(command: Command, absolute: (path: string) => string): Command {
  return command
    .description("write a run's policy as a folder that transformers, peft and vLLM load")
    .argument("<run>", "name, path or latest; `@STEP` behind it chooses a checkpoint, the last one otherwise")
    .argument("<folder>", "the folder to write; it must not hold anything", absolute)
    .option("--merge", "of a LoRA run: add the adapter to its model and write the whole model")
    .option("-y, --yes", "answer yes to every question");
}

export function exportTyped(run: string, folder: string, command: Command): Typed {
  const { merge = false, yes = false } = command.opts();
  return { run, folder, merge, yes };
}
