/** The options of `sinkflex models`. */
import type { Command } from "commander";
import { type GlobalOptions, type ModelsOptions, modelWord } from "./options.js";

type Typed = Omit<ModelsOptions, keyof GlobalOptions>;

/** `absolute` makes a path independent of the working directory. */
export function modelsGrammar(
  models: Command,
  absolute: (path: string) => string,
  chosen: (typed: Typed, command: Command) => Promise<void>,
): void {
  models.description("list the language models that are here or can be had, or get one");
  models
    .command("list", { isDefault: true })
    .description("what can be had, what is here, where, its size and licence")
    .action((_: unknown, command: Command) => chosen({ yes: false }, command));
  models
    .command("get")
    .description("bring a model into the data directory as a transformers folder")
    .argument("<model>", "smollm2-135m, a GGUF file, or org/name of a hub")
    .option("-y, --yes", "answer yes to every question")
    .action((model: string, _: unknown, command: Command) => {
      return chosen({ model: modelWord(model, absolute), yes: command.opts().yes ?? false }, command);
    });
}
