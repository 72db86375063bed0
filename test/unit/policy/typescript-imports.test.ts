import { describe, expect, it } from "vitest";
import { codeOf, filesUnder, importsOf } from "../../fixtures/sources.js";

/** Who may import whom in src/. A room that is not named here is free, except that nobody imports a command. */

const sources = filesUnder("src", ".ts");
const room = (path: string) => (path.startsWith("src/") ? path.split("/").slice(1, -1).join("/") || "root" : "outside");

/** Every import of a room's files that `allowed` does not allow, as "file imports target". */
function breaches(folder: string, allowed: (target: string, typeOnly: boolean) => boolean): string[] {
  return sources
    .filter((path) => path.startsWith(`src/${folder}/`))
    .flatMap((path) =>
      importsOf(path)
        .filter(({ target, typeOnly }) => !allowed(target, typeOnly))
        .map(({ target }) => `${path} imports ${target}`),
    );
}

const PICTURES = ["ui", "ui/bench", "ui/eval"];
const OUTSIDE_WORLD = /^node:(fs|child_process|net|http|https|dgram|worker_threads|cluster)/;

describe("the rooms of src/", () => {
  it("are read: every import of every file is seen", () => {
    const seen = sources.flatMap((path) => importsOf(path));
    const written = sources.map((path) => codeOf(path).match(/\bfrom\s*"|\bimport\(\s*"/g)?.length ?? 0);
    expect(seen).toHaveLength(written.reduce((sum, count) => sum + count, 0));
    for (const { target } of seen) if (target.startsWith("src/")) expect(sources).toContain(target);
  });

  it("ui sees run, bench and eval, and of protocol only types; no process, command, file or child process", () => {
    const allowed = (target: string, typeOnly: boolean) => {
      if (target.startsWith("src/protocol/")) return typeOnly;
      if (target.startsWith("src/"))
        return (
          ["ui", "ui/bench", "ui/eval", "run", "bench", "eval"].includes(room(target)) ||
          (typeOnly && room(target) === "root")
        );
      return !OUTSIDE_WORLD.test(target);
    };
    expect(breaches("ui", allowed)).toEqual([]);
  });

  it("config sees errors only", () => {
    const allowed = (target: string) =>
      !target.startsWith("src/") || room(target) === "config" || target === "src/errors.ts";
    expect(breaches("config", allowed)).toEqual([]);
  });

  it("protocol sees nothing", () => {
    expect(breaches("protocol", (target) => room(target) === "protocol" || target === "zod")).toEqual([]);
  });

  it("run sees neither ui nor process", () => {
    expect(breaches("run", (target) => ![...PICTURES, "process", "commands"].includes(room(target)))).toEqual([]);
  });

  it("bench sees neither ui nor process, and of run only types and files that are replaced as a whole", () => {
    const allowed = (target: string, typeOnly: boolean) => {
      if (room(target) === "run") return typeOnly || ["src/run/whole.ts", "src/run/warnings.ts"].includes(target);
      return ![...PICTURES, "process", "commands", "config"].includes(room(target));
    };
    expect(breaches("bench", allowed)).toEqual([]);
  });

  it("eval sees neither ui nor process", () => {
    expect(
      breaches("eval", (target) => ![...PICTURES, "process", "commands", "config"].includes(room(target))),
    ).toEqual([]);
  });

  it("of training, benchmarks and evaluations, no one's pictures see another's", () => {
    const training = ["view", "header", "summary", "plan", "runs", "episode"].map((name) => `src/ui/${name}.ts`);
    expect(breaches("ui/bench", (target) => !training.includes(target))).toEqual([]);
    expect(breaches("ui/eval", (target) => !training.includes(target) && room(target) !== "ui/bench")).toEqual([]);
    expect(breaches("run", (target) => !["bench", "eval"].includes(room(target)))).toEqual([]);
  });

  it("process sees neither ui nor config: what it needs of them is handed to it", () => {
    expect(breaches("process", (target) => ![...PICTURES, "config", "commands"].includes(room(target)))).toEqual([]);
  });

  it("only cli.ts sees commands, and loads them lazily", () => {
    const seers = sources.filter((path) => importsOf(path).some(({ target }) => room(target) === "commands"));
    expect(seers).toEqual(["src/cli.ts"]);
    expect(codeOf("src/cli.ts")).not.toMatch(/^import [^;]*from "\.\/commands\//m);
  });
});

describe("pure sources", () => {
  const impure =
    /\bDate\b|\bMath\.random\b|\bperformance\b|\bprocess\.|\bset(Timeout|Interval|Immediate)\b|\bfetch\(|\bcrypto\b|\bconsole\./;

  for (const path of [
    "src/run/state.ts",
    "src/ui/view.ts",
    "src/ui/lines.ts",
    "src/ui/format.ts",
    "src/bench/state.ts",
    "src/bench/request.ts",
    "src/bench/compare.ts",
    "src/ui/bench/view.ts",
    "src/ui/bench/report.ts",
    "src/ui/bench/compare.ts",
    "src/eval/state.ts",
    "src/eval/person.ts",
    "src/eval/request.ts",
    "src/ui/eval/view.ts",
    "src/ui/eval/report.ts",
    "src/ui/eval/said.ts",
    "src/ui/eval/transcript.ts",
    "src/config/diagnose.ts",
    "src/process/checks.ts",
  ]) {
    it(`${path} has no I/O, clock or randomness, nor has what it runs`, () => {
      const [seen, todo] = [new Set<string>(), [path]];
      for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
        if (seen.has(next)) continue;
        seen.add(next);
        const code = codeOf(next).replaceAll(/"(?:[^"\\\n]|\\.)*"/g, '""');
        if (next !== "src/errors.ts") expect(impure.exec(code)?.[0], next).toBeUndefined();
        for (const { target, typeOnly } of importsOf(next)) {
          if (typeOnly) continue;
          if (target.startsWith("src/")) todo.push(target);
          else if (target.startsWith("node:")) expect(["node:util"], `${next} imports ${target}`).toContain(target);
        }
      }
    });
  }
});
