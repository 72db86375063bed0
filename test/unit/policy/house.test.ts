import { existsSync } from "node:fs";
import { basename, join } from "node:path";
import { describe, expect, it } from "vitest";
import { REPOSITORY } from "../../fixtures/machine.js";
import { codeOf, filesUnder, pythonGraph, read, trackedFiles } from "../../fixtures/sources.js";

/** Sizes, names and contents of files. */

describe("budgets", () => {
  /** A file that may be longer, with the reason. */
  const RAISED: Record<string, { lines: number; why: string }> = {};

  const budget = (path: string) => {
    if (path.startsWith("triton_kernels/")) return 400;
    if (path.endsWith(".py")) return 350;
    return path.startsWith("src/commands/") ? 120 : 250;
  };

  it("hold for every source", () => {
    const sources = [
      ...filesUnder("src", ".ts"),
      ...filesUnder("scripts", ".js"),
      ...filesUnder("python", ".py"),
      ...filesUnder("triton_kernels", ".py"),
    ];
    const over = sources.flatMap((path) => {
      const lines = read(path).trimEnd().split("\n").length;
      const allowed = RAISED[path]?.lines ?? budget(path);
      return lines > allowed ? [`${path} has ${lines} lines, ${allowed} are allowed`] : [];
    });
    expect(over).toEqual([]);
  });

  it("are raised only for files that exist and need it", () => {
    for (const [path, { lines }] of Object.entries(RAISED)) {
      expect(read(path).trimEnd().split("\n").length).toBeGreaterThan(budget(path));
      expect(lines).toBeLessThanOrEqual(budget(path) * 1.5);
    }
  });
});

describe("names", () => {
  const folders = ["src", "scripts", "python", "triton_kernels", "test"];

  it("no file is a room for everything", () => {
    const vague = /^_?(utils?|helpers?|common|managers?|base|misc)(\.|$)/;
    const found = folders
      .flatMap((folder) => filesUnder(folder))
      .filter((path) => path.split("/").some((part) => vague.test(part)));
    expect(found).toEqual([]);
  });

  it("every Python test file has a name of its own, since pytest imports them by it", () => {
    const names = [...filesUnder("test/python", ".py"), ...filesUnder("test/kernels", ".py")].map((path) =>
      basename(path),
    );
    const own = names.filter((name) => name !== "conftest.py" && name !== "__init__.py");
    expect(own.filter((name, index) => own.indexOf(name) !== index)).toEqual([]);
  });
});

describe("the vocabulary", () => {
  /** Words that this project says otherwise, by the words of an identifier: `old_model` is found in `oldModelPath`. */
  const WORDS: Record<string, string> = {
    actor: "policy",
    old_model: "behaviour log-probs",
    n_heads: "num_q_heads or num_kv_heads",
    backend: "impl",
    daemon: "worker",
    experiment: "run",
    radius: "window",
    dones: "terminated, truncated",
  };

  const misused = (name: string) => {
    const words = name.replaceAll(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase();
    return Object.keys(WORDS).filter((word) => `_${words}_`.includes(`_${word}_`));
  };

  const complaints = (path: string, names: readonly string[]) =>
    names.flatMap((name) => misused(name).map((word) => `${path}: ${name} (say ${WORDS[word]})`));

  it("holds for what TypeScript declares", () => {
    const declared =
      /\b(?:const|let|function|class|interface|type|enum)\s+([A-Za-z_$][\w$]*)|^\s*(?:readonly\s+)?([A-Za-z_$][\w$]*)\??:/gm;
    const found = filesUnder("src", ".ts").flatMap((path) => {
      const names = [...codeOf(path).matchAll(declared)].map((match) => match[1] ?? match[2] ?? "");
      return complaints(path, [...new Set([...names, basename(path, ".ts")])]);
    });
    expect(found).toEqual([]);
  });

  it("holds for what Python binds", () => {
    const found = Object.values(pythonGraph()).flatMap(({ path, names }) =>
      complaints(path, [...names, basename(path, ".py")]),
    );
    expect(found).toEqual([]);
  });

  it("finds a misused word in either spelling", () => {
    expect(["oldModelPath", "actor_loss", "ActorLoss", "n_heads"].map((name) => misused(name).length)).toEqual([
      1, 1, 1, 1,
    ]);
    expect(["factory", "extractor", "backends", "run"].map((name) => misused(name).length)).toEqual([0, 0, 0, 0]);
  });
});

describe("tracked files", () => {
  // Written in halves, so that this file does not hold what it looks for.
  const half = (...parts: string[]) => parts.join(".").replaceAll(".", "\\.");
  const registries = new RegExp(
    [
      half("pypi", "org"),
      half("pythonhosted", "org"),
      half("registry", "npmjs", "org"),
      half("registry", "yarnpkg"),
      half("download", "pytorch", "org"),
      half("unpkg", "com"),
      half("debian", "org"),
    ].join("|"),
  );
  const personal = /(?<![\w.~-])\/(?:root|work|home\/[a-z][\w-]*|Users\/[A-Za-z][\w-]*)\/[\w.-]/;

  it("name no registry and no folder of a developer's machine", () => {
    const found = trackedFiles()
      .filter((path) => existsSync(join(REPOSITORY, path)))
      .flatMap((path) => {
        const text = read(path);
        return [registries, personal].flatMap((pattern) => {
          const match = pattern.exec(text);
          return match ? [`${path}: ${match[0]}`] : [];
        });
      });
    expect(found).toEqual([]);
  });

  it("include the licence, the change log and the introduction", () => {
    for (const name of ["LICENSE", "CHANGELOG.md", "README.md"])
      expect(existsSync(join(REPOSITORY, name)), name).toBe(true);
  });
});

describe("the lock files", () => {
  const locks = ["torch.txt", "base.txt", "tau2.txt", "dev.txt"];
  const lines = (name: string) =>
    read(`requirements/${name}`)
      .split("\n")
      .filter((line) => line !== "" && !line.startsWith("#"));
  const names = (name: string) => lines(name).map((line) => line.split("==")[0] ?? "");

  it("pin every package to one version, without hashes or addresses, in order", () => {
    for (const name of locks) {
      expect(lines(name).length).toBeGreaterThan(0);
      for (const line of lines(name))
        expect(line).toMatch(/^[a-z0-9]+(-[a-z0-9]+)*==\d[\w.+]*( ; sys_platform == "linux")?$/);
      expect(names(name)).toEqual([...names(name)].sort());
    }
  });

  it("hold each package once, and torch in a file of its own", () => {
    const all = locks.flatMap(names);
    expect(all.filter((name, index) => all.indexOf(name) !== index)).toEqual([]);
    expect(lines("torch.txt")).toEqual(["torch==2.13.0"]);
  });

  it("hold what pyproject.toml asks for", () => {
    const project = read("pyproject.toml");
    const asked =
      (/^dependencies = \[(.*)\]$/m.exec(project)?.[1] ?? "").match(/"[a-z0-9-]+/g)?.map((name) => name.slice(1)) ?? [];
    expect(asked).toContain("torch");
    for (const name of asked) expect([...names("torch.txt"), ...names("base.txt")]).toContain(name);
    const tools =
      (/^dev = \[(.*)\]$/m.exec(project)?.[1] ?? "").match(/"[a-z0-9-]+/g)?.map((name) => name.slice(1)) ?? [];
    for (const name of tools) expect(names("dev.txt")).toContain(name);
  });
});
