/**
 * The grammar of the command line and nothing else: what may be typed, which command it means, and how an error becomes
 * an exit code. Only commander is loaded before a command is chosen, because `--help` has to be instant.
 */
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { resolve } from "node:path";
import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { benchGrammar } from "./bench/grammar.js";
import { evalGrammar } from "./eval/grammar.js";
import { exportGrammar, exportTyped } from "./export-grammar.js";
import { modelsGrammar } from "./models-grammar.js";
import type {
  BenchOptions,
  DoctorOptions,
  EvalCompareOptions,
  EvalOptions,
  GlobalOptions,
  RunsOptions,
  SchemaOptions,
  TrainOptions,
} from "./options.js";
import { wantsColor } from "./options.js";

const EXAMPLES = `
Examples:
  sinkflex train configs/quickstart.yaml
  sinkflex train my.yaml --set optim.lr=5e-4 --set seed=2
  sinkflex train --resume latest
  sinkflex runs show latest
  sinkflex bench --seq 4096 8192
  sinkflex eval tau2-retail --agent expert
  sinkflex models get smollm2-135m

Exit codes:
  0 done   1 run failed   2 usage or config   3 not ready   4 input needed
  70 bug   130 stopped by you   143 stopped by SIGTERM`;

/** How writing fails when the reader went away: a pipe, or a window that was closed. */
const GONE: ReadonlySet<string> = new Set(["EPIPE", "EIO"]);

