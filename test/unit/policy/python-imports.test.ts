import { describe, expect, it } from "vitest";
import { pythonGraph } from "../../fixtures/sources.js";

/** Who may import whom in python/sinkflex and triton_kernels (which is sinkflex.kernels), as Python parses them. */

const graph = pythonGraph();
const modules = Object.keys(graph);
const inside = (name: string, packages: readonly string[]) =>
  packages.some((one) => name === one || name.startsWith(`${one}.`));

/** The modules of these packages. */
const within =
  (...packages: string[]) =>
  (name: string) =>
    inside(name, packages);

/** Every import of these modules that `allowed` does not allow, as "module imports name". */
function breaches(of: (module: string) => boolean, allowed: (name: string, from: string) => boolean): string[] {
  return modules
    .filter(of)
    .flatMap((from) =>
      (graph[from]?.imports ?? []).filter((name) => !allowed(name, from)).map((name) => `${from} imports ${name}`),
    );
}

/** Imports of SinkFlex's own are limited to these packages and the refusal; anything from elsewhere is allowed. */
const ownOnly = (packages: readonly string[]) => (name: string) =>
  !inside(name, ["sinkflex"]) || inside(name, [...packages, "sinkflex.refusal"]);

const STANDARD =
  /^(__future__|abc|collections|contextlib|dataclasses|enum|functools|importlib|itertools|os|math|typing|types|warnings|weakref|operator)(\.|$)/;

describe("the rooms of python/sinkflex", () => {
  it("are all read", () => {
    for (const name of ["sinkflex.__main__", "sinkflex.kernels.api", "sinkflex.envs.env", "sinkflex.train.loop"]) {
      expect(modules).toContain(name);
    }
  });

  it("kernels see torch and triton only", () => {
    const allowed = (name: string) => inside(name, ["torch", "triton", "sinkflex.kernels"]) || STANDARD.test(name);
    expect(breaches(within("sinkflex.kernels"), allowed)).toEqual([]);
  });

  it("implementations of the kernels never import one another", () => {
    const impls = ["reference", "flash", "flex", "triton"].map((impl) => `sinkflex.kernels.${impl}`);
    expect(
      breaches(
        within(...impls),
        (name, from) =>
          !inside(
            name,
            impls.filter((impl) => impl !== from),
          ),
      ),
    ).toEqual([]);
  });

  it("of the kernels, others see only their interface", () => {
    const others = (name: string) => !inside(name, ["sinkflex.kernels"]);
    const open = ["sinkflex.kernels.api", "sinkflex.kernels.layout"];
    expect(breaches(others, (name) => !inside(name, ["sinkflex.kernels"]) || inside(name, open))).toEqual([]);
  });

  it("algorithms see torch only", () => {
    const allowed = (name: string) => inside(name, ["torch", "sinkflex.algorithms"]) || STANDARD.test(name);
    expect(breaches(within("sinkflex.algorithms"), allowed)).toEqual([]);
  });

  it("algorithms are pure: no I/O, clock or randomness", () => {
    const impure =
      /^(open|print|input|time\.|random\.|torch\.(rand|randn|randint|randperm|bernoulli|multinomial|manual_seed|save|load)\b)/;
    const calls = modules
      .filter((name) => inside(name, ["sinkflex.algorithms"]))
      .flatMap((name) => graph[name]?.calls ?? []);
    expect(calls.filter((call) => impure.test(call))).toEqual([]);
  });

  it("nobody sees eval or bench, which see no training", () => {
    const others = (name: string) => !inside(name, ["sinkflex.eval", "sinkflex.bench", "sinkflex.__main__"]);
    expect(breaches(others, (name) => !inside(name, ["sinkflex.eval", "sinkflex.bench"]))).toEqual([]);
    const training = (name: string) => !inside(name, ["sinkflex.train", "sinkflex.algorithms"]);
    expect(breaches(within("sinkflex.eval", "sinkflex.bench"), training)).toEqual([]);
  });

  it("envs see nothing of the learning side", () => {
    expect(breaches(within("sinkflex.envs"), ownOnly(["sinkflex.envs"]))).toEqual([]);
  });

  it("policy sees the kernels' interface, and of the environments the types of a conversation", () => {
    const open = ["sinkflex.policy", "sinkflex.kernels.api", "sinkflex.kernels.layout", "sinkflex.envs.conversation"];
    expect(breaches(within("sinkflex.policy"), ownOnly(open))).toEqual([]);
  });

  it("rollout sees envs and policy", () => {
    expect(
      breaches(within("sinkflex.rollout"), ownOnly(["sinkflex.rollout", "sinkflex.envs", "sinkflex.policy"])),
    ).toEqual([]);
  });

  it("nobody but the entry point sees train", () => {
    const others = (name: string) => !inside(name, ["sinkflex.train", "sinkflex.__main__"]);
    expect(breaches(others, (name) => !inside(name, ["sinkflex.train"]))).toEqual([]);
  });

  it("bench sees the kernels' interface, policy's attention, and the worker's channels", () => {
    const open = ["sinkflex.bench", "sinkflex.kernels.api", "sinkflex.policy.attention"];
    const channels = ["sinkflex.events", "sinkflex.control", "sinkflex.__version__"];
    expect(breaches(within("sinkflex.bench"), ownOnly([...open, ...channels]))).toEqual([]);
  });

  it("of bench, what starts the cells loads none of the subjects, and no library but torch", () => {
    const measuring = ["attention", "attention_check", "log_prob", "model", "ledger", "measure"];
    const inCells = measuring.map((name) => `sinkflex.bench.${name}`);
    const parent = (name: string) =>
      inside(name, ["sinkflex.bench"]) && !inside(name, [...inCells, "sinkflex.bench.cell"]);
    const heavy = ["sinkflex.policy", "transformers", "peft", "fla", "triton", ...inCells];
    expect(breaches(parent, (name) => !inside(name, heavy))).toEqual([]);
  });

  it("nobody but the entry point sees bench", () => {
    const others = (name: string) => !inside(name, ["sinkflex.bench", "sinkflex.__main__"]);
    expect(breaches(others, (name) => !inside(name, ["sinkflex.bench"]))).toEqual([]);
  });

  it("what runs before `hello` needs the standard library only", () => {
    const early = ["sinkflex.config", "sinkflex.record", "sinkflex.events", "sinkflex.control", "sinkflex.refusal"];
    const heavy = ["torch", "transformers", "numpy", "gymnasium", "safetensors", "tokenizers"];
    expect(
      breaches(
        within(...early),
        (name) => !inside(name, heavy) && (!inside(name, ["sinkflex"]) || inside(name, early)),
      ),
    ).toEqual([]);
  });

  it("nobody imports the kernels under the name of their folder", () => {
    expect(
      breaches(
        () => true,
        (name) => !inside(name, ["triton_kernels"]),
      ),
    ).toEqual([]);
  });
});
