/** What shows a worker while it goes on. Three of them exist (live, plain, json), all fed by the same states. */
import type { Event } from "../protocol/events.js";
import type { Warning } from "../run/warnings.js";

/** What a screen reads of a state itself; the rest is the picture's to draw. */
export interface Seen {
  /** Worker seconds of this attempt at the newest event, and of all attempts before. */
  t: number;
  before: number;
  end: unknown;
  warnings: readonly Warning[];
}

/** How a verb's states look. Pure. */
export interface Picture<S> {
  initial: S;
  /** The live window; no rows when nothing of it is to stay. */
  view(state: S, look: Look): string[];
  /** What this event leaves above the live window, as labels and texts. */
  above(event: Event): readonly (readonly [label: string, text: string])[];
  /** The lines that this event is worth in a log. */
  lines(state: S, event: Event, since: Since): string[];
}

export interface Since {
  verbose: boolean;
  /** Seconds since the last line. */
  silent: number;
}

export interface Screen<S> {
  /** Recorded lines, newlines included, as the worker wrote them. Awaited, so that a slow reader slows the reading. */
  lines(bytes: Buffer): void | Promise<void>;
  /** `state` already contains `event`. */
  event(state: S, event: Event): void;
  /** One sentence about what the command line is doing; `stopping` when it is ending the run. */
  notice(text: string, stopping: boolean): void;
  /** The last picture. Nothing is shown afterwards. */
  close(state: S): void;
}

/** How a picture is to be drawn. */
export interface Look {
  width: number;
  color: boolean;
  /** Rows of the window; the table is shortened to fit. */
  height?: number;
  /** Seconds since the first attempt began, when a clock runs; otherwise the time of the newest event is shown. */
  elapsed?: number;
  /** One sentence from the command line, such as what Ctrl-C will do. */
  notice?: string;
  /** The command line has asked for the end. */
  stopping?: boolean;
  /** The run left no `end` and nobody works on it any more. */
  interrupted?: boolean;
}

/** Where text for people goes, and how it looks there. */
export interface Output {
  write(text: string): unknown;
  isTTY?: boolean;
  columns?: number;
  rows?: number;
}

export interface Taste {
  json: boolean;
  quiet: boolean;
  verbose: boolean;
  color: boolean;
}

/** A live window needs a terminal that a person watches: not a CI log, not a dumb terminal. */
export function wantsLive(stream: Output, taste: Taste, env: Record<string, string | undefined>): boolean {
  const ci = env.CI !== undefined && !["", "0", "false"].includes(env.CI);
  return stream.isTTY === true && !ci && env.TERM !== "dumb" && !taste.json && !taste.quiet;
}
