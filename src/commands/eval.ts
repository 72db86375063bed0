/** `sinkflex eval`: an agent plays a suite; trials go to a folder, their report to the screen. */
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { readPrices } from "../config/prices.js";
import { EXIT, UserError } from "../errors.js";
import { agentOf, settingsOf } from "../eval/agents.js";
import { nobody, personOf } from "../eval/person.js";
import { isPriceFile, type Prices } from "../eval/prices.js";
import { type Asked, type EvalRequest, evalRequest } from "../eval/request.js";
import type { EvalOptions } from "../options.js";
import { lastWords } from "../process/ending.js";
import { type Played, playEvaluation } from "../process/eval.js";
import { agentModel } from "../process/models-find.js";
import { resolvePython } from "../process/python.js";
import { cannotWrite, defaultRoot, freeFolder, readJson, runName, shownPath, writeJson } from "../run/dir.js";
import { Conversation } from "../ui/eval/conversation.js";
import { evalReportRows } from "../ui/eval/report.js";
import { evalPicture } from "../ui/eval/view.js";
import { screenFor } from "../ui/screens.js";

const HINT = "Ctrl-C: stop after this turn; finished trials are kept";
const ASKED = ".asked.json"; // the worker keeps it as REQUEST once the folder has turned out to be its own
const REQUEST = "request.json";
const WIDEST = 120;

export async function run(options: EvalOptions): Promise<number> {
  const root = options.runs ?? defaultRoot();
  const listed = options.prices !== undefined && isPriceFile(options.prices) ? await readPrices(options.prices) : null;
  const { resume } = options;
  const request = resume === undefined ? await fresh(options, root, listed) : again(options, resume, listed);
  const { stdin, stdout } = process;
  const person = personOf(
    request,
    nobody(options, { "standard input": stdin, "standard output": stdout }, process.env),
  );
  const python = await resolvePython({ ...options, python: options.python });
  request.agent = await agentModel(request.agent, python.path);
  try {
    mkdirSync(request.results, { recursive: true });
  } catch (error) {
    throw cannotWrite(request.results, error);
  }
  writeJson(join(request.results, ASKED), request);

  const conversation = person === null ? null : new Conversation(stdin, stdout, options);
  const screen = conversation ?? screenFor(stdout, process.stderr, options, process.env, HINT, evalPicture);
  const folder = shownPath(request.results);
  const goOn = `\`sinkflex eval --resume ${folder}\` goes on.`;
  let played: Played | undefined;
  try {
    const where = { dir: request.results, file: ASKED, again: goOn };
    played = await playEvaluation(where, python.path, screen, (voice) => conversation?.listen(voice));
  } finally {
    screen.close(played?.state ?? evalPicture.initial);
  }
  const { state, exitCode, failure, log } = played;
  const people = options.json ? process.stderr : process.stdout;
  if (state.report !== null) {
    const width = people.isTTY ? Math.min(people.columns ?? 80, WIDEST) : WIDEST;
    const look = { width, color: options.color && !options.json, quiet: options.quiet, folder };
    const rows = evalReportRows(state.report, look);
    if (!state.report.complete && !options.quiet) rows.push("", goOn);
    people.write(`${options.quiet ? "" : "\n"}${rows.join("\n")}\n`);
    if (options.json) process.stdout.write(`${JSON.stringify(state.report)}\n`);
  }
  if (failure === null) return exitCode;
  process.stderr.write(lastWords(failure, log));
  // A refusal before the first trial leaves nothing to go on with.
  const empty = state.done === 0 && (exitCode === EXIT.usage || exitCode === EXIT.environment);
  if (empty && options.out === undefined && options.resume === undefined)
    rmSync(request.results, { recursive: true, force: true });
  throw failure;
}

async function fresh(options: EvalOptions, root: string, listed: Prices | null): Promise<EvalRequest> {
  const { asked, agent: named } = evalRequest(options, listed);
  const agent = await agentOf(named, asked, options, root);
  const label = agent.kind === "scripted" ? agent.name : agent.kind;
  const results = options.out ?? freeFolder(join(root, runName(`eval-${asked.suite}-${label}`, new Date())));
  const settings = agent.kind === "checkpoint" ? settingsOf(agent, asked.suite) : {};
  const typed = Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== null)) as unknown as Asked;
  return { ...asked, system_prompt: null, ...settings, ...typed, agent, results };
}

/** The same request once more; only how it is played may be typed anew. */
function again(options: EvalOptions, folder: string, listed: Prices | null): EvalRequest {
  const before = readJson<EvalRequest>(join(folder, REQUEST));
  if (before?.verb !== "eval") {
    throw new UserError({
      code: "SF-EVAL-NO-RESULTS",
      what: `${shownPath(folder)} is no evaluation that can be continued: it has no ${REQUEST}.`,
      fix: "Name the results folder that an earlier `sinkflex eval` reported.",
    });
  }
  const { asked } = evalRequest({ ...options, suite: before.suite }, listed);
  const { concurrency, budget, prices, retry_errors } = asked;
  return {
    ...before,
    results: folder,
    retry_errors,
    concurrency: concurrency ?? before.concurrency,
    budget, // a budget holds for one attempt of a person who typed it
    prices: prices ?? before.prices,
  };
}
