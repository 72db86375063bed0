/** The bytes and the text of a config file, or why they cannot be had. */
import { open, readdir } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, dirname, join } from "node:path";
import { type ErrorCode, nearest, type Place, UserError } from "../errors.js";
import { locator } from "./document.js";

const MAX_BYTES = 256 * 1024;

export function expandHome(path: string): string {
  return /^~(?=\/|$)/.test(path) ? homedir() + path.slice(1) : path;
}

export async function readText(file: string): Promise<{ text: string; bytes: Uint8Array }> {
  const bytes = await readBytes(expandHome(file)).catch(async (error: NodeJS.ErrnoException) => {
    throw await unreadable(file, error);
  });
  if (bytes.length > MAX_BYTES) {
    const fix = "Is this the right file?";
    throw refused("SF-CONFIG-FILE-TOO-LARGE", `${file} is larger than ${MAX_BYTES / 1024} KiB`, fix);
  }
  return { text: decode(file, bytes), bytes };
}

/** At most one byte more than allowed, so that a device or a pipe without an end is no trap. */
async function readBytes(file: string): Promise<Uint8Array> {
  const handle = await open(file);
  try {
    const buffer = Buffer.alloc(MAX_BYTES + 1);
    let length = 0;
    while (length < buffer.length) {
      const { bytesRead } = await handle.read(buffer, length, buffer.length - length);
      if (bytesRead === 0) break;
      length += bytesRead;
    }
    return buffer.subarray(0, length);
  } finally {
    await handle.close();
  }
}

async function unreadable(file: string, error: NodeJS.ErrnoException): Promise<UserError> {
  switch (error.code) {
    case "ENOENT":
    case "ENOTDIR":
      return refused("SF-CONFIG-FILE-MISSING", `there is no file ${file}`, await otherFile(file));
    case "EISDIR":
      return refused(
        "SF-CONFIG-FILE-DIRECTORY",
        `${file} is a directory, not a config file`,
        await otherFile(join(file, "config.yaml")),
      );
    case "EACCES":
    case "EPERM":
      return refused("SF-CONFIG-FILE-UNREADABLE", `${file} may not be read`, "Check its permissions.");
    default:
      return refused("SF-CONFIG-FILE-UNREADABLE", `${file} cannot be read: ${error.message}`, undefined);
  }
}

/** The file that was probably meant. */
async function otherFile(file: string): Promise<string | undefined> {
  if (/^[a-z_.0-9]+=/.test(file)) return `To override a key write \`--set ${file}\`, after the config file.`;
  const folder = dirname(file);
  const names = (await readdir(folder).catch(() => [])).filter((name) => /\.(ya?ml|json)$/.test(name));
  const meant = nearest(basename(file), names);
  if (meant) return `Did you mean \`${join(folder, meant)}\`?`;
  return names.length > 0 ? `In ${folder} there are ${names.slice(0, 8).join(", ")}.` : undefined;
}

function decode(file: string, bytes: Uint8Array): string {
  const fix = "Save it as UTF-8; every editor can.";
  if ((bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff)) {
    throw refused("SF-CONFIG-FILE-ENCODING", `${file} is UTF-16 text`, fix);
  }
  if (bytes.includes(0))
    throw refused("SF-CONFIG-FILE-ENCODING", `${file} is not a text file`, "Is this the right file?");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes); // a byte order mark is dropped
  } catch {
    const text = new TextDecoder("utf-8").decode(bytes);
    const at = text.indexOf("\u{fffd}");
    throw refused("SF-CONFIG-FILE-ENCODING", `${file} is not UTF-8 text`, fix, locator(file, text)(at, at + 1));
  }
}

function refused(code: ErrorCode, what: string, fix: string | undefined, where?: Place): UserError {
  return new UserError({ code, what, where, fix }, { left: "Nothing was started." });
}
