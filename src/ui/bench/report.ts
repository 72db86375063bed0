/** What is said when a benchmark is over: the table, why cells have no figures, slopes, and how it was counted. Pure. */
import { baseline } from "../../bench/choices.js";
import { type BenchState, cellName, isWhole } from "../../bench/state.js";
import type { BenchRecord, Cell } from "../../protocol/bench.js";
import { join } from "../blocks.js";
import { columns, duration, type Paint, painter, plural, printable, wrapText } from "../format.js";
import { byProcessor, cellTable, figure, inOrder, words } from "./table.js";

interface Look {
  width: number;
  color: boolean;
}

export function reportRows(record: BenchRecord, state: BenchState, look: Look & { quiet: boolean }): string[] {
  const paint = painter(look.color);
  const order = state.plan?.impls ?? [];
  const cells = inOrder(record.cells, order);
  const processor = byProcessor(record);
  const table = cells.length === 0 ? [] : cellTable(cells, { what: record.what, processor, width: look.width, paint });
  if (look.quiet) return table;
  const counted = conventions(record, cells, table[0] ?? "", look, paint);
  return join([ending(state, paint), table, reasons(cells, table, look), slopes(record, look, paint), counted]);
}

/** Only an end before its time is worth a row: a whole table speaks for itself. */
function ending(state: BenchState, paint: Paint): string[] {
  if (isWhole(state)) return [];
  const how = state.end?.status === "failed" ? "failed" : "stopped";
  const done = state.cells.length;
  const when = done === 0 ? "before the first cell" : `after ${done} of ${plural(state.total ?? done, "cell")}`;
  return [paint(["bold", "yellow"], `${how} ${when}, ${duration(state.t)}`)];
}

/** The whole sentence of every cell without figures, where the table had to cut it. */
function reasons(cells: readonly Cell[], table: readonly string[], { width }: Look): string[] {
  const shown = table.join("\n");
  const cut = cells.filter((cell) => cell.status !== "ok" && !shown.includes(words(cell)));
  return cut.flatMap((cell) => wrapText(`${printable(cellName(cell))}: ${words(cell)}`, width));
}

/** Megabytes (10^6 bytes) that a token costs: over all lengths, between the two longest, and what they are spent on. */
function slopes({ slopes: list }: BenchRecord, { width }: Look, paint: Paint): string[] {
  const known = (list ?? []).filter((one) => typeof one.mb_per_token === "number");
  const windows = known.some((one) => one.window);
  const parts = [...new Set(known.flatMap((one) => Object.keys(one.breakdown ?? {})))];
  const rows = known.map((one) => [
    printable(one.impl) + (windows ? ` ${one.window ? `window ${one.window}` : "full"}` : ""),
    figure(one.mb_per_token),
    figure(one.last_mb_per_token),
    ...parts.map((name) => figure(one.breakdown?.[name])),
  ]);
  if (rows.length === 0) return [];
  const head = ["MB per token", "all", "longest two", ...parts.map((name) => printable(name).replaceAll("_", " "))];
  const spec = head.map((name, at) => ({
    width: Math.max(name.length, ...rows.map((row) => (row[at] ?? "").length)),
    align: at === 0 ? ("left" as const) : ("right" as const),
  }));
  if (spec.reduce((sum, one) => sum + one.width + 2, -2) <= width) {
    const [first = "", ...rest] = columns([head, ...rows], spec);
    return [paint("dim", first), ...rest];
  }
  // Too narrow for a table: a sentence an implementation.
  return rows.flatMap(([name, ...values]) => {
    const told = values.map((value, at) => `${head[at + 1]} ${value}`).filter((text) => !text.endsWith(" -"));
    return wrapText(`MB per token of ${name}: ${told.join(", ")}`, width);
  });
}

/** How the figures were counted; only of the columns that the table has (`head`). */
function conventions(record: BenchRecord, cells: readonly Cell[], head: string, look: Look, paint: Paint): string[] {
  const measured = cells.filter((cell) => cell.status === "ok");
  if (measured.length === 0) return [];
  const like = `${baseline(record.what)} of the same length${measured.some((cell) => cell.window) ? " and window" : ""}`;
  const processor = byProcessor(record) && measured.some((cell) => typeof cell.cpu_ms === "number");
  const text = [
    `Times are medians of ${repetitions(measured)}${head.includes("spread") ? ", the spread is (largest - smallest) / median." : "."}`,
    head.includes("TF") &&
      record.what === "attention" &&
      "TFLOP/s: full causal as S^2 / 2 pairs, backward as 2.5 x forward.",
    "Peak: forward and backward, above the inputs.",
    head.includes("x floor") && "Floor: the least that the backward pass must hold.",
    `Ratios are to ${like}${processor ? ", those of time by process-CPU time." : "."}`,
  ];
  const label = look.width < 40 ? "" : "counted   ";
  return wrapText(text.filter(Boolean).join(" "), look.width - label.length).map(
    (row, index) => `${index === 0 ? paint("dim", label) : " ".repeat(label.length)}${row}`,
  );
}

function repetitions(cells: readonly Cell[]): string {
  const counts = cells.map((cell) => cell.repetitions).filter((one) => typeof one === "number");
  if (counts.length === 0) return "the repetitions";
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  return least === most ? plural(most, "repetition") : `${least} to ${most} repetitions`;
}
