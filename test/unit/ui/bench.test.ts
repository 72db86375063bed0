import { describe, expect, it } from "vitest";
import { compare } from "../../../src/bench/compare.js";
import { initialBench, recordOf, reduceBench } from "../../../src/bench/state.js";
import type { BenchRecord, Cell } from "../../../src/protocol/bench.js";
import { comparisonRows } from "../../../src/ui/bench/compare.js";
import { reportRows } from "../../../src/ui/bench/report.js";
import { byProcessor, cellTable, figure, mib, percent, times } from "../../../src/ui/bench/table.js";
import { benchPicture } from "../../../src/ui/bench/view.js";
import { clip, painter } from "../../../src/ui/format.js";
import { PlainScreen } from "../../../src/ui/plain.js";
import type { Look } from "../../../src/ui/screen.js";
import { benched, benchRecord, cell, stateOf, without } from "../../fixtures/bench.js";
import type { Script } from "../../fixtures/events.js";

const paint = painter(false);
const flat = (text: string) => text.replaceAll(/\s+/g, " ");
const reason = "not tried: it needs 34.4 GB, and 21.0 GB are free";
const both = (seq: number, changes: Partial<Cell> = {}) => [cell(seq, "eager", changes), cell(seq, "flash", changes)];
const cells = [...both(2048), without(4096, "eager", "does_not_fit", reason), cell(4096, "flash")];

describe("figures", () => {
  it.each([
    [0, "0.00"],
    [0.0523, "0.052"],
    [0.0994, "0.10"],
    [1.234, "1.23"],
    [9.996, "10.0"],
    [12.34, "12.3"],
    [99.96, "100"],
    [1234.5, "1235"],
    [null, "-"],
    [undefined, "-"],
  ])("%j is %s", (value, text) => expect(figure(value)).toBe(text));

  it("have their units", () => {
    expect([mib(1.5 * 1024 * 1024), times(0.254), times(null), percent(0.031), percent(1.2), percent(null)]).toEqual([
      "1.50",
      "0.25x",
      "-",
      "3.1 %",
      "120 %",
      "-",
    ]);
  });
});

