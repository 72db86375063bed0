/** --json: stdout carries the event stream, line by line as it was recorded, and nothing else. */
import { once } from "node:events";
import type { Writable } from "node:stream";
import type { Output, Screen } from "./screen.js";

export class JsonScreen<S> implements Screen<S> {
  readonly #out: Writable;
  readonly #people: Output;

  constructor(out: Writable, people: Output) {
    this.#out = out;
    this.#people = people;
  }

  lines(bytes: Buffer): void | Promise<void> {
    if (this.#out.destroyed || this.#out.write(bytes)) return;
    return this.#drained();
  }

  event(): void {}

  notice(text: string): void {
    this.#people.write(`${text}\n`);
  }

  close(): void {}

  /** A reader that goes away must not hold the run: then nothing drains any more, but the stream closes. */
  async #drained(): Promise<void> {
    const over = new AbortController();
    const { signal } = over;
    const quiet = () => {};
    await Promise.race([
      once(this.#out, "drain", { signal }).catch(quiet),
      once(this.#out, "close", { signal }).catch(quiet),
      once(this.#out, "error", { signal }).catch(quiet),
    ]);
    over.abort();
  }
}
