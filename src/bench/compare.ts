/**
 * A benchmark beside an older one. Pure. Cells are the same when what, length, implementation, device, dtype and window
 * are; ratios are new over old. A time has changed when its medians differ by more than both spreads; a peak, which has
 * no spread, when it differs by more than what moves it from one process to the next.
 */
import { type Problem, UserError } from "../errors.js";
import type { BenchRecord, Cell } from "../protocol/bench.js";
import type { BenchRequest } from "./request.js";

/** A high-water mark moves by as much as the larger of these from one process to the next. */
export const PEAK_NOISE = { share: 0.02, bytes: 1 << 20 };

export type Verdict = "less" | "more" | "same" | "no spread";

export interface Change {
  name: "forward" | "backward" | "peak";
  old: number;
  now: number;
  ratio: number;
  verdict: Verdict;
}

export interface Compared {
  cell: Cell;
  changes: Change[];
  /** Where one of the two has no figures: what became of it. */
  status: string | null;
}

export interface Comparison {
  cells: Compared[];
  onlyOld: Cell[];
  onlyNew: Cell[];
  /** What else differs: the machine, versions. */
  notes: string[];
}

/** The parts that two benchmarks must share before their cells may be compared. */
interface Setting {
  what: string;
  device?: string | null | undefined;
  dtype?: string | null | undefined;
  geometry?: Record<string, unknown> | null | undefined;
}

/** The setting as far as the request decides it. */
export function settingOf(request: BenchRequest): Setting {
  const { what, device, dtype, num_q_heads, num_kv_heads, head_dim, vocabulary, hidden, head, layers, train } = request;
  const { geometry: name } = request;
  return {
    what,
    device: device === "auto" ? null : device,
    dtype: dtype === "auto" ? null : dtype,
    geometry: { name, num_q_heads, num_kv_heads, head_dim, vocabulary, hidden, head, layers, train },
  };
}

/** Refuses a record of another setting; what either side does not say is no difference. `shown` names the record. */
export function needSame(old: BenchRecord, now: Setting, shown: string): void {
  const differences = [
    differs("what", old.what, now.what),
    differs("device", old.device, now.device),
    differs("dtype", old.dtype, now.dtype),
    ...Object.entries(now.geometry ?? {})
      .filter(([key]) => key !== "window") // cells are matched by their window
      .map(([key, value]) => differs(key, old.geometry?.[key], value)),
  ].filter((text) => text !== null);
  if (differences.length === 0) return;
  const command = typeof old.command === "string" ? ` Its command was \`${old.command}\`.` : "";
  const problem: Problem = {
    code: "SF-BENCH-OTHER",
    what: `${shown} was measured otherwise: ${differences.join(", ")}.`,
    why: "A ratio of two different things says nothing.",
    fix: `Measure the same, or leave --compare out.${command}`,
  };
  throw new UserError(problem, { left: "Nothing was measured." });
}

function differs(name: string, old: unknown, now: unknown): string | null {
  if (old === undefined || old === null || now === undefined || now === null) return null;
  const [before, after] = [JSON.stringify(old), JSON.stringify(now)];
  return before === after ? null : `${name} ${plain(old, before)}, not ${plain(now, after)}`;
}

function plain(value: unknown, json: string): string {
  return typeof value === "string" ? value : json;
}

export function compare(old: BenchRecord, now: BenchRecord): Comparison {
  const before = new Map(old.cells.map((cell) => [keyOf(cell), cell]));
  const after = new Set(now.cells.map(keyOf));
  const cells = now.cells.flatMap((cell): Compared[] => {
    const other = before.get(keyOf(cell));
    return other === undefined ? [] : [compared(other, cell)];
  });
  return {
    cells,
    onlyOld: old.cells.filter((cell) => !after.has(keyOf(cell))),
    onlyNew: now.cells.filter((cell) => !before.has(keyOf(cell))),
    notes: [
      ...otherwise("threads", { threads: old.threads }, { threads: now.threads }),
      ...otherwise("machine", old.machine, now.machine),
      ...otherwise("versions", old.versions, now.versions),
    ],
  };
}

function keyOf({ seq, impl, device, dtype, window }: Cell): string {
  return JSON.stringify([seq, impl, device, dtype, window ?? null]);
}

const WORDS = { ok: "ok", does_not_fit: "does not fit", failed: "failed" } as const;

function compared(old: Cell, cell: Cell): Compared {
  if (old.status !== "ok" || cell.status !== "ok") {
    const [was, is] = [WORDS[old.status], WORDS[cell.status]];
    return { cell, changes: [], status: was === is ? `${is}, as before` : `${is}, was ${was}` };
  }
  const peak = (bytes: Maybe) => Math.max(PEAK_NOISE.share, PEAK_NOISE.bytes / (bytes || 1));
  const changes = [
    change("forward", old.fwd_ms, cell.fwd_ms, { old: old.fwd_spread, now: cell.fwd_spread }),
    change("backward", old.bwd_ms, cell.bwd_ms, { old: old.bwd_spread, now: cell.bwd_spread }),
    change("peak", old.peak_bytes, cell.peak_bytes, { old: peak(old.peak_bytes), now: peak(cell.peak_bytes) }),
  ].filter((one) => one !== null);
  return { cell, changes, status: null };
}

type Maybe = number | null | undefined;

function change(name: Change["name"], old: Maybe, now: Maybe, spread: { old: Maybe; now: Maybe }): Change | null {
  if (typeof old !== "number" || typeof now !== "number" || old <= 0) return null;
  return { name, old, now, ratio: now / old, verdict: verdict(old, now, spread) };
}

function verdict(old: number, now: number, spread: { old: Maybe; now: Maybe }): Verdict {
  if (typeof spread.old !== "number" || typeof spread.now !== "number") return "no spread";
  if (Math.abs(now - old) <= Math.max(old * spread.old, now * spread.now)) return "same";
  return now < old ? "less" : "more";
}

/** What changes from one moment to the next and says nothing about the machine. */
const PASSING = /^(free_bytes|load_average)$/;

function otherwise(name: string, old: unknown, now: unknown): string[] {
  const [before, after] = [fields(old), fields(now)];
  const parts = Object.keys({ ...before, ...after })
    .filter((key) => !PASSING.test(key))
    .map((key) => differs(key, before[key], after[key]))
    .filter((text) => text !== null);
  return parts.length === 0 ? [] : [`other ${name} then: ${parts.join(", ")}`];
}

function fields(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
