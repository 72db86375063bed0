/**
 * events.jsonl: the record of a run, one event a line in the order they came, over all attempts. Only ever appended to.
 * Synchronous, so that an event is in the file before anything is made of it.
 */
import { closeSync, fstatSync, fsyncSync, openSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { cannotWrite, FILES } from "./dir.js";

const NEWLINE = 0x0a;

export class Recorder {
  readonly path: string;
  readonly #file: number;
  #open = true;

  /** A command line that was killed may have left half a line; the next one begins on a fresh line all the same. */
  constructor(dir: string) {
    this.path = join(dir, FILES.events);
    try {
      this.#file = openSync(this.path, "a+");
      const { size } = fstatSync(this.#file);
      const last = Buffer.alloc(1);
      if (size > 0 && readSync(this.#file, last, 0, 1, size - 1) === 1 && last[0] !== NEWLINE)
        this.#append(Buffer.from("\n"));
    } catch (error) {
      throw cannotWrite(join(dir, FILES.events), error);
    }
  }

  /** Whole lines, newlines included. Throws a UserError when they can't be written. */
  write(lines: Buffer): void {
    try {
      this.#append(lines);
    } catch (error) {
      throw cannotWrite(this.path, error);
    }
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    try {
      fsyncSync(this.#file);
    } catch {
      // Not every file system can; what was written stays written.
    }
    closeSync(this.#file);
  }

  #append(bytes: Buffer): void {
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#file, bytes, at);
  }
}