describe("the table of cells", () => {
  const table = (list: readonly Cell[], width: number, what = "attention") =>
    cellTable(list, { what, processor: false, width, paint });

  it("shows everything where there is room", () => {
    expect(table(cells, 160).map((row) => row.replaceAll(/ {2,}/g, "  ").trim())).toEqual([
      "tokens  impl  forward ms  backward ms  spread  TFLOP/s fwd  TFLOP/s bwd  peak MiB  x floor  time ratio  memory ratio  worst error  CPU ms",
      "2048  eager  32.0  80.0  3.0 %  0.26  0.26  256  7.11x  1.00x  1.00x  dq 3.1e-6  112",
      "2048  flash  8.00  20.0  3.0 %  0.26  0.26  18.0  0.50x  0.25x  0.070x  dq 3.1e-6  28.0",
      `4096  eager  does not fit: ${reason}`,
      "4096  flash  32.0  80.0  3.0 %  0.26  0.26  36.0  0.50x  -  -  dq 3.1e-6  112",
    ]);
  });

  it("is this at 80 columns", () => {
    expect(table(cells, 80)).toEqual([
      "tokens  impl   fwd ms  bwd ms  peak MiB  x floor  time x   mem x         error",
      "  2048  eager    32.0    80.0       256    7.11x   1.00x   1.00x     dq 3.1e-6",
      "  2048  flash    8.00    20.0      18.0    0.50x   0.25x  0.070x     dq 3.1e-6",
      `  4096  eager  does not fit: ${reason}`,
      "  4096  flash    32.0    80.0      36.0    0.50x       -       -     dq 3.1e-6",
    ]);
  });

  it.each([200, 120, 100, 80, 60, 40, 30])("at %i columns leaves out whole columns, and no row is broken", (width) => {
    const wide = both(16_777_216, { impl: "transformers", fwd_ms: 123_456, bwd_ms: 987_654, window: 1_048_576 });
    for (const row of [...table(cells, width), ...table([...cells, ...wide], width)])
      expect(clip(row, width)).toBe(row);
    const [head = ""] = table(cells, width);
    for (const name of ["tokens", "impl"]) expect(head).toContain(name);
    if (width >= 60) for (const name of ["fwd|forward", "peak", "time", "mem"]) expect(head).toMatch(new RegExp(name));
    expect(head).not.toContain("…");
  });

  it("compares only with the base of the same length and window, and only when it was measured", () => {
    const rows = [cell(2048, "eager", { window: 128 }), cell(2048, "flash"), cell(4096, "eager", { status: "failed" })];
    const text = table([...rows, cell(4096, "flash")], 160).join("\n");
    expect(text).toMatch(/2048 +128 +eager .* 1\.00x +1\.00x/);
    expect(text).toMatch(/2048 +full +flash .* - +- +dq/);
    expect(text).toMatch(/4096 +full +flash .* - +- +dq/);
  });

  it("on one thread of a processor compares process-CPU time, which other processes do not falsify", () => {
    const rows = [cell(2048, "eager", { cpu_ms: 100 }), cell(2048, "flash", { cpu_ms: 40, fwd_ms: 900 })];
    const look = { what: "attention", width: 160, paint };
    expect(cellTable(rows, { ...look, processor: true })[2]).toContain(" 0.40x ");
    expect(cellTable(rows, { ...look, processor: false })[2]).toContain(" 8.21x "); // 920 of 112 ms
    const untold = rows.map((one) => ({ ...one, cpu_ms: null }));
    expect(cellTable(untold, { ...look, processor: true })[2]).toContain(" 8.21x ");
    expect(
      [
        { device: "cpu", threads: 1 },
        { device: "cpu", threads: 2 },
        { device: "cuda", threads: 1 },
      ].map(byProcessor),
    ).toEqual([true, false, false]);
  });

  it("compares log-probs with naive", () => {
    const text = table([cell(1024, "naive", { fwd_ms: 4, bwd_ms: 4 }), cell(1024, "linear")], 160, "log-prob").join(
      "\n",
    );
    expect(text).toMatch(/linear .* 0\.88x/); // 7 of 8 ms
  });

  it("of a training step shows step, tokens per second and no operator's columns", () => {
    const rows = [cell(1024, "eager"), cell(1024, "ours", { step_ms: 14, tokens_per_second: 73_143 })];
    const [head, eager, ours] = table(rows, 160, "model").map((row) => row.split(/ {2,}/).filter(Boolean));
    expect(head).toEqual(
      ["tokens", "impl", "step ms", "spread", "tokens/s", "peak MiB", "x floor", "time ratio", "memory ratio"].concat([
        "worst error",
        "CPU ms",
      ]),
    );
    expect(eager?.slice(0, 6)).toEqual(["1024", "eager", "28.0", "3.0 %", "36.6k", "64.0"]);
    expect(ours?.slice(0, 5)).toEqual(["1024", "ours", "14.0", "3.0 %", "73.1k"]);
  });

  it("leaves out columns that have no figure, and stands without any", () => {
    const plain = both(8, { floor_bytes: null, tflops_fwd: null, tflops_bwd: null, cpu_ms: null });
    expect(table(plain, 160)[0]).not.toMatch(/floor|TFLOP|CPU/);
    expect(table([without(8, "eager", "failed", "x")], 80)).toEqual(["tokens  impl", "     8  eager  failed: x"]);
  });

  it("names the error that is nearest to its limit", () => {
    const error = { out: 9e-7, dq: 1e-6, da: null };
    expect(table([cell(8, "flash", { error })], 160)[1]).toContain("out 9.0e-7");
    expect(table([cell(8, "flash", { error, parity_limit: null })], 160)[1]).toContain("dq 1.0e-6");
  });

  it("never lets text of a worker act on the terminal", () => {
    const evil = [cell(8, "a\x1b[31mb"), without(16, "x", "failed", "a\x1b]0;t\x07\nb")];
    expect(table(evil, 120).join("")).not.toMatch(/\p{Cc}/u);
  });
});

