/** events.jsonl back into a state: the path of the live view, walked again. */
import { join } from "node:path";
import { decodeLine } from "../protocol/decode.js";
import { FILES } from "./dir.js";
import { linesOf } from "./lines.js";
import { initialState, reduce, type State } from "./state.js";

/** The state after all events of a run so far; the initial one when there are none. Lines that are no event are passed over. */
export function replay(dir: string): State {
  let state = initialState;
  for (const line of linesOf(join(dir, FILES.events))) {
    const decoded = decodeLine(line);
    if (decoded.kind === "event") state = reduce(state, decoded.event);
  }
  return state;
}
