/** What shows a run while it goes on. Three of them exist (live, plain, json), all fed by the same states. */
import type { Event } from "../protocol/events.js";
import type { State } from "../run/state.js";

export interface Screen {
  /** Recorded lines, newlines included, as the worker wrote them. Awaited, so that a slow reader slows the reading. */
  lines(bytes: Buffer): void | Promise<void>;
  /** `state` already contains `event`. */
  event(state: State, event: Event): void;
  /** One sentence about what the command line is doing; `stopping` when it is ending the run. */
  notice(text: string, stopping: boolean): void;
  /** The last picture. Nothing is shown afterwards. */
  close(state: State): void;
}

/** How a picture of a run is to be drawn. */
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
