/**
 * A growing file, followed: its bytes from the start, then what is added, until nobody writes any more.
 *
 * Polled, because change notices differ between systems and get lost on network disks. A file that became shorter or was
 * replaced is read from its start again. Half a line at the end waits for its other half; that is the splitter's work.
 */
import { type FileHandle, open, stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

export interface TailOptions {
  /** Asked whenever the end of the file is reached: is the writer gone? */
  over: () => boolean;
  signal?: AbortSignal;
  pollMs?: number;
}

/** `fresh` marks bytes that do not continue the ones before: the file was replaced or cut. */
export interface Piece {
  bytes: Buffer;
  fresh: boolean;
}

const CHUNK = 1 << 18;

export async function* tail(
  path: string,
  { over, signal, pollMs = 200 }: TailOptions,
): AsyncGenerator<Piece, void, void> {
  let handle: FileHandle | undefined;
  let at = 0;
  let fresh = false;
  try {
    while (!signal?.aborted) {
      handle ??= await openIfThere(path);
      if (handle !== undefined) {
        const buffer = Buffer.alloc(CHUNK);
        const { bytesRead } = await handle.read(buffer, 0, CHUNK, at);
        if (bytesRead > 0) {
          at += bytesRead;
          yield { bytes: buffer.subarray(0, bytesRead), fresh };
          fresh = false;
          continue;
        }
      }
      // Asked before the last look at the file, so that what was written just before the end is still read.
      const last = over();
      if (handle !== undefined && (await isOther(path, handle, at))) {
        await handle.close();
        handle = undefined;
        at = 0;
        fresh = true;
        continue;
      }
      if (last && (handle === undefined || (await handle.stat()).size <= at)) return;
      if (!last) await sleep(pollMs, undefined, signal === undefined ? {} : { signal }).catch(() => {});
    }
  } finally {
    await handle?.close();
  }
}

async function openIfThere(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, "r");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Whether `path` is by now another file than the open one, or shorter than what was read of it. */
async function isOther(path: string, handle: FileHandle, read: number): Promise<boolean> {
  const own = await handle.stat();
  if (own.size < read) return true;
  const named = await stat(path).catch(() => null);
  return named !== null && (named.ino !== own.ino || named.dev !== own.dev);
}
