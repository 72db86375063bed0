/**
 * What `sinkflex bench` measures, as the worker tells it and as a record keeps it.
 *
 * Times in milliseconds (medians of the repetitions), sizes in bytes, TFLOP/s in 10^12 per second. A spread is largest
 * minus smallest over the median, 0.03 for 3 %. Objects keep fields that are not named here: a record is passed on whole.
 */
import { z } from "zod";

const maybe = z.number().nullish();
const text = z.string().nullish();

export const cellSchema = z.looseObject({
  seq: z.int(),
  impl: z.string(),
  device: z.string(),
  dtype: z.string(),
  window: z.int().nullish(),
  status: z.enum(["ok", "does_not_fit", "failed"]),
  reason: text,
  fwd_ms: maybe,
  bwd_ms: maybe,
  /** Forward and backward of a training step; only of a model. */
  step_ms: maybe,
  tokens_per_second: maybe,
  fwd_spread: maybe,
  bwd_spread: maybe,
  /** Process-CPU time of forward and backward. */
  cpu_ms: maybe,
  repetitions: maybe,
  /** Above the inputs. */
  peak_bytes: maybe,
  floor_bytes: maybe,
  tflops_fwd: maybe,
  tflops_bwd: maybe,
  /** Of forward and backward together. */
  tflops: maybe,
  error: z.record(z.string(), z.number().nullable()).nullish(),
  parity_limit: z.record(z.string(), z.number().nullable()).nullish(),
});

/** Megabytes (10^6 bytes) a token, fitted over the lengths of an implementation. */
const slopeSchema = z.looseObject({
  impl: z.string(),
  window: z.int().nullish(),
  mb_per_token: maybe,
  last_mb_per_token: maybe,
  breakdown: z.record(z.string(), z.number().nullable()).nullish(),
});

export const recordSchema = z.looseObject({
  type: z.literal("bench"),
  what: z.string(),
  cells: z.array(cellSchema),
  slopes: z.array(slopeSchema).nullish(),
  device: text,
  dtype: text,
  threads: maybe,
  geometry: z.record(z.string(), z.unknown()).nullish(),
});

/** The fields of the event `bench`, by its kind. A length is called `length` here: the envelope has a `seq` of its own. */
export const benchKinds = {
  plan: {
    what: z.string(),
    device: z.string(),
    device_name: text,
    dtype: z.string(),
    threads: maybe,
    geometry: z.record(z.string(), z.unknown()),
    impls: z.array(z.string()),
    lengths: z.array(z.int()),
    notes: z.array(z.string()).default([]),
    versions: z.unknown(),
    machine: z.unknown(),
  },
  cell_started: { index: z.int(), total: z.int(), length: z.int(), impl: z.string(), window: z.int().nullish() },
  progress: { index: z.int(), stage: z.string(), done: maybe, total: maybe },
  cell: { index: z.int(), cell: cellSchema },
  /** A record that is too long for a line comes without its cells, or not at all: they have come one by one. */
  result: { result: recordSchema.extend({ cells: z.array(cellSchema).nullish() }).nullable() },
} as const;

export type Cell = z.infer<typeof cellSchema>;
export type BenchRecord = z.infer<typeof recordSchema>;
