import { describe, expect, it } from "vitest";
import { UserError } from "../../../src/errors.js";
import { nobody, personOf } from "../../../src/eval/person.js";
import { type EvalRequest, evalRequest } from "../../../src/eval/request.js";
import type { Event, EventOf } from "../../../src/protocol/events.js";
import { saidRows } from "../../../src/ui/eval/said.js";

const request = (typed: object) => {
  const { asked, agent } = evalRequest({ suite: "tau2-retail", ...typed });
  return { ...asked, agent, results: "r", system_prompt: null } as EvalRequest;
};
const refusal = (typed: object, absent: string | null = null) => {
  try {
    personOf(request(typed), absent);
  } catch (error) {
    if (error instanceof UserError) return [error.exitCode, error.problems.map(({ what }) => what).join()];
    throw error;
  }
  return null;
};
const terminal = { isTTY: true };

describe("a person who takes part", () => {
  it("plays the side that is called human", () => {
    expect(personOf(request({ agent: "human" }), null)).toBe("agent");
    expect(personOf(request({ agent: "expert", user: "human" }), null)).toBe("user");
    expect(personOf(request({ agent: "gold" }), "--json was given")).toBeNull();
  });

  it.each([
    [{ agent: "human", user: "human" }, "--agent human and --user human were both given."],
    [{ agent: "gold", user: "human" }, "--agent gold cannot talk with a person."],
    [{ agent: "human", concurrency: "4" }, "--concurrency is 4, and a person takes part."],
  ])("%j is refused", (typed, what) => {
    expect(refusal(typed)).toEqual([2, what]);
  });

  it("with --concurrency 1 is accepted, and is missed with exit code 4 where nobody can be asked", () => {
    expect(refusal({ agent: "human", concurrency: "1" })).toBeNull();
    expect(refusal({ agent: "human" }, "--json was given")).toEqual([
      4,
      "A person is to play the agent, and nobody can be asked.",
    ]);
  });

  it("is there on terminals only, unless the command says otherwise", () => {
    const options = { input: true, json: false };
    const both = { "standard input": terminal, "standard output": terminal };
    expect(nobody(options, both, {})).toBeNull();
    expect(nobody(options, { ...both, "standard output": {} }, {})).toBe("standard output is no terminal");
    expect(nobody({ ...options, json: true }, both, {})).toBe("--json was given");
    expect(nobody({ ...options, input: false }, both, {})).toBe("--no-input was given");
    expect(nobody(options, both, { CI: "1" })).toBe("CI is set in the environment");
  });
});

describe("what a person is shown", () => {
  const rows = (more: object, width = 40) =>
    saidRows({ type: "human", kind: "shown", title: null, ...more } as unknown as EventOf<"human"> & Event, {
      width,
      color: false,
    });

  it("a broken row keeps its indent, and nothing is wider than the window", () => {
    expect(
      rows({ what: "brief", title: "you are", text: "Reason:\n\tYou want to return the bottle and the lamp." }),
    ).toEqual(["", "you are", "  Reason:", "    You want to return the bottle and", "    the lamp."]);
    for (const row of rows({ what: "tool", text: `${" ".repeat(60)}deep ${"x".repeat(200)}` }, 30))
      expect(row.length).toBeLessThanOrEqual(30);
  });

  it("names who speaks, and obeys no escape sequence", () => {
    expect(rows({ what: "assistant", text: "\x1b[2JHello" })).toEqual(["", "agent", "  \u{fffd}[2JHello"]);
    expect(rows({ what: "user", text: "Hi" })[1]).toBe("customer");
    expect(rows({ what: "problem", text: "No." })).toEqual(["", "  No."]);
  });
});
