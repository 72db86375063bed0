/** `sinkflex train`: a config, or a run to go on with, becomes one attempt that is watched to its end. */
import { join } from "node:path";
import { checkConfig, loadConfig } from "../config/load.js";
import { UserError } from "../errors.js";
import type { TrainOptions } from "../options.js";
import { type Ended, runAttempt } from "../process/attempt.js";
import { lastWords } from "../process/ending.js";
import { commandFor, forecast, modelFolder, wantedByConfig } from "../process/models-find.js";
import { reportTo } from "../process/progress.js";
import { resolvePython } from "../process/python.js";
import { begin, type Continuation, continuation, type NewRun, type RunConfig, sha256 } from "../run/begin.js";
import { defaultRoot, FILES, type RunFile, runName, runOptions, shownPath } from "../run/dir.js";
import { runPicture, screenFor } from "../ui/screens.js";
import { summaryRows } from "../ui/summary.js";

const HINT = "Ctrl-C: finish the step, save a checkpoint and stop";

export async function run(options: TrainOptions): Promise<number> {
  const root = options.runs ?? defaultRoot();
  const people = options.json ? process.stderr : process.stdout;
  const { plan, echo } = options.resume === undefined ? await fresh(options, root) : await again(options, root);
  if (options.dryRun) {
    const name = plan.kind === "new" ? join(root, runName(plan.config.name, new Date())) : plan.dir;
    const config = plan.kind === "new" ? plan.config : plan.file.config;
    const model = plan.kind === "new" ? await forecast(wantedByConfig(plan.config.model)) : plan.file.model_folder;
    const rows = [
      ...echo,
      `run    ${name}`,
      ...(model ? [`model  ${model}`] : []),
      "",
      JSON.stringify(config, null, 2),
      "",
      "Nothing was started (--dry-run).",
    ];
    people.write(`${rows.join("\n")}\n`);
    return 0;
  }
  const python = await resolvePython({ ...options, python: options.python });
  if (plan.kind === "new") plan.modelFolder = await folderOf(plan.config, python.path);
  const begun = begin(plan, new Date());
  if (!options.quiet) people.write(echo.map((row) => `${row}\n`).join(""));
  const screen = screenFor(process.stdout, process.stderr, options, process.env, HINT, runPicture);
  let ended: Ended | undefined;
  try {
    ended = await runAttempt(begun, python.path, screen);
  } finally {
    screen.close(ended?.state ?? begun.state);
  }
  const { state, exitCode, failure } = ended;

  const { dir, file } = begun;
  const place = {
    run: file.run,
    dir: shownPath(dir),
    options: runOptions(dir),
    ...(failure && { status: "failed" }),
  };
  const width = people.isTTY ? Math.min(people.columns ?? 80, 100) : 100;
  const rows = summaryRows(state, place, { width, color: options.color && !options.json });
  people.write(`\n${(options.quiet ? rows.slice(0, 1) : rows).join("\n")}\n`);
  if (failure === null) return exitCode;
  process.stderr.write(lastWords(failure, join(dir, FILES.log)));
  throw failure;
}

/** The model's folder; one that is not here is brought first. */
async function folderOf({ model }: RunConfig, python: string): Promise<string | null> {
  const wanted = wantedByConfig(model);
  if (wanted.kind === "built") return null;
  const report = await reportTo(process.stderr);
  const found = await modelFolder(wanted, { python, report, typed: commandFor(model) });
  return found?.folder ?? null;
}

interface Planned {
  plan: NewRun | Continuation;
  echo: string[];
}

async function fresh(options: TrainOptions, root: string): Promise<Planned> {
  const { config, echo, document } = await loadConfig(options.config as string, options.set);
  return {
    plan: { kind: "new", root, config, configFile: document.file, source: document.bytes, modelFolder: null },
    echo,
  };
}

/** Values that may change between attempts; anything else would make the curve the curve of two different runs. */
const MAY_CHANGE = /^(train\.steps|eval|checkpoint)\b/;

async function again(options: TrainOptions, root: string): Promise<Planned> {
  const given = options.config === undefined ? null : (await loadConfig(options.config)).document.bytes;
  let echo: string[] = [];
  const plan = continuation(root, options.resume as string, (file: RunFile) => {
    if (given !== null && sha256(given) !== file.config_sha256)
      throw otherConfig(`${options.config} is not the config that ${file.run} was started with`, file);
    const forbidden = options.set.find((set) => !MAY_CHANGE.test(set));
    if (forbidden !== undefined) throw otherConfig(`\`--set ${forbidden}\` would change what ${file.run} trains`, file);
    const checked = checkConfig(JSON.stringify(file.config), file.config_file, options.set, true);
    echo = [`config ${file.config_file} as recorded in ${file.run}`, ...checked.echo];
    return checked.config as RunConfig;
  });
  echo.push(`resume from step ${plan.file.resume?.step}, attempt ${plan.file.attempt}`);
  return { plan, echo };
}

function otherConfig(what: string, file: RunFile): UserError {
  return new UserError({
    code: "SF-RUN-OTHER-CONFIG",
    what: `${what}.`,
    why: "A resume goes on with the recorded config; only train.steps, eval and checkpoint may be changed with --set.",
    fix: `Go on with \`sinkflex train --resume ${file.run}\`, or start a new run without --resume.`,
  });
}
