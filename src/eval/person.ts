/** A person at the terminal who plays one side of an evaluation: what that asks for, and whether somebody is there. */
import { EXIT, UserError } from "../errors.js";
import type { GlobalOptions } from "../options.js";
import type { EvalRequest } from "./request.js";

export type Side = "user" | "agent";

/** The sides that a person is to play. */
function sides({ agent, user }: Pick<EvalRequest, "agent" | "user">): Side[] {
  return [...(agent.kind === "human" ? ["agent" as const] : []), ...(user.kind === "human" ? ["user" as const] : [])];
}

/** Why nobody can be asked on these streams; null when somebody can. */
export function nobody(
  options: Pick<GlobalOptions, "input" | "json">,
  streams: Record<string, { isTTY?: boolean }>,
  env: NodeJS.ProcessEnv,
): string | null {
  if (options.json) return "--json was given";
  if (!options.input) return "--no-input was given";
  if (env.CI) return "CI is set in the environment";
  const blind = Object.entries(streams).find(([, stream]) => stream.isTTY !== true);
  return blind === undefined ? null : `${blind[0]} is no terminal`;
}

/** The side that a person plays, null for none. Throws where they could not, with `absent` why nobody is there. */
export function personOf(request: EvalRequest, absent: string | null): Side | null {
  const [side, other] = sides(request);
  if (side === undefined) return null;
  if (other !== undefined) {
    throw refused(
      "--agent human and --user human were both given.",
      "Whoever plays both sides knows what the agent must not know.",
      "Leave one of them to somebody else, such as --agent expert or --user scripted.",
    );
  }
  if (request.agent.kind === "scripted" && request.agent.name === "gold") {
    throw refused(
      "--agent gold cannot talk with a person.",
      "It replays the calls that the task's script leads to, whatever the user says.",
      "Take one that listens: --agent expert, --checkpoint, --model or --endpoint.",
    );
  }
  if (request.concurrency !== null && request.concurrency !== 1) {
    throw refused(
      `--concurrency is ${request.concurrency}, and a person takes part.`,
      "A person has one conversation at a time.",
      "Leave --concurrency out.",
    );
  }
  if (absent === null) return side;
  throw new UserError(
    {
      code: "SF-EVAL-NO-PERSON",
      what: `A person is to play the ${side}, and nobody can be asked.`,
      why: `${absent[0]?.toUpperCase()}${absent.slice(1)}.`,
      fix: `Run it in a terminal, or let somebody else play: ${side === "user" ? "--user scripted" : "--agent expert"}.`,
    },
    { exitCode: EXIT.input, left: "Nothing was played." },
  );
}

function refused(what: string, why: string, fix: string): UserError {
  return new UserError({ code: "SF-EVAL-PERSON", what, why, fix }, { left: "Nothing was played." });
}
