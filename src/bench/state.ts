/**
 * A benchmark at one moment: `reduce(state, event) -> state`, pure. Cells are kept, they are few; the live window, the
 * lines of a log and the final table are drawn from this state.
 */
import type { BenchRecord, Cell } from "../protocol/bench.js";
import type { BenchEventOf, Event, EventOf } from "../protocol/events.js";
import type { Standing } from "../run/state.js";
import { type Warning, warned } from "../run/warnings.js";

/** The cell under way. */
export interface Underway {
  seq: number;
  impl: string;
  window: number | null;
  /** Worker seconds at its start. */
  since: number;
  stage: string | null;
  done: number | null;
  of: number | null;
}

export interface BenchState {
  plan: BenchEventOf<"plan"> | null;
  /** Finished, in the order they were measured. */
  cells: readonly Cell[];
  /** How many there will be; null before the first begins. */
  total: number | null;
  underway: Underway | null;
  /** Seconds that the newest finished cell took. */
  took: number | null;
  result: BenchEventOf<"result">["result"] | null;
  phase: EventOf<"phase"> | null;
  beat: EventOf<"beat"> | null;
  warnings: readonly Warning[];
  end: EventOf<"end"> | null;
  /** Worker seconds at the newest event. A benchmark has one attempt. */
  t: number;
  before: 0;
}

export const initialBench: BenchState = {
  plan: null,
  cells: [],
  total: null,
  underway: null,
  took: null,
  result: null,
  phase: null,
  beat: null,
  warnings: [],
  end: null,
  t: 0,
  before: 0,
};

export function reduceBench(state: BenchState, event: Event): BenchState {
  return { ...apply(state, event), t: Math.max(state.t, event.t) };
}

function apply(state: BenchState, event: Event): BenchState {
  switch (event.type) {
    case "bench":
      return onBench(state, event);
    case "phase":
      return { ...state, phase: event };
    case "beat":
      return { ...state, beat: event };
    case "warn":
      return { ...state, warnings: warned(state.warnings, event) };
    case "end":
      return { ...state, end: event, underway: null };
    default:
      return state;
  }
}

function onBench(state: BenchState, event: EventOf<"bench">): BenchState {
  switch (event.kind) {
    case "plan":
      return { ...state, plan: event };
    case "cell_started": {
      const { length: seq, impl, window = null, total, t } = event;
      return { ...state, total, underway: { seq, impl, window, since: t, stage: null, done: null, of: null } };
    }
    case "progress": {
      if (state.underway === null) return state;
      const { stage, done = null, total: of = null } = event;
      return { ...state, underway: { ...state.underway, stage, done, of } };
    }
    case "cell": {
      const took = state.underway === null ? null : event.t - state.underway.since;
      return { ...state, cells: [...state.cells, event.cell], underway: null, took };
    }
    case "result":
      return { ...state, result: event.result };
  }
}

/** Every cell that was planned has been measured, or could not be, and the worker said so. */
export function isWhole({ cells, total, end }: BenchState): boolean {
  return end?.status === "completed" && total !== null && cells.length === total;
}

/**
 * The record: as the worker wrote it, or made of what was measured when the worker died, or when it was too long for a
 * line. `stopped` says that cells are missing. Null before anything was planned.
 */
export function recordOf(state: BenchState, command: string): BenchRecord | null {
  const { plan, result, cells } = state;
  if (plan === null) return null;
  const stopped = !isWhole(state);
  if (result !== null) return { ...result, cells: result.cells ?? [...cells], stopped };
  const { what, device, device_name, dtype, threads, geometry, notes, machine, versions } = plan;
  const known = { device, device_name, dtype, threads, geometry, notes, machine, versions, command };
  return { type: "bench", what, cells: [...cells], ...known, stopped };
}

/** How far it has come, for the end of a worker that did not tell it. */
export function standingOfBench(state: BenchState): Standing {
  const { phase, underway } = state;
  const at = phase === null ? "before its first event" : `in phase ${phase.phase}`;
  const where = underway === null ? at : `while measuring ${cellName(underway)}`;
  return { t: state.t, ended: state.end !== null, where, step: null, checkpoint: null };
}

export function cellName({ seq, impl, window }: { seq: number; impl: string; window?: number | null | undefined }) {
  return `${impl} at ${seq} tokens${window ? `, window ${window}` : ""}`;
}