describe("the live window", () => {
  const view = (script: Script, look: Partial<Look> = {}) =>
    benchPicture.view(stateOf(script), { width: 80, color: false, notice: "Ctrl-C: stop", ...look });

  it("waits, prepares, measures", () => {
    expect(benchPicture.view(initialBench, { width: 60, color: false, elapsed: 1 })).toEqual([
      `bench${" ".repeat(47)}starting`,
      "waiting for Python to start  1 s",
    ]);
    expect(view(benched([]))[1]).toBe("preparing  3 s");
    const script = benched(cells.slice(0, 2), 4);
    script.add("bench", { kind: "cell_started", index: 2, total: 4, length: 4096, impl: "eager", window: null }, 1);
    script.add("bench", { kind: "progress", index: 2, stage: "time", done: 2, total: 7 }, 2);
    const elapsed = script.t + 4;
    expect(view(script, { elapsed })).toEqual([
      `bench attention${" ".repeat(56)}measuring`,
      `2 of 4 cells  ${"━".repeat(25)}${"─".repeat(25)}  30 s`,
      "",
      "tokens  impl   fwd ms  bwd ms  peak MiB  x floor  time x   mem x         error",
      "  2048  eager    32.0    80.0       256    7.11x   1.00x   1.00x     dq 3.1e-6",
      "  2048  flash    8.00    20.0      18.0    0.50x   0.25x  0.070x     dq 3.1e-6",
      "  4096  eager  time 2 of 7, 6 s",
      "",
      "Ctrl-C: stop",
    ]);
  });

  it.each([
    [120, 30],
    [80, 24],
    [60, 12],
    [20, 10],
    [8, 6],
  ])("fits a window of %i x %i; the newest cells are kept", (width, height) => {
    const many = [1, 2, 4, 8, 16, 32].flatMap((k) => both(1024 * k));
    const script = benched(many, 40).add("warn", { code: "a", what: "a warning of many words ".repeat(8) });
    script.add("bench", { kind: "cell_started", index: 12, total: 40, length: 65_536, impl: "eager", window: null });
    const rows = view(script, { width, height });
    expect(rows.length).toBeLessThanOrEqual(height);
    for (const row of rows) expect(clip(row, width)).toBe(row);
    if (width >= 60) expect(rows.join("\n")).toMatch(/32768 +flash/);
    if (width >= 60) expect(rows.join("\n")).toMatch(/65536 +eager +starting/);
  });

  it("says that it is stopping, and leaves nothing behind at the end", () => {
    const script = benched(cells, 8);
    expect(view(script, { stopping: true, notice: "Finishing" })[0]).toMatch(/ stopping$/);
    expect(view(script.add("end", { status: "stopped", exit_code: 130 }))).toEqual([]);
  });

  it("has colour only when asked for", () => {
    expect(view(benched(cells)).join("")).not.toContain("\x1b");
    expect(view(benched(cells), { color: true }).join("")).toContain("\x1b[33mdoes not fit");
  });
});

