/** The table of the newest training steps, and how a table is fitted to a width. Pure. */
import { metric, type StepRow } from "../run/state.js";
import { columns, compact, fixed, type Paint, small } from "./format.js";

/** One column of figures; `name` where there is room for all of them, `short` where there is not. */
export interface RankedColumn<Row> {
  name: string;
  short: string;
  width: number;
  /** Of the columns that do not fit, the highest rank is left out first. */
  rank: number;
  text: (row: Row) => string;
}

const number = (name: string, decimals: number) => (row: StepRow) => fixed(metric(row, name), decimals);

/** In the order of the table. */
const COLUMNS: readonly RankedColumn<StepRow>[] = [
  { name: "step", short: "step", width: 5, rank: 0, text: (row) => String(row.step) },
  { name: "reward", short: "reward", width: 6, rank: 1, text: number("reward", 3) },
  { name: "success", short: "success", width: 7, rank: 2, text: number("success", 3) },
  { name: "reward std", short: "std", width: 5, rank: 4, text: number("reward_std", 3) },
  { name: "zero-var", short: "zero-var", width: 8, rank: 3, text: number("frac_reward_zero_std", 2) },
  { name: "entropy", short: "entropy", width: 7, rank: 6, text: number("entropy", 3) },
  { name: "turns", short: "turns", width: 5, rank: 8, text: number("turns_per_episode", 1) },
  { name: "tool calls", short: "calls", width: 5, rank: 9, text: number("tool_calls_per_episode", 1) },
  { name: "logprob gap", short: "gap", width: 6, rank: 5, text: (row) => small(metric(row, "logprob_gap")) },
  { name: "grad norm", short: "grad", width: 5, rank: 10, text: number("grad_norm", 2) },
  { name: "tokens/s", short: "tok/s", width: 5, rank: 7, text: (row) => compact(metric(row, "tokens_per_second")) },
];

/** Beyond this the eye loses the row. */
const WIDEST_GAP = 3;

/** The columns that fit into `width`, by their names or short names, widened by what is left over. */
export function fitted<Row>(all: readonly RankedColumn<Row>[], width: number): RankedColumn<Row>[] {
  const total = (list: readonly RankedColumn<Row>[]) => list.reduce((sum, column) => sum + column.width + 2, -2);
  const long = all.map((column) => ({ ...column, width: Math.max(column.width, column.name.length) }));
  const whole = total(long) <= width;
  let shown: RankedColumn<Row>[] = whole ? long : all.map((column) => ({ ...column, name: column.short }));
  while (shown.length > 1 && total(shown) > width) {
    const last = Math.max(...shown.map((column) => column.rank));
    shown = shown.filter((column) => column.rank !== last);
  }
  const spare = Math.max(0, Math.min(WIDEST_GAP, Math.floor((width - total(shown)) / Math.max(1, shown.length - 1))));
  return shown.map((column, index) => ({
    ...column,
    width: Math.min(width, column.width + (index === 0 ? 0 : spare)),
  }));
}

export function stepTable(rows: readonly StepRow[], width: number, paint: Paint): string[] {
  const shown = fitted(COLUMNS, width);
  const head = shown.map((column) => paint("dim", column.name));
  const body = rows.map((row) =>
    shown.map((column) => (column.name === "reward" ? paint("bold", column.text(row)) : column.text(row))),
  );
  return columns(
    [head, ...body],
    shown.map((column) => ({ width: column.width, align: "right" as const })),
  );
}
