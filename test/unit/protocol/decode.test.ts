import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decodeLine, LineSplitter } from "../../../src/protocol/decode.js";
import { EVENT_TYPES } from "../../../src/protocol/events.js";

function split(bytes: Buffer, cuts: readonly number[]): string[] {
  const splitter = new LineSplitter();
  const lines: Buffer[] = [];
  let from = 0;
  for (const cut of [...cuts, bytes.length]) {
    lines.push(...splitter.push(bytes.subarray(from, cut)));
    from = cut;
  }
  lines.push(...splitter.end());
  return lines.map((line) => line.toString("utf8"));
}

const warn = (what: string) => JSON.stringify({ v: 1, seq: 3, t: 0.5, type: "warn", code: "x", what });

describe("lines", () => {
  it("B117 a 200 kB line, a split inside a character, a last line without newline, and carriage returns", () => {
    const long = warn("café ☕ 客户".repeat(12_500));
    expect(Buffer.byteLength(long)).toBeGreaterThan(200_000);
    const bytes = Buffer.from(`${long}\n${warn("a ☕ b")}\r\n${warn("last")}`);
    const inCup = bytes.lastIndexOf(Buffer.from("☕")) + 1; // the cup has three bytes
    const chunks = Array.from({ length: Math.floor(bytes.length / 65_536) }, (_, n) => (n + 1) * 65_536);
    for (const cuts of [[], chunks, [inCup], [inCup + 1]]) {
      const lines = split(bytes, cuts);
      expect(lines).toEqual([long, warn("a ☕ b"), warn("last")]);
      expect(lines.join("")).not.toContain("\u{fffd}");
      const kinds = lines.map((line) => decodeLine(line).kind);
      expect(kinds).toEqual(["event", "event", "event"]);
    }
  });

  it("gives the same lines however the bytes are cut", () => {
    const texts = fc.array(fc.string({ unit: "grapheme", minLength: 1 }).filter((text) => !/[\r\n]/.test(text)));
    fc.assert(
      fc.property(texts, fc.array(fc.nat(400)), fc.boolean(), (lines, cuts, closed) => {
        const bytes = Buffer.from(lines.join("\n") + (closed ? "\n" : ""));
        const sorted = cuts.filter((cut) => cut <= bytes.length).sort((a, b) => a - b);
        expect(split(bytes, sorted)).toEqual(lines);
      }),
    );
  });

  it("drops blank lines", () => {
    expect(split(Buffer.from("\n\r\na\n\n"), [1])).toEqual(["a"]);
  });

  it("drops a line without end once it is too long, and goes on with the next", () => {
    const splitter = new LineSplitter(10);
    const lines = ["12345", "678901", "234\nab", "c\n"].flatMap((text) => splitter.push(Buffer.from(text)));
    expect(lines.map(String)).toEqual(["abc"]);
    expect(splitter.overlong).toBe(1);
  });
});

describe("events", () => {
  it("keeps what it knows and drops fields that it does not", () => {
    const decoded = decodeLine(
      '{"v":1,"seq":0,"t":1.5,"type":"checkpoint","step":2,"path":"p","bytes":9,"later":true}',
    );
    expect(decoded).toEqual({
      kind: "event",
      event: { v: 1, seq: 0, t: 1.5, type: "checkpoint", step: 2, path: "p", bytes: 9 },
    });
  });

  it("passes over a type that is added later", () => {
    expect(decodeLine('{"v":1,"seq":0,"t":0,"type":"weather"}')).toEqual({ kind: "unknown", type: "weather" });
  });

  it("refuses another version, whatever else the line says", () => {
    expect(decodeLine('{"v":2,"type":"hello"}')).toEqual({ kind: "version", found: 2 });
    expect(decodeLine('{"v":"1","type":"hello"}')).toEqual({ kind: "version", found: "1" });
  });

  it.each([
    ["Traceback (most recent call last):", "not JSON"],
    ["[1]", "not a JSON object"],
    ["null", "not a JSON object"],
    ['{"type":"warn"}', "no v or no type"],
    ['{"v":1,"seq":0,"t":0,"type":"warn","code":"x"}', "warn.what"],
    ['{"v":1,"seq":0,"t":0,"type":"step","stage":"rl","step":1.5,"total":2,"metrics":{}}', "step.step"],
  ])("says why %s is no event", (line, why) => {
    const decoded = decodeLine(line);
    expect(decoded.kind).toBe("malformed");
    expect(decoded).toHaveProperty("why", expect.stringContaining(why));
  });

  it("takes numbers that were not finite as null", () => {
    const line =
      '{"v":1,"seq":0,"t":0,"type":"step","stage":"rl","step":1,"total":2,"metrics":{"kl":null},"nonfinite":["metrics.kl"]}';
    expect(decodeLine(line)).toMatchObject({ kind: "event", event: { metrics: { kl: null } } });
  });

  describe("of a benchmark", () => {
    const bench = (fields: object) => decodeLine(JSON.stringify({ v: 1, seq: 4, t: 2, type: "bench", ...fields }));

    it("are told apart by their kind, and an added kind is passed over", () => {
      const started = { kind: "cell_started", index: 0, total: 4, length: 2048, impl: "flash", window: null };
      expect(bench(started)).toEqual({ kind: "event", event: { v: 1, seq: 4, t: 2, type: "bench", ...started } });
      expect(bench({ kind: "weather" })).toEqual({ kind: "unknown", type: "bench" });
      expect(bench({})).toMatchObject({ kind: "malformed" });
      expect(bench({ kind: "cell", index: 0 })).toMatchObject({
        kind: "malformed",
        why: expect.stringContaining("bench.cell"),
      });
    });

    it("keep every field of a cell and of the result, which become a record", () => {
      const cell = {
        seq: 8,
        impl: "x",
        device: "cpu",
        dtype: "float32",
        status: "ok",
        fwd_ms: 1,
        later: { deep: [1] },
      };
      expect(bench({ kind: "cell", index: 0, cell })).toMatchObject({ event: { cell } });
      const result = { type: "bench", what: "attention", cells: [cell], later: true };
      expect(bench({ kind: "result", result })).toMatchObject({ event: { result } });
      expect(bench({ kind: "result", result: null })).toMatchObject({ event: { result: null } });
    });

    it("refuse a status that says nothing", () => {
      const cell = { seq: 8, impl: "x", device: "cpu", dtype: "float32", status: "perhaps" };
      expect(bench({ kind: "cell", index: 0, cell })).toMatchObject({
        kind: "malformed",
        why: expect.stringContaining("bench.cell.status"),
      });
    });
  });

  it("knows the types of the worker, and the marker that the command line adds", () => {
    expect([...EVENT_TYPES].sort()).toEqual(
      [
        "attempt",
        "beat",
        "bench",
        "checkpoint",
        "end",
        "episode",
        "eval",
        "eval_comparison",
        "eval_plan",
        "eval_report",
        "hello",
        "human",
        "model",
        "phase",
        "plan",
        "step",
        "trial",
        "warn",
      ].sort(),
    );
  });
});
