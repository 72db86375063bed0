/** Which screen a worker is shown on, and the picture of a training run. */
import type { Writable } from "node:stream";
import { initialState, type State } from "../run/state.js";
import { JsonScreen } from "./json.js";
import { runLines } from "./lines.js";
import { LiveScreen } from "./live.js";
import { PlainScreen } from "./plain.js";
import { planRows } from "./plan.js";
import { type Output, type Picture, type Screen, type Seen, type Taste, wantsLive } from "./screen.js";
import { view } from "./view.js";

export const runPicture: Picture<State> = {
  initial: initialState,
  view,
  above: (event) => (event.type === "plan" ? planRows(event) : []),
  lines: runLines,
};

/** `hint` says what Ctrl-C does; only the live window has room for it. */
export function screenFor<S extends Seen>(
  out: NodeJS.WriteStream & Writable,
  people: Output,
  taste: Taste,
  env: Record<string, string | undefined>,
  hint: string,
  picture: Picture<S>,
): Screen<S> {
  if (taste.json) return new JsonScreen(out, people);
  if (wantsLive(out, taste, env)) return new LiveScreen(out, taste.color, hint, picture);
  return new PlainScreen(out, taste, picture);
}
