/**
 * From the options of `sinkflex eval` to the request that tells the worker what to measure. Pure. All that can be
 * refused without Python is refused here, all problems at once; null is left to the worker to choose.
 */
import { nearest, type Problem, UserError } from "../errors.js";
import type { EvalOptions } from "../options.js";
import { AGENTS, SCORE_MODES, SUITES, USERS } from "./choices.js";
import { flatPrice, isPriceFile, type Prices } from "./prices.js";
import { retyped } from "./retyped.js";

export type AgentRequest =
  | { kind: "scripted"; name: string }
  | { kind: "human" }
  | { kind: "model"; path: string; name?: string }
  | { kind: "checkpoint"; run: string; run_dir: string; checkpoint: string; step: number }
  | { kind: "endpoint"; url: string; model: string };

export interface EvalRequest {
  v: 1;
  verb: "eval";
  suite: string;
  split: string | null;
  task_ids: string[] | null;
  tasks: number | null;
  levels: number[] | null;
  trials: number;
  seed: number;
  agent: AgentRequest;
  user: { kind: string; url: string | null; model: string | null };
  judge: { url: string; model: string } | null;
  score_mode: string | null;
  temperature: number | null;
  max_new_tokens: number | null;
  max_turns: number | null;
  /** Example conversations before each task. */
  examples: number | null;
  /** Of a checkpoint, as it was trained; absent: as the worker chooses. */
  max_errors?: number | null;
  max_total_tokens?: number | null;
  trial_timeout_s: number | null;
  concurrency: number | null;
  budget: { tokens: number } | { money: number } | null;
  prices: Prices | null;
  /** Of a checkpoint: whether it was trained with the suite's policy text and tool schemas in its prompt. */
  system_prompt: "full" | "none" | null;
  results: string;
  retry_errors: boolean;
  strict_arguments: boolean;
  command: string;
}

/** The request but for who plays the agent and where the trials go. */
export type Asked = Omit<EvalRequest, "agent" | "results" | "system_prompt">;

/** What was named as the agent; a checkpoint still has to be found. */
export type NamedAgent =
  | Exclude<AgentRequest, { kind: "checkpoint" }>
  | { kind: "checkpoint"; name: string; step: number | null }
  | null;

type Typed = Partial<EvalOptions>;

const MOST = 1_000_000;

/** `listed` are the prices of a file. Throws a UserError that holds every problem. */
export function evalRequest(typed: Typed, listed: Prices | null = null): { asked: Asked; agent: NamedAgent } {
  const problems: Problem[] = [];
  const refuse = (what: string, fix?: string) => {
    problems.push({ code: "SF-USAGE-ARGUMENT", what, fix });
    return null;
  };
  const count = (name: keyof Typed & string, option: string, least = 1): number | null => {
    const value = typed[name];
    if (typeof value !== "string") return null;
    const found = /^\d+$/.test(value) ? Number(value) : -1;
    if (found >= least && found <= MOST) return found;
    return refuse(`\`${option} ${value}\` is not a number`, `Give a whole number from ${least} to ${MOST}.`);
  };
  const suite = typed.suite ?? "";
  if (!(SUITES as readonly string[]).includes(suite)) {
    const fix = `${suggestion(suite, SUITES)}The suites are ${SUITES.join(", ")}.`;
    refuse(suite === "" ? "no suite was named" : `there is no suite \`${suite}\``, fix);
  }
  if (typed.tasks !== undefined && typed.task !== undefined) {
    refuse("--tasks and --task were both given", "Name the tasks, or give their number.");
  }
  const asked: Asked = {
    v: 1,
    verb: "eval",
    suite,
    split: typed.split ?? null,
    task_ids: typed.task ?? null,
    tasks: count("tasks", "--tasks"),
    levels: levels(typed, refuse),
    trials: count("trials", "--trials") ?? 1,
    seed: count("seed", "--seed", 0) ?? 0,
    user: user(typed, refuse),
    judge: judge(typed, refuse),
    score_mode: scoreMode(typed.scoreMode, refuse),
    temperature: real(typed.temperature, "--temperature", true, refuse),
    max_new_tokens: count("maxNewTokens", "--max-new-tokens"),
    max_turns: count("maxTurns", "--max-turns"),
    examples: count("examples", "--examples", 0),
    trial_timeout_s: real(typed.trialTimeout, "--trial-timeout", false, refuse),
    concurrency: count("concurrency", "--concurrency"),
    budget: budget(typed.budget, refuse),
    prices: listed ?? prices(typed.prices, refuse),
    retry_errors: typed.retryErrors ?? false,
    strict_arguments: typed.strictArguments ?? false,
    command: retyped(typed),
  };
  const agent = namedAgent(typed, refuse);
  if (asked.budget !== null && "money" in asked.budget && asked.prices === null && agent?.kind === "endpoint") {
    refuse("a budget in money needs prices", "Add --prices IN/OUT, dollars per million tokens, or a file with them.");
  }
  if (problems.length > 0) throw new UserError(problems, { left: "Nothing was played." });
  return { asked, agent };
}

type Refuse = (what: string, fix?: string) => null;

function levels({ levels, task }: Typed, refuse: Refuse): number[] | null {
  if (levels === undefined) return null;
  if (task !== undefined) return refuse("--levels and --task were both given", "Name the tasks, or their levels.");
  const wrong = levels.find((level) => !/^\d$/.test(level));
  if (wrong === undefined) return levels.map(Number);
  return refuse(`\`--levels ${wrong}\` is no level`, "Give whole numbers with blanks between them: --levels 0 1.");
}