describe("lines of a log", () => {
  function written(script: Script, more: { verbose?: boolean; quiet?: boolean } = {}): string[] {
    let text = "";
    const taste = { json: false, quiet: false, verbose: false, color: false, ...more };
    const screen = new PlainScreen({ write: (part) => (text += part) }, taste, benchPicture);
    let state = initialBench;
    for (const event of script.events) {
      state = reduceBench(state, event);
      screen.event(state, event);
    }
    return text.split("\n").slice(0, -1);
  }

  it("say what was chosen and one line a finished cell, without escape bytes", () => {
    const lines = written(benched(cells, 12));
    expect(lines).toEqual([
      "bench  attention on cpu AMD EPYC, 1 thread, float32, heads 16/2, head_dim 64, sinks",
      "cells  eager, flash at 2048, 4096 tokens",
      "note   device cpu: PyTorch finds no CUDA device",
      "cell  1/12  eager at 2048 tokens  forward 32.0 ms  backward 80.0 ms  spread 3.0 %  peak 256 MiB  (10 s)",
      "cell  2/12  flash at 2048 tokens  forward 8.00 ms  backward 20.0 ms  spread 3.0 %  peak 18.0 MiB  (10 s)",
      `cell  3/12  eager at 4096 tokens  does not fit: ${reason}  (10 s)`,
      "cell  4/12  flash at 4096 tokens  forward 32.0 ms  backward 80.0 ms  spread 3.0 %  peak 36.0 MiB  (10 s)",
    ]);
    expect(lines.join("\n")).not.toMatch(/\p{Cc}(?<!\n)/u);
  });

  it("of a training step say the step; of a model with a name, the name", () => {
    const geometry = { name: "scaled", layers: 4, train: "lora", parameters: 1e6, num_q_heads: 8, num_kv_heads: 2 };
    const lines = written(benched([cell(1024, "ours")], 1, { what: "model", impls: ["ours"], geometry }));
    expect(lines[0]).toBe("bench  model on cpu AMD EPYC, 1 thread, float32, scaled, training lora");
    expect(lines.at(-1)).toBe("cell 1/1  ours at 1024 tokens  step 7.00 ms  spread 3.0 %  peak 9.00 MiB  (10 s)");
  });

  it("break a long silence, once a minute, with the cell and its stage", () => {
    const script = benched(cells, 8);
    script.add("bench", { kind: "cell_started", index: 4, total: 8, length: 8192, impl: "eager", window: null });
    script.add("bench", { kind: "progress", index: 4, stage: "warm-up", done: 0, total: 1 });
    for (let n = 1; n <= 30; n++)
      script.add("beat", { phase: "loading", step: 0, waiting_for: "cell 5 of 8", rss_bytes: 2e8 }, 5);
    const lines = written(script).filter((line) => line.startsWith("still measuring"));
    expect(lines).toHaveLength(2);
    expect(lines[0]).toBe("still measuring eager at 8192 tokens: warm-up 0 of 1, 1 m 44 s, memory 200 MB");
  });

  it("--verbose says what begins; --quiet says nothing", () => {
    expect(written(benched(cells), { verbose: true })).toContain("measuring eager at 2048 tokens");
    expect(written(benched(cells), { quiet: true })).toEqual([]);
  });
});

