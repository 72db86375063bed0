import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { allPaths, keyAt, schemaText } from "../../../src/config/keys.js";
import { loadConfig } from "../../../src/config/load.js";
import { configReference } from "../../../src/config/markdown.js";

const root = join(import.meta.dirname, "../../..");
const configs = readdirSync(join(root, "configs")).filter((name) => name.endsWith(".yaml"));

describe("generated files are current (`npm run build && node scripts/docs.js` writes them)", () => {
  it("configs/schema.json", () => {
    expect(readFileSync(join(root, "configs/schema.json"), "utf8")).toBe(schemaText());
  });

  it("docs/config.md", () => {
    expect(readFileSync(join(root, "docs/config.md"), "utf8")).toBe(configReference());
  });
});

it("the schema file holds no reasons for errors and no limit that every number has", () => {
  expect(schemaText()).not.toMatch(/"why"/);
  expect(schemaText().match(/9007199254740991/g)).toHaveLength(1);
});

it("every key has one sentence", () => {
  const wrong = allPaths().filter((path) => {
    const { description } = keyAt(withIndexes(path)) ?? {};
    return !description || !/^[A-Z].*\.$/.test(description);
  });
  expect(wrong).toEqual([]);
});

/** allPaths leaves out the index of a list; keyAt wants one. */
function withIndexes(path: string[]): (string | number)[] {
  return path.flatMap((part) => (part === "demonstrations" && path.at(-1) !== part ? [part, 0] : [part]));
}

describe("every config in configs/ is accepted and names its schema in the first line", () => {
  it.each(configs)("%s", async (name) => {
    const file = join(root, "configs", name);
    expect(readFileSync(file, "utf8").split("\n")[0]).toBe("# yaml-language-server: $schema=./schema.json");
    const { config } = await loadConfig(file);
    expect(config.train.steps).toBeGreaterThan(0);
  });

  it("the smallest one sets only what has no default, and a warm start", () => {
    expect(configs).toContain("minimal.yaml");
    const lines = readFileSync(join(root, "configs/minimal.yaml"), "utf8").split("\n");
    expect(lines.filter((line) => line && !line.startsWith("#"))).toHaveLength(4);
  });
});