function namedAgent(typed: Typed, refuse: Refuse): NamedAgent {
  const named = (["agent", "checkpoint", "model", "endpoint"] as const).filter((name) => typed[name] !== undefined);
  if (named.length > 1) {
    return refuse(`${named.map((name) => `--${name}`).join(" and ")} were given`, "Name one agent.");
  }
  if (typed.modelName !== undefined && typed.endpoint === undefined) {
    return refuse("--model-name belongs to --endpoint", "Add the server's address, such as --endpoint http://host/v1.");
  }
  if (typed.agent !== undefined) {
    const name = AGENTS.find((one) => one === typed.agent);
    if (name !== undefined) return name === "human" ? { kind: "human" } : { kind: "scripted", name };
    const hint = `${suggestion(typed.agent, AGENTS)}It can be ${AGENTS.join(", ")}.`;
    return refuse(`there is no agent \`${typed.agent}\``, hint);
  }
  if (typed.model !== undefined) return { kind: "model", path: typed.model };
  if (typed.checkpoint !== undefined) {
    const [, name = "", step] = /^(.*?)(?:@(\d+))?$/.exec(typed.checkpoint) ?? [];
    return { kind: "checkpoint", name, step: step === undefined ? null : Number(step) };
  }
  if (typed.endpoint === undefined) return null;
  if (typed.modelName === undefined) return refuse("--endpoint needs --model-name", "Name the model to ask for.");
  return { kind: "endpoint", url: url(typed.endpoint, "--endpoint", refuse) ?? "", model: typed.modelName };
}

function user(typed: Typed, refuse: Refuse): Asked["user"] {
  const kind = typed.user ?? "scripted";
  if (!(USERS as readonly string[]).includes(kind)) {
    refuse(`\`--user ${kind}\` is unknown`, `${suggestion(kind, USERS)}It can be ${USERS.join(", ")}.`);
  }
  const { userEndpoint, userModel } = typed;
  if (kind !== "llm") {
    if (userEndpoint !== undefined || userModel !== undefined) {
      refuse("--user-endpoint and --user-model belong to --user llm", "Add --user llm, or leave them out.");
    }
    return { kind, url: null, model: null };
  }
  if (userEndpoint === undefined || userModel === undefined) {
    refuse("--user llm needs --user-endpoint and --user-model", "Name the server and the model that play the user.");
    return { kind, url: null, model: null };
  }
  return { kind, url: url(userEndpoint, "--user-endpoint", refuse), model: userModel };
}

function judge({ judgeEndpoint, judgeModel }: Typed, refuse: Refuse): Asked["judge"] {
  if (judgeEndpoint === undefined && judgeModel === undefined) return null;
  if (judgeEndpoint === undefined || judgeModel === undefined)
    return refuse("a judge needs --judge-endpoint and --judge-model", "Name the server and the model.");
  const address = url(judgeEndpoint, "--judge-endpoint", refuse);
  return address === null ? null : { url: address, model: judgeModel };
}

function scoreMode(mode: string | undefined, refuse: Refuse): string | null {
  if (mode === undefined || (SCORE_MODES as readonly string[]).includes(mode)) return mode ?? null;
  return refuse(`\`--score-mode ${mode}\` is unknown`, `It can be ${SCORE_MODES.join(" or ")}.`);
}

function url(text: string, option: string, refuse: Refuse): string | null {
  if (/^https?:\/\/[^\s/]+/.test(text)) return text.replace(/\/+$/, "");
  return refuse(`\`${option} ${text}\` is no address`, "Give it with http:// or https://, usually ending in /v1.");
}

function real(text: string | undefined, option: string, zero: boolean, refuse: Refuse): number | null {
  if (text === undefined) return null;
  const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
  if (value > 0 || (zero && value === 0)) return value;
  return refuse(`\`${option} ${text}\` is not a number`, `Give a number ${zero ? "from 0 on" : "above 0"}.`);
}

const SCALE: Record<string, number> = { "": 1, k: 1e3, m: 1e6 };

/** `200000`, `200k`, `5M` are tokens, `$2.50` is money. */
function budget(text: string | undefined, refuse: Refuse): Asked["budget"] {
  if (text === undefined) return null;
  const money = /^\$(\d+(?:\.\d+)?)$/.exec(text)?.[1];
  if (money !== undefined && Number(money) > 0) return { money: Number(money) };
  const [, digits, scale = ""] = /^(\d+(?:\.\d+)?)([km]?)(?:\s*tokens)?$/i.exec(text) ?? [];
  const tokens = Math.round(Number(digits ?? 0) * (SCALE[scale.toLowerCase()] ?? 1));
  if (tokens > 0) return { tokens };
  return refuse(`\`--budget ${text}\` is no budget`, "Give tokens, such as 200k, or dollars, such as $2.50; above 0.");
}

function prices(text: string | undefined, refuse: Refuse): Prices | null {
  if (text === undefined || isPriceFile(text)) return null;
  const fix = "Give dollars per million tokens, prompt/completion: 0.5/1.5; or a YAML file that has them by model.";
  return flatPrice(text) ?? refuse(`\`--prices ${text}\` are no prices`, fix);
}

function suggestion(value: string, allowed: readonly string[]): string {
  const meant = nearest(value, allowed);
  return meant === undefined ? "" : `Did you mean \`${meant}\`? `;
}
