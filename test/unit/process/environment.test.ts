import { cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { dataDir, environmentFor, readyEnvironment } from "../../../src/process/environment.js";
import { REPOSITORY, temporaryFolder } from "../../fixtures/machine.js";

describe("the data directory", () => {
  it("follows the platform, XDG_DATA_HOME and SINKFLEX_DATA_DIR", () => {
    expect(dataDir({ HOME: "/a b" }, "linux")).toBe("/a b/.local/share/sinkflex");
    expect(dataDir({ HOME: "/h", XDG_DATA_HOME: "/x" }, "linux")).toBe("/x/sinkflex");
    expect(dataDir({ HOME: "/h" }, "darwin")).toBe("/h/Library/Application Support/sinkflex");
    expect(dataDir({ HOME: "/h", XDG_DATA_HOME: "/x", SINKFLEX_DATA_DIR: "/own" }, "linux")).toBe("/own");
  });
});

describe("the environment's folder", () => {
  let root: string;
  let env: NodeJS.ProcessEnv;

  beforeEach(() => {
    root = temporaryFolder();
    for (const name of ["requirements", "pyproject.toml"]) {
      cpSync(join(REPOSITORY, name), join(root, name), { recursive: true });
    }
    env = { SINKFLEX_DATA_DIR: join(root, "data") };
  });

  it("has a name of its own for every Python and every lock file", () => {
    const first = environmentFor(11, { root, env }).dir;
    expect(environmentFor(11, { root, env }).dir).toBe(first);
    expect(environmentFor(12, { root, env }).dir).not.toBe(first);
    writeFileSync(join(root, "requirements", "torch.txt"), "torch==2.13.1\n");
    expect(environmentFor(11, { root, env }).dir).not.toBe(first);
  });

  it("does not change with a comment or a blank line in a lock file", () => {
    const first = environmentFor(11, { root, env }).dir;
    writeFileSync(join(root, "requirements", "torch.txt"), "# the one large package\n\ntorch==2.13.0\n");
    expect(environmentFor(11, { root, env }).dir).toBe(first);
  });

  it("is ready only with its record and an interpreter that is there", () => {
    const { dir, python } = environmentFor(12, { root, env });
    mkdirSync(join(dir, "bin"), { recursive: true });
    symlinkSync(process.execPath, python);
    expect(readyEnvironment({ root, env })).toBeNull();
    writeFileSync(join(dir, "complete.json"), "{");
    expect(readyEnvironment({ root, env })).toBeNull();
    writeFileSync(join(dir, "complete.json"), '{"python": "3.12.1"}');
    expect(readyEnvironment({ root, env })).toMatchObject({ python, record: { python: "3.12.1" } });
    rmSync(python);
    symlinkSync("/no/longer/there/python3.12", python);
    expect(readyEnvironment({ root, env })).toBeNull();
  });
});