describe("the report", () => {
  const finished = (
    list: readonly Cell[],
    status: "completed" | "stopped" | "failed" = "completed",
    total = list.length,
  ) => stateOf(benched(list, total).add("end", { status, exit_code: 0 }));
  const report = (list: readonly Cell[], look = {}, changes: Partial<BenchRecord> = {}) => {
    const state = finished(list);
    const record = { ...recordOf(state, "sinkflex bench"), ...changes } as BenchRecord;
    return reportRows(record, state, { width: 80, color: false, quiet: false, ...look });
  };

  it("orders by length, then window, then implementation, however they were measured", () => {
    const window = { window: 128 };
    const list = [cell(2048, "flash", window), ...both(4096), cell(2048, "eager", window), ...both(2048).reverse()];
    const rows = report(list, { width: 160 }).filter((row) => /^ *\d/.test(row));
    expect(rows.map((row) => row.trim().split(/ +/).slice(0, 3).join(" "))).toEqual(
      ["2048 full eager", "2048 full flash", "2048 128 eager", "2048 128 flash"].concat([
        "4096 full eager",
        "4096 full flash",
      ]),
    );
  });

  it("says how it was counted, of the columns that are shown", () => {
    const counted = (width: number) => flat(report(cells, { width }).join(" ")).replace(/^.*counted/, "counted");
    expect(counted(160)).toBe(
      "counted Times are medians of 5 repetitions, the spread is (largest - smallest) / median. TFLOP/s: full causal as " +
        "S^2 / 2 pairs, backward as 2.5 x forward. Peak: forward and backward, above the inputs. Floor: the least that the " +
        "backward pass must hold. Ratios are to eager of the same length, those of time by process-CPU time.",
    );
    expect(counted(60)).toBe(
      "counted Times are medians of 5 repetitions. Peak: forward and backward, above the inputs. Ratios are to eager of the " +
        "same length, those of time by process-CPU time.",
    );
    const mixed = [cell(2048, "eager", { repetitions: 20 }), cell(4096, "eager", { repetitions: 3 })];
    expect(report(mixed).join(" ")).toContain("medians of 3 to 20 repetitions");
  });

  it("repeats in full what the table had to cut, and nothing else", () => {
    expect(
      report(cells)
        .join("\n")
        .match(/34\.4 GB/g),
    ).toHaveLength(1);
    const narrow = report(cells, { width: 60 });
    expect(narrow.join("\n")).toMatch(/4096 {2}eager {2}does not fit: not tried: it needs 34\.4 GB, a…/);
    expect(narrow.join(" ")).toContain(`eager at 4096 tokens: does not fit: ${reason}`);
    for (const width of [60, 38, 20]) for (const row of report(cells, { width })) expect(clip(row, width)).toBe(row);
  });

  it("shows slopes with what they are spent on, as sentences where a table is too wide", () => {
    const breakdown = { scores: 0.4, logits: 0.05, hidden_states: 0.02, experts: 0.012 };
    const slopes = [
      { impl: "eager", mb_per_token: 0.482, last_mb_per_token: 0.71, breakdown },
      { impl: "ours", mb_per_token: 0.0812, last_mb_per_token: 0.081, breakdown: { ...breakdown, scores: 0 } },
    ];
    const text = report(both(1024), {}, { slopes }).join("\n");
    expect(text).toContain(
      [
        "MB per token    all  longest two  scores  logits  hidden states  experts",
        "eager          0.48         0.71    0.40   0.050          0.020    0.012",
        "ours          0.081        0.081    0.00   0.050          0.020    0.012",
      ].join("\n"),
    );
    const narrow = report(both(1024), { width: 50 }, { slopes });
    expect(narrow.join(" ")).toContain("MB per token of eager: all 0.48, longest two 0.71, scores 0.40, logits 0.050,");
    for (const row of narrow) expect(clip(row, 50)).toBe(row);
    expect(report(both(1024), {}, { slopes: [] }).join("\n")).not.toContain("MB per token");
  });

  it.each(["stopped", "failed"] as const)("one that %s early says so first", (status) => {
    const state = finished(cells, status, 8);
    const rows = reportRows(recordOf(state, "x") as BenchRecord, state, { width: 80, color: false, quiet: false });
    expect(rows[0]).toMatch(new RegExp(`^${status} after 4 of 8 cells, 44 s$`));
  });

  it("--quiet is the table alone, and a benchmark without cells is no table", () => {
    expect(report(cells, { quiet: true })).toHaveLength(5);
    expect(report([])).toEqual(["stopped before the first cell, 3 s"]);
  });
});

describe("the comparison", () => {
  const old = benchRecord([...both(2048), cell(4096, "flash")]);
  const now = benchRecord([
    cell(2048, "flash", { fwd_ms: 6, bwd_ms: 30, peak_bytes: 16 * 1024 * 1024 }),
    cell(4096, "flash"),
    cell(8192, "flash"),
  ]);

  it("shows old, new, their ratio and whether that is a change", () => {
    expect(comparisonRows(compare(old, now), "old.json", { width: 80, color: false })).toEqual([
      "compared with old.json",
      "                    old       new   ratio",
      "flash at 2048 tokens",
      "  forward ms       8.00      6.00   0.75x  faster",
      "  backward ms      20.0      30.0   1.50x  slower",
      "  peak MiB         18.0      16.0   0.89x  less",
      "flash at 4096 tokens",
      "  forward ms       32.0      32.0   1.00x  no change",
      "  backward ms      80.0      80.0   1.00x  no change",
      "  peak MiB         36.0      36.0   1.00x  no change",
      "only in the old record: eager at 2048 tokens.",
      "not in the old record: flash at 8192 tokens.",
      "A time has changed when the medians differ by more than both spreads, a peak",
      "when it differs by more than 2 % and 1.00 MiB.",
    ]);
  });

  it.each([120, 80, 60, 52])("fits %i columns, in colour too", (width) => {
    const long = compare(old, { ...now, machine: { cpu: "another processor with a long name" } });
    for (const row of comparisonRows(long, "a/long/path/".repeat(12), { width, color: false }))
      expect(clip(row, width)).toBe(row);
    expect(comparisonRows(long, "old.json", { width, color: true }).join("\n")).toMatch(/\p{Cc}\[32m.*faster/u);
  });
});
