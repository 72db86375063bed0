/** Turns what commander refused into a user error that names the word which was probably meant. */
import type { Command, CommanderError, Option } from "commander";
import { WHAT } from "./bench/choices.js";
import { type ErrorCode, nearest, UserError } from "./errors.js";

export function usageError(error: CommanderError, program: Command, argv: readonly string[]): UserError {
  const { command, words } = walk(program, argv);
  const help = `\`${fullName(command)} --help\` lists what can be typed.`;
  const problem = (code: ErrorCode, what: string, hint = ""): UserError =>
    new UserError({ code, what, fix: hint ? `${hint} ${help}` : help });

  const quoted = /'([^']*)'/.exec(error.message)?.[1] ?? "";
  const what = error.message.replace(/^error: /, "").replaceAll(/'([^']*)'/g, "`$1`");
  switch (error.code) {
    case "commander.unknownOption":
      return problem("SF-USAGE-OPTION", what, didYouMean(nearest(quoted, optionsOf(command).map(longName))));
    case "commander.unknownCommand":
      return problem("SF-USAGE-COMMAND", what, commandHint(quoted, command));
    case "commander.excessArguments": {
      const word = words.at(-1) ?? "";
      if (command.commands.length > 0) {
        return problem("SF-USAGE-COMMAND", `unknown command \`${words[0]}\``, commandHint(words[0] ?? "", command));
      }
      const hint = argumentHint(word, command);
      return problem("SF-USAGE-ARGUMENT", `\`${word}\` is one argument too many`, hint);
    }
    case "commander.optionMissingArgument":
      return problem("SF-USAGE-ARGUMENT", `\`${quoted}\` was given no value`);
    default:
      return problem("SF-USAGE-ARGUMENT", what);
  }
}

/** The command that argv names, and the words after it that are neither options nor their values. */
function walk(program: Command, argv: readonly string[]): { command: Command; words: string[] } {
  let command = program;
  const words: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i] as string;
    if (word.startsWith("-")) {
      const option = optionsOf(command).find(({ long, short }) => [long, short].includes(word));
      if (option?.required) i++;
      while (option?.variadic && i + 1 < argv.length && !argv[i + 1]?.startsWith("-")) i++;
      continue;
    }
    const next = words.length === 0 ? command.commands.find((sub) => sub.name() === word) : undefined;
    if (next) command = next;
    else words.push(word);
  }
  return { command, words };
}

function optionsOf(command: Command): readonly Option[] {
  return command.parent ? [...command.options, ...optionsOf(command.parent)] : command.options;
}

function longName(option: Option): string {
  return option.long ?? option.flags;
}

function fullName(command: Command): string {
  return command.parent ? `${fullName(command.parent)} ${command.name()}` : command.name();
}

function argumentHint(word: string, command: Command): string {
  if (command.name() === "bench") {
    if (/^\d+$/.test(word)) return `Lengths follow --seq: \`--seq ${word}\`.`;
    return (WHAT as string[]).includes(word) ? `To choose what is measured: \`--what ${word}\`.` : "";
  }
  return word.includes("=") ? `To override a value write --set once for each: \`--set ${word}\`.` : "";
}

function commandHint(word: string, command: Command): string {
  if (/\.ya?ml$/.test(word)) return `To train with a config file: \`sinkflex train ${word}\`.`;
  const names = command.commands.map((sub) => sub.name());
  return didYouMean(nearest(word, names)) || `The commands are ${names.join(", ")}.`;
}

function didYouMean(word: string | undefined): string {
  return word ? `Did you mean \`${word}\`?` : "";
}
