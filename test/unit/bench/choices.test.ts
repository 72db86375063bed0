import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, it } from "vitest";
import { findPython } from "../../../scripts/bootstrap.js";
import { DEVICES, DTYPES, GEOMETRIES, HEADS, SUBJECTS, TRAIN, WHAT } from "../../../src/bench/choices.js";
import { benchRequest } from "../../../src/bench/request.js";
import { REPOSITORY } from "../../fixtures/machine.js";

/** What python/sinkflex/bench/request.py takes; standard library only. */
function worker() {
  const code = [
    "import dataclasses, json, sys",
    "sys.path.insert(0, sys.argv[1])",
    "from sinkflex.bench import request",
    "fields = [field.name for field in dataclasses.fields(request.Request)]",
    "print(json.dumps([request.IMPLS, request._CHOICES, request._READ_BY, fields]))",
  ].join("\n");
  const args = ["-P", "-B", "-c", code, join(REPOSITORY, "python")];
  const python = process.env.SINKFLEX_PYTHON ?? findPython(REPOSITORY).python?.path ?? "python3";
  const [impls, choices, readBy, fields] = JSON.parse(execFileSync(python, args, { encoding: "utf8" }));
  return { impls, choices, readBy, fields };
}

it("the command line and the worker know the same words and sizes", () => {
  const { impls, choices, readBy, fields } = worker();
  expect(impls).toEqual(Object.fromEntries(WHAT.map((what) => [what, SUBJECTS[what].impls])));
  expect(choices).toEqual({
    what: WHAT,
    device: DEVICES,
    dtype: DTYPES,
    head: HEADS,
    train: TRAIN,
    geometry: GEOMETRIES,
  });
  const keys: Record<string, string[]> = { heads: ["num_q_heads", "num_kv_heads"], headDim: ["head_dim"] };
  const sizes = (what: keyof typeof SUBJECTS) => SUBJECTS[what].options.flatMap((name) => keys[name] ?? [name]);
  for (const what of WHAT) expect(readBy[what].toSorted(), what).toEqual(sizes(what).toSorted());
  const { v: _v, verb: _verb, ...request } = benchRequest({});
  for (const key of Object.keys(request)) expect(fields).toContain(key);
});
