/** `sinkflex runs`: what has been trained, how a run stands, how an episode went, and a run as it goes on. */
import { join } from "node:path";
import { findTrial, resultsFolder } from "../eval/trials.js";
import type { RunsOptions } from "../options.js";
import { tail } from "../process/tail.js";
import { decodeLine, LineSplitter } from "../protocol/decode.js";
import { defaultRoot, FILES, findRun, readJson, readRun, runOptions, shownPath } from "../run/dir.js";
import { episodesOf, findEpisode } from "../run/episodes.js";
import { runEntries, statusOf } from "../run/list.js";
import { holderOf } from "../run/lock.js";
import { replay } from "../run/replay.js";
import { initialState, reduce, type State } from "../run/state.js";
import { episodeRows, episodeTable, type EpisodeLook as Look } from "../ui/episode.js";
import { trialRows } from "../ui/eval/transcript.js";
import { runTable } from "../ui/runs.js";
import { runPicture, screenFor } from "../ui/screens.js";
import { summaryRows } from "../ui/summary.js";
import { view } from "../ui/view.js";

const WIDEST = 120;

export async function run(options: RunsOptions): Promise<number> {
  const root = options.runs ?? defaultRoot();
  const look = { width: Math.min(process.stdout.columns ?? 100, WIDEST), color: options.color };
  if (options.action === "list") return list(options, root, look);
  if (options.task !== undefined) return trial(options, resultsFolder(root, options.run as string), options.task, look);
  const dir = findRun(root, options.run as string);
  if (options.action === "tail") return follow(options, dir);
  if (options.episode !== undefined) return episode(options, dir, options.episode, look);
  if (options.step !== undefined) return step(options, dir, options.step, look);
  return show(options, dir, look);
}

function print(rows: readonly string[]): number {
  process.stdout.write(rows.map((row) => `${row}\n`).join(""));
  return 0;
}

function list({ json }: RunsOptions, root: string, look: Look): number {
  const entries = runEntries(root, new Date());
  if (json) return print([JSON.stringify(entries)]);
  if (entries.length === 0)
    return print([`There are no runs in ${root} yet. \`sinkflex train configs/quickstart.yaml\` starts one.`]);
  return print(runTable(entries, look));
}

function show({ json }: RunsOptions, dir: string, look: Look): number {
  const file = readRun(dir);
  const summary = readJson<Record<string, unknown>>(join(dir, FILES.summary));
  const status = statusOf(dir, summary);
  if (json) return print([JSON.stringify({ ...summary, run: file.run, dir, status, attempt: file.attempt })]);
  const state: State = { ...replay(dir), run: file.run };
  const place = { run: file.run, dir: shownPath(dir), options: runOptions(dir), status };
  const error = state.end?.error;
  const why = error ? ["", `${error.what}${error.why ? ` ${error.why}` : ""}`] : [];
  const picture = view(state, { ...look, interrupted: status === "interrupted" });
  return print([...picture, "", ...summaryRows(state, place, look), ...why]);
}

function episode({ json, step }: RunsOptions, dir: string, id: string, look: Look): number {
  const found = findEpisode(dir, readRun(dir).run, id, step);
  return print(json ? [JSON.stringify(found)] : episodeRows(found, look));
}

function trial({ json, trial = 1 }: RunsOptions, folder: string, task: string, look: Look): number {
  const found = findTrial(folder, task, trial);
  return print(json ? [JSON.stringify(found)] : trialRows(found, look));
}

function step({ json }: RunsOptions, dir: string, number: number, look: Look): number {
  const episodes = [...episodesOf(dir, number)];
  if (json) return print(episodes.map((one) => JSON.stringify(one)));
  const { run } = readRun(dir);
  if (episodes.length === 0) return print([`No episodes of step ${number} are on disk in ${run}.`]);
  return print([
    ...episodeTable(episodes, look),
    "",
    `sinkflex runs show ${run} --episode ${episodes[0]?.id}${runOptions(dir)}`,
  ]);
}

/** Everything so far, then everything new, until the run is over. Ctrl-C ends the watching, not the run. */
async function follow(options: RunsOptions, dir: string): Promise<number> {
  const leave = new AbortController();
  const onInterrupt = () => leave.abort();
  process.on("SIGINT", onInterrupt);
  const screen = screenFor(
    process.stdout,
    process.stderr,
    options,
    process.env,
    "Ctrl-C: stop watching; the run goes on",
    runPicture,
  );
  let state = initialState;
  let splitter = new LineSplitter();
  const take = async (lines: readonly Buffer[]) => {
    if (lines.length > 0) await screen.lines(Buffer.from(lines.map((line) => `${line}\n`).join("")));
    for (const line of lines) {
      const decoded = decodeLine(line);
      if (decoded.kind !== "event") continue;
      state = reduce(state, decoded.event);
      screen.event(state, decoded.event);
    }
  };
  try {
    const over = () => holderOf(dir) === null;
    for await (const { bytes, fresh } of tail(join(dir, FILES.events), { over, signal: leave.signal })) {
      if (fresh) [splitter, state] = [new LineSplitter(), initialState];
      await take(splitter.push(bytes));
    }
    if (!leave.signal.aborted) await take(splitter.end());
  } finally {
    process.off("SIGINT", onInterrupt);
    screen.close(state);
  }
  return leave.signal.aborted ? 130 : 0;
}
