/**
 * Bytes from a pipe to lines, and lines to events.
 *
 * A pipe may cut anywhere: inside a character, inside a line. So bytes are collected until a newline byte (which never
 * occurs inside a multi-byte UTF-8 character) and only whole lines are decoded. A last line without a newline counts.
 */
import { BENCH_KINDS, EVENT_TYPES, type Event, eventSchema, PROTOCOL_VERSION } from "./events.js";

const NEWLINE = 0x0a;
const RETURN = 0x0d;

/** A line longer than this is dropped as malformed, so that a stream without newlines can't fill the memory. */
const LONGEST_LINE = 16 * 1024 * 1024;

/** Splits a byte stream into lines; the newline (and a carriage return before it) is removed, blank lines are dropped. */
export class LineSplitter {
  #parts: Buffer[] = [];
  #length = 0;
  /** Lines that were longer than the limit and therefore lost. */
  overlong = 0;
  #skipping = false;

  constructor(readonly limit = LONGEST_LINE) {}

  /** The lines that `chunk` completes. */
  push(chunk: Buffer): Buffer[] {
    const lines: Buffer[] = [];
    let start = 0;
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, start)) {
      this.#keep(chunk.subarray(start, at));
      this.#finish(lines);
      start = at + 1;
    }
    this.#keep(chunk.subarray(start));
    return lines;
  }

  /** What was left without a newline at the end of the stream. */
  end(): Buffer[] {
    const lines: Buffer[] = [];
    this.#finish(lines);
    return lines;
  }

  #keep(part: Buffer): void {
    if (part.length === 0 || this.#skipping) return;
    this.#parts.push(part);
    this.#length += part.length;
    if (this.#length > this.limit) {
      this.#skipping = true;
      this.overlong += 1;
      this.#parts = [];
      this.#length = 0;
    }
  }

  #finish(lines: Buffer[]): void {
    this.#skipping = false;
    if (this.#length === 0) return;
    const whole = this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts, this.#length);
    this.#parts = [];
    this.#length = 0;
    const line = whole.at(-1) === RETURN ? whole.subarray(0, -1) : whole;
    if (line.length > 0) lines.push(line);
  }
}

export type Decoded =
  | { kind: "event"; event: Event }
  /** A type, or a kind of `bench`, that this version does not know: an additive change, kept in the file and otherwise passed over. */
  | { kind: "unknown"; type: string }
  /** Another major version: nothing it says can be trusted. */
  | { kind: "version"; found: unknown }
  | { kind: "malformed"; why: string };

/** One line to one event. Never throws. */
export function decodeLine(line: Buffer | string): Decoded {
  let value: unknown;
  try {
    value = JSON.parse(typeof line === "string" ? line : line.toString("utf8"));
  } catch (error) {
    return { kind: "malformed", why: `not JSON (${(error as Error).message})` };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { kind: "malformed", why: "not a JSON object" };
  }
  const { v, type, kind } = value as { v?: unknown; type?: unknown; kind?: unknown };
  if (v === undefined || typeof type !== "string") return { kind: "malformed", why: "no v or no type" };
  if (v !== PROTOCOL_VERSION) return { kind: "version", found: v };
  if (!EVENT_TYPES.has(type)) return { kind: "unknown", type };
  if (type === "bench" && typeof kind === "string" && !BENCH_KINDS.has(kind)) return { kind: "unknown", type };
  const parsed = eventSchema.safeParse(value);
  if (parsed.success) return { kind: "event", event: parsed.data };
  const issue = parsed.error.issues[0];
  return { kind: "malformed", why: `${type}.${issue?.path.join(".") ?? ""}: ${issue?.message ?? "invalid"}` };
}
