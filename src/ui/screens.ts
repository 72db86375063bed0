/** Which screen a run is shown on. */
import type { Writable } from "node:stream";
import { JsonScreen } from "./json.js";
import { LiveScreen } from "./live.js";
import { PlainScreen } from "./plain.js";
import { type Output, type Screen, type Taste, wantsLive } from "./screen.js";

/** `hint` says what Ctrl-C does; only the live window has room for it. */
export function screenFor(
  out: NodeJS.WriteStream & Writable,
  people: Output,
  taste: Taste,
  env: Record<string, string | undefined>,
  hint: string,
): Screen {
  if (taste.json) return new JsonScreen(out, people);
  if (wantsLive(out, taste, env)) return new LiveScreen(out, taste.color, hint);
  return new PlainScreen(out, taste);
}
