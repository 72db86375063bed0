/**
 * Lines for a log: no escape bytes but colour that was asked for, no carriage returns; what was written never changes.
 * Which lines an event is worth is the picture's to say; warnings are told here, once a code.
 */
import type { Event, EventOf } from "../protocol/events.js";
import { type Paint, painter, printable, sentences } from "./format.js";
import type { Output, Picture, Screen, Seen, Taste } from "./screen.js";

export class PlainScreen<S extends Seen> implements Screen<S> {
  readonly #out: Output;
  readonly #taste: Taste;
  readonly #lines: Picture<S>["lines"];
  readonly #paint: Paint;
  #lastLine = 0;

  constructor(out: Output, taste: Taste, { lines }: Pick<Picture<S>, "lines">) {
    this.#out = out;
    this.#taste = taste;
    this.#lines = lines;
    this.#paint = painter(taste.color);
  }

  lines(): void {}

  event(state: S, event: Event): void {
    if (event.type === "warn") {
      const warning = state.warnings.find((other) => other.code === event.code);
      if (warning?.count === 1) this.#warn(event);
    }
    if (this.#taste.quiet) return;
    const silent = event.t - this.#lastLine;
    const rows = this.#lines(state, event, { verbose: this.#taste.verbose, silent });
    if (rows.length === 0) return;
    this.#lastLine = event.t;
    for (const row of rows) this.#out.write(`${row}\n`);
  }

  notice(text: string): void {
    this.#out.write(`${text}\n`);
  }

  close(): void {}

  #warn(event: EventOf<"warn">): void {
    this.#out.write(`${this.#paint("yellow", "warning")}  ${printable(sentences(event.what, event.fix))}\n`);
  }
}
