/**
 * The live window: the picture, painted over itself at most ten times a second, and once a second for the clock.
 * What should stay is pushed above it.
 */
import { createLogUpdate } from "log-update";
import type { Event } from "../protocol/events.js";
import { labelRows, painter } from "./format.js";
import type { Picture, Screen, Seen } from "./screen.js";

const PAINT_MS = 100;

/** A frame that the terminal may have wrapped anew: how many rows it takes at `width`. */
function rowsAt(width: number, frame: readonly number[]): number {
  return frame.reduce((sum, length) => sum + Math.max(1, Math.ceil(length / width)), 0);
}

export class LiveScreen<S extends Seen> implements Screen<S> {
  readonly #out: NodeJS.WriteStream;
  readonly #color: boolean;
  readonly #log: ReturnType<typeof createLogUpdate>;
  readonly #timer: NodeJS.Timeout;
  #newest = performance.now();
  readonly #picture: Picture<S>;
  #state: S;
  #dirty = true;
  #closed = false;
  #second = -1;
  #frame: number[] = [];
  #notice: string;
  #stopping = false;
  readonly #onResize = () => this.#resize();

  /** `hint` is shown until a notice takes its place: what the keys do. */
  constructor(out: NodeJS.WriteStream, color: boolean, hint: string, picture: Picture<S>) {
    this.#notice = hint;
    this.#picture = picture;
    this.#state = picture.initial;
    this.#out = out;
    this.#color = color;
    this.#log = createLogUpdate(out);
    this.#timer = setInterval(() => this.#tick(), PAINT_MS);
    this.#out.on("resize", this.#onResize);
    this.#tick();
  }

  lines(): void {}

  event(state: S, event: Event): void {
    this.#state = state;
    this.#dirty = true;
    this.#newest = performance.now();
    const above = this.#picture.above(event);
    if (above.length > 0) this.#above(labelRows(above, this.#width));
  }

  notice(text: string, stopping: boolean): void {
    this.#notice = text;
    this.#stopping = stopping;
    this.#log.clear(); // the terminal has echoed ^C into the window
    this.#frame = [];
    this.#paint();
  }

  close(state: S): void {
    if (this.#closed) return;
    this.#closed = true;
    clearInterval(this.#timer);
    this.#out.off("resize", this.#onResize);
    this.#state = state;
    this.#paint();
    this.#log.done();
  }

  #tick(): void {
    const second = Math.floor(this.#elapsed());
    if (!this.#dirty && second === this.#second) return;
    this.#second = second;
    this.#paint();
  }

  get #width(): number {
    return Math.max(10, this.#out.columns ?? 80);
  }

  #elapsed(): number {
    const { before, t, end } = this.#state;
    return before + t + (end === null ? (performance.now() - this.#newest) / 1000 : 0);
  }

  #paint(): void {
    this.#dirty = false;
    const rows = this.#picture.view(this.#state, {
      width: this.#width,
      height: (this.#out.rows ?? 24) - 1,
      color: this.#color,
      elapsed: this.#elapsed(),
      stopping: this.#stopping,
      ...(this.#closed ? {} : { notice: this.#notice }),
    });
    // log-update patches a frame in place; when the number of rows changes, its patch leaves old rows behind.
    if (rows.length !== this.#frame.length) this.#log.clear();
    this.#frame = rows.map((row) => row.replace(STYLES, "").length);
    if (rows.length > 0) this.#log(rows.join("\n"));
  }

  #above(rows: readonly string[]): void {
    const paint = painter(this.#color);
    this.#log.persist(rows.map((row) => paint("dim", row)).join("\n"));
    this.#frame = [];
    this.#paint();
  }

  /** A narrower terminal has broken the rows of the old frame: erase all it takes now, then draw anew. */
  #resize(): void {
    const broken = rowsAt(Math.max(1, this.#out.columns ?? 80), this.#frame) - this.#frame.length;
    if (broken > 0) this.#out.write("\x1b[1A\x1b[2K".repeat(broken));
    this.#log.clear();
    this.#paint();
  }
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the colours.
const STYLES = /\x1b\[[0-9;]*m/g;
