/**
 * From a key press to the end of the worker, in steps.
 *
 * First signal: the worker finishes its step, writes a checkpoint and ends. Second: SIGTERM to its group, SIGKILL five
 * seconds later. Third: SIGKILL. A signal that comes before the worker exists is kept and passed on when it does.
 */

/** What the ladder needs of a worker. */
export interface Stoppable {
  stop(): void;
  terminate(): void;
  kill(): void;
}

export type StopSignal = "SIGINT" | "SIGTERM" | "SIGHUP";

const SIGNALS: readonly StopSignal[] = ["SIGINT", "SIGTERM", "SIGHUP"];

/** One key press can arrive twice: the terminal signals the whole foreground group and npm passes its own on. */
const SAME_PRESS_MS = 300;

export class StopLadder {
  /** The signal that began the end; null while nobody asked for one. */
  first: StopSignal | null = null;
  presses = 0;
  #worker: Stoppable | null = null;
  #last = Number.NEGATIVE_INFINITY;
  readonly #notify: (presses: number) => void;
  readonly #listeners = SIGNALS.map((signal) => [signal, () => this.press(signal)] as const);

  /** Listens until `dispose`. `notify` is told the number of presses so far. */
  constructor(notify: (presses: number) => void) {
    this.#notify = notify;
    for (const [signal, listener] of this.#listeners) process.on(signal, listener);
  }

  attach(worker: Stoppable): void {
    this.#worker = worker;
    if (this.presses >= 1) worker.stop();
    if (this.presses >= 2) worker.terminate();
  }

  press(signal: StopSignal, now = performance.now()): void {
    if (now - this.#last < SAME_PRESS_MS) return;
    this.#last = now;
    this.first ??= signal;
    this.presses += 1;
    if (this.presses === 1) this.#worker?.stop();
    else if (this.presses === 2) this.#worker?.terminate();
    else this.#worker?.kill();
    this.#notify(this.presses);
  }

  dispose(): void {
    for (const [signal, listener] of this.#listeners) process.off(signal, listener);
  }
}