/** Parses, runs the chosen command and returns the exit code. Never throws and never ends the process. */
export async function main(argv: readonly string[]): Promise<number> {
  let exitCode = 0;
  const program = grammar(!argv.includes("--no-color"), async (running) => {
    exitCode = await running;
  });
  const fail = async (error: unknown) => process.exit(await report(error, program, argv));
  process.once("uncaughtException", fail);
  // A reader that went away (`sinkflex runs list | head`, or a window that was closed) is no error; what is under way
  // goes on, and stops by its own rules.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => GONE.has(error.code ?? "") || fail(error));
  process.stderr.on("error", () => {}); // there is nobody left to tell
  try {
    await program.parseAsync(argv, { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return 0;
    return report(error, program, argv);
  }
}

function grammar(color: boolean, settle: (running: Promise<number>) => Promise<void>): Command {
  const program = new Command("sinkflex")
    .description("Train language-model agents with reinforcement learning on long, tool-using conversations.")
    .version(version(), "-V, --version", "print the version")
    .helpOption("-h, --help", "print help")
    .helpCommand("help [command]", "print the help of a command")
    .configureHelp({ showGlobalOptions: true, minWidthToWrap: 20 })
    .configureOutput({
      outputError: () => {}, // report() prints errors, in one form for all
      getOutHasColors: () => wantsColor(process.stdout, color, process.env),
      getErrHasColors: () => wantsColor(process.stderr, color, process.env),
    })
    .showSuggestionAfterError(false)
    .allowExcessArguments(false)
    .exitOverride()
    .addHelpText("after", EXAMPLES);
  program
    .option("--json", "write the events to stdout as JSON lines, and text to stderr")
    .option("--no-color", "write without colour")
    .addOption(new Option("-v, --verbose", "say more").conflicts("quiet"))
    .option("-q, --quiet", "say only how it ended")
    .option("--no-input", "never ask a question; take the answer no")
    .option("--python <path>", "use this Python instead of the managed environment", pythonPath)
    .option("--runs <dir>", "keep the runs in this directory instead of ./runs", absolute);

  program
    .command("train")
    .description("train a policy as a config file says, or go on with a run")
    .argument("[config]", "YAML file; not needed with --resume")
    .option("--set <key=value>", "override one value, such as optim.lr=5e-4; repeatable", collect)
    .option("--resume <run>", "go on from the last checkpoint of a run (name, path or latest)")
    .option("--dry-run", "check the config, say what would run, and stop")
    .option("-y, --yes", "answer yes to every question")
    .action((config: string | undefined, _: unknown, command: Command) => {
      const { set = [], resume, dryRun = false, yes = false } = command.opts();
      if (config === undefined && resume === undefined)
        command.error("a config file is needed, or --resume <run>", MISSING);
      const options: TrainOptions = { ...globals(command), ...given({ config, resume }), set, dryRun, yes };
      return settle(import("./commands/train.js").then(({ run }) => run(options)));
    });

  benchGrammar(program.command("bench"), absolute).action((_: unknown, command: Command) => {
    const { yes = false, ...typed } = command.opts();
    const options: BenchOptions = { ...globals(command), ...typed, yes };
    return settle(import("./commands/bench.js").then(({ run }) => run(options)));
  });

  const evaluation = evalGrammar(program.command("eval"), absolute).action(
    (suite: string | undefined, _: unknown, command: Command) => {
      const { yes = false, ...typed } = command.opts();
      const options: EvalOptions = { ...globals(command), ...given({ suite }), ...typed, yes };
      return settle(import("./commands/eval.js").then(({ run }) => run(options)));
    },
  );
  evaluation
    .command("compare")
    .description("the difference between two evaluations, paired by task, with an interval")
    .argument("<base>", "a results folder")
    .argument("<candidate>", "a results folder")
    .action((base: string, candidate: string, _: unknown, command: Command) => {
      const options: EvalCompareOptions = { ...globals(command), base, candidate, yes: false };
      return settle(import("./commands/eval-compare.js").then(({ run }) => run(options)));
    });

  const runs = program.command("runs").description("list, show or follow runs");
  const runsAction = (options: Omit<RunsOptions, keyof GlobalOptions>, command: Command) =>
    settle(import("./commands/runs.js").then(({ run }) => run({ ...globals(command), ...options })));
  runs
    .command("list", { isDefault: true })
    .description("list the runs, newest first")
    .action((_: unknown, command: Command) => runsAction({ action: "list" }, command));
  runs
    .command("show")
    .description("show a run as its live view last stood, one of its episodes, or a trial of an evaluation")
    .argument("<run>", "name, path or latest; with --task the folder of an evaluation")
    .option("--episode <id>", "print this episode as a conversation")
    .option("--step <n>", "the training step to look at", wholeNumber)
    .option("--task <id>", "of an evaluation's folder: print this task's trial as a conversation")
    .option("--trial <k>", "which trial of the task; the first is 1", wholeNumber)
    .action((run: string, _: unknown, command: Command) => {
      const { episode, step, task, trial } = command.opts();
      return runsAction({ action: "show", run, ...given({ episode, step, task, trial }) }, command);
    });
  runs
    .command("tail")
    .description("follow a run that is under way")
    .argument("<run>", "name, path or latest")
    .action((run: string, _: unknown, command: Command) => runsAction({ action: "tail", run }, command));

  program
    .command("doctor")
    .description("check Node, Python, torch, GPU and disk, and say how to repair what is missing")
    .option("--fix", "build the managed Python environment")
    .action((_: unknown, command: Command) => {
      const options: DoctorOptions = { ...globals(command), fix: command.opts().fix ?? false };
      return settle(import("./commands/doctor.js").then(({ run }) => run(options)));
    });

  modelsGrammar(program.command("models"), absolute, (typed, command) =>
    settle(import("./commands/models.js").then(({ run }) => run({ ...globals(command), ...typed }))),
  );

  exportGrammar(program.command("export"), absolute).action((run: string, to: string, _: unknown, command: Command) =>
    settle(
      import("./commands/export.js").then((it) => it.run({ ...globals(command), ...exportTyped(run, to, command) })),
    ),
  );

  program
    .command("schema")
    .description("print the JSON schema of config files")
    .option("--markdown", "print the table of keys instead")
    .action((_: unknown, command: Command) => {
      const options: SchemaOptions = { ...globals(command), markdown: command.opts().markdown ?? false };
      return settle(import("./commands/schema.js").then(({ run }) => run(options)));
    });
  return program;
}

const MISSING = { code: "commander.missingArgument", exitCode: 2 };

function globals(command: Command): GlobalOptions {
  const { json = false, color, verbose = false, quiet = false, input, python, runs } = command.optsWithGlobals();
  const onTerminal = wantsColor(process.stdout, color, process.env);
  return { json, color: onTerminal, verbose, quiet, input, ...given({ python, runs }) };
}

/** Prints an error to stderr and says which exit code it means. */
async function report(error: unknown, program: Command, argv: readonly string[]): Promise<number> {
  const { EXIT, UserError, renderBug, renderError, renderErrorLines } = await import("./errors.js");
  const color = wantsColor(process.stderr, !argv.includes("--no-color"), process.env);
  const look = { color, columns: Math.min(process.stderr.columns ?? 80, 100) };
  if (error instanceof CommanderError && error.code === "commander.help") return EXIT.usage; // the help is printed
  const known = await asUserError(error, program, argv);
  if (!(known instanceof UserError)) {
    process.stderr.write(renderBug(error, look));
    return EXIT.bug;
  }
  process.stderr.write(argv.includes("--json") ? renderErrorLines(known) : renderError(known, look));
  return known.exitCode;
}

async function asUserError(error: unknown, program: Command, argv: readonly string[]): Promise<unknown> {
  if (error instanceof CommanderError) return (await import("./usage.js")).usageError(error, program, argv);
  const { code, syscall, message } = (error ?? {}) as NodeJS.ErrnoException;
  if (syscall !== "write" || code !== "ENOSPC") return error;
  const { UserError } = await import("./errors.js");
  const what = `the output could not be written: ${message}`;
  return new UserError({ code: "SF-OUTPUT-DISK-FULL", what, fix: "Free some space, then type the command again." });
}

function version(): string {
  return JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version;
}

/** Only the values that were given: an absent option is an absent key. */
function given<T extends Record<string, unknown>>(values: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}

function collect(value: string, earlier: string[] = []): string[] {
  return [...earlier, value];
}

function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("It must be a whole number, 0 or more.");
  return Number(text);
}

/** The shell expands `~` in `--runs ~/x` but not in `--runs=~/x`. */
function expandHome(path: string): string {
  return /^~(?=\/|$)/.test(path) ? homedir() + path.slice(1) : path;
}

function absolute(path: string): string {
  return resolve(expandHome(path));
}

/** A bare name is left to be looked up in PATH. */
function pythonPath(path: string): string {
  return path.includes("/") ? absolute(path) : path;
}
