/**
 * The options of `sinkflex eval`. What the words may be, request.ts judges: all problems at once. retyped.ts writes the
 * options again.
 */
import type { Command } from "commander";
import { modelWord } from "../options.js";
import { SUITES } from "./choices.js";
import { isPriceFile } from "./prices.js";

const ABOUT = `
Suites: ${SUITES.join(", ")}

Who plays the agent, one of:
  --agent <name>       a reference: gold, noop, random, expert
  --checkpoint <run>   a checkpoint of a run; run@step names one, without it the last
  --model <model>      smollm2-135m, a model folder, a GGUF file, or org/name of a hub
  --endpoint <url>     an OpenAI-compatible server, with --model-name
  --agent human        you: policy, tools and customer come to this terminal

Examples:
  sinkflex eval tau2-retail --agent expert
  sinkflex eval mini-shop --checkpoint latest --trials 4
  sinkflex eval tau2-retail --endpoint http://localhost:8000/v1 --model-name qwen3-8b --trials 4
  sinkflex eval tau2-retail --agent expert --user human --task 5
  sinkflex eval --resume runs/eval-tau2-retail-expert-20261130-101500
  sinkflex eval compare runs/eval-a runs/eval-b

Keys of servers are read from SINKFLEX_AGENT_API_KEY, SINKFLEX_USER_API_KEY,
SINKFLEX_JUDGE_API_KEY or OPENAI_API_KEY, and written nowhere.

Exit codes:
  0 measured   1 ended by the budget, or failed   2 usage   3 not ready
  4 no agent named, or a person is to play, and nobody to ask   130 stopped by you`;

/** `absolute` makes a path independent of the working directory. */
export function evalGrammar(command: Command, absolute: (path: string) => string): Command {
  return command
    .description("measure an agent on a suite: pass^k with intervals, beside doing nothing")
    .argument("[suite]", "the suite to play; not needed with --resume")
    .option("--agent <name>", "a scripted reference agent, or human")
    .option("--checkpoint <run[@step]>", "a checkpoint of a run: name, path or latest")
    .option("--model <model>", "a language model: a preset, a folder, a GGUF file, a hub id", (text) =>
      modelWord(text, absolute),
    )
    .option("--endpoint <url>", "an OpenAI-compatible server")
    .option("--model-name <name>", "the model to ask for at --endpoint")
    .option("--split <name>", "train, test, base ...; what is held out unless given")
    .option("--tasks <n>", "only the first n tasks of the split")
    .option("--task <id...>", "only these tasks")
    .option("--levels <n...>", "only tasks of these levels, where the suite has some; as trained for a checkpoint")
    .option("--trials <k>", "trials of each task; pass^1 to pass^k are reported")
    .option("--concurrency <n>", "trials that may wait at once")
    .option("--user <kind>", "scripted, llm or human: you play the customer")
    .option("--user-endpoint <url>", "the server of --user llm")
    .option("--user-model <name>", "the model of --user llm")
    .option("--score-mode <mode>", "official (with a judge where tasks need one) or offline")
    .option("--judge-endpoint <url>", "the server of the judge")
    .option("--judge-model <name>", "the model of the judge")
    .option("--temperature <t>", "0 is greedy, and the default")
    .option("--max-new-tokens <n>", "longest answer of the agent")
    .option("--max-turns <n>", "longest conversation, in turns of the agent")
    .option("--examples <n>", "example conversations put before each task, where the suite has some")
    .option("--trial-timeout <s>", "longest trial, in seconds")
    .option("--budget <limit>", "stop before more is used: 200000, 200k or 5M tokens, or $2.50")
    .option("--prices <in/out>", "dollars per million prompt and completion tokens, 0.5/1.5; or a file", (text) =>
      isPriceFile(text) ? absolute(text) : text,
    )
    .option("--seed <n>", "seed of users and sampling")
    .option("--out <folder>", "where the trials go; a folder of the same evaluation is continued", absolute)
    .option("--resume <folder>", "continue an evaluation as it was begun", absolute)
    .option("--strict-arguments", 'refuse arguments that need repair, such as "100" for 100')
    .option("--retry-errors", "play trials again that a fault ended")
    .option("-y, --yes", "answer yes to every question")
    .addHelpText("after", ABOUT);
}
