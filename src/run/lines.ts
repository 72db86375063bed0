/** A file as lines, read in pieces: memory does not grow with the file. A file that is not there has none. */
import { closeSync, openSync, readSync } from "node:fs";
import { LineSplitter } from "../protocol/decode.js";

const CHUNK = 1 << 20;

export function* linesOf(path: string): Generator<Buffer, void, void> {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
    throw error;
  }
  try {
    const splitter = new LineSplitter();
    const buffer = Buffer.alloc(CHUNK);
    for (let length = readSync(file, buffer); length > 0; length = readSync(file, buffer)) {
      yield* splitter.push(Buffer.from(buffer.subarray(0, length)));
    }
    yield* splitter.end();
  } finally {
    closeSync(file);
  }
}
