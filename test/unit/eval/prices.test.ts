import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { readPrices } from "../../../src/config/prices.js";
import { UserError } from "../../../src/errors.js";
import { evalRequest } from "../../../src/eval/request.js";

const file = (text: string): string => {
  const path = join(mkdtempSync(join(tmpdir(), "sinkflex-prices-")), "prices.yaml");
  writeFileSync(path, text);
  return path;
};

const problems = async (text: string) => {
  const error = await readPrices(file(text)).catch((caught: unknown) => caught);
  if (!(error instanceof UserError)) throw error;
  return error.problems.map(({ what, where }) => `${where?.line}:${where?.col} ${what}`);
};

describe("prices", () => {
  it("are two numbers for all models", () => {
    const asked = (prices: string) => evalRequest({ suite: "mini-shop", agent: "noop", prices }).asked.prices;
    expect(asked("0.5/1.5")).toEqual({ prompt: 0.5, completion: 1.5 });
    expect(asked("$2/$10")).toEqual({ prompt: 2, completion: 10 });
    expect(() => asked("cheap")).toThrow("`--prices cheap` are no prices");
  });

  it("or a file with two for each model", async () => {
    const listed = await readPrices(file("a/b: {prompt: 1, completion: 2}\nc: {prompt: 0, completion: 0.5}\n"));
    expect(listed).toEqual({ models: { "a/b": { prompt: 1, completion: 2 }, c: { prompt: 0, completion: 0.5 } } });
    const { asked } = evalRequest({ suite: "mini-shop", agent: "noop", prices: "/p/prices.yaml" }, listed);
    expect(asked.prices).toBe(listed);
    expect(asked.command).toBe("sinkflex eval mini-shop --agent noop --prices /p/prices.yaml");
  });

  it("that are wrong are named with their place", async () => {
    const found = await problems("a: {prompt: 1}\nb: {prompt: -1, completion: free}\n");
    expect(found).toHaveLength(3);
    expect(found[0]).toMatch(/^1:\d+ `a\.completion` is no price/);
    expect(found[1]).toMatch(/^2:\d+ `b\.prompt` is no price/);
    expect(found[2]).toMatch(/^2:\d+ `b\.completion` is no price/);
    expect(await problems("")).toEqual(["1:1 there are no prices"]);
    expect(await problems("a: [1, 2")).toHaveLength(1);
  });
});
