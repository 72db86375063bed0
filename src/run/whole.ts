/** Files that are replaced as a whole, so that a reader never sees half of one, and why a place can't be written. */
import { closeSync, openSync, renameSync, rmSync, writeFileSync } from "node:fs";

/** Written beside and renamed. Throws the system's error, and then leaves the old file as it was. */
export function replaceFile(path: string, content: string | Uint8Array): void {
  const draft = draftOf(path);
  try {
    writeFileSync(draft, content);
    renameSync(draft, path);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
}

/** Proves that `path` can be written, by beginning to. Throws the system's error. */
export function tryPlace(path: string): void {
  closeSync(openSync(draftOf(path), "w"));
  rmSync(draftOf(path), { force: true });
}

function draftOf(path: string): string {
  return `${path}.${process.pid}.new`;
}

const WHY_NOT: Record<string, string> = {
  ENOSPC: "The disk is full.",
  EDQUOT: "Your quota on this disk is used up.",
  EACCES: "You may not write there.",
  EPERM: "You may not write there.",
  EROFS: "The file system is read-only.",
  ENOENT: "There is no such directory.",
  ENOTDIR: "A part of the path is a file, not a directory.",
  EISDIR: "It is a directory.",
  ENAMETOOLONG: "The path is too long.",
};

/** A system error on writing as a sentence. */
export function whyNot(error: unknown): string {
  const { code = "", message } = error as NodeJS.ErrnoException;
  return WHY_NOT[code] ?? `The system says: ${message}.`;
}
