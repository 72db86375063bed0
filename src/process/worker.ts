/**
 * The Python child: how it is started, told to stop, made to stop, and known to be gone.
 *
 * stdin carries control (JSON lines; its end tells the worker that the command line is gone), file descriptor 3 carries
 * events, stdout and stderr go straight into a file, so no pipe can fill up and no grandchild holding them can delay
 * the end. The worker leads a process group of its own: Ctrl-C on the terminal reaches only the command line, and what
 * the worker started can be ended with it.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import type { Readable, Writable } from "node:stream";

export interface WorkerExit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export interface Launch {
  command: string;
  args: readonly string[];
  cwd: string;
  env: NodeJS.ProcessEnv;
  /** stdout and stderr are appended to this file. */
  log: string;
}

/** After SIGTERM, before SIGKILL. */
const GRACE_MS = 5000;

/** How long the event pipe may stay silent after the worker is gone, should somebody who left its group hold it open. */
const DRAIN_MS = 1000;

export class Worker {
  readonly pid: number;
  readonly exited: Promise<WorkerExit>;
  readonly #child: ChildProcess;
  readonly #control: Writable;
  readonly #events: Readable;
  #ending: NodeJS.Timeout | undefined;
  #bytes = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.pid = child.pid as number;
    this.#events = child.stdio[3] as Readable;
    this.#control = child.stdin as Writable;
    this.#control.on("error", () => {}); // the worker closed its input or is gone; `exited` tells
    this.exited = new Promise((resolve) => {
      child.once("exit", (code, signal) => {
        clearTimeout(this.#ending);
        this.#signalGroup("SIGKILL"); // what the worker left behind
        this.#control.destroy();
        this.#drain();
        resolve({ code, signal });
      });
    });
  }

  /** Resolves when the process exists. Rejects (ENOENT, EACCES) when there is nothing to start. */
  static start(launch: Launch): Promise<Worker> {
    const log = openSync(launch.log, "a");
    try {
      const child = spawn(launch.command, launch.args, {
        cwd: launch.cwd,
        env: launch.env,
        detached: true,
        stdio: ["pipe", log, log, "pipe"],
      });
      return new Promise((resolve, reject) => {
        child.on("error", reject);
        child.once("spawn", () => resolve(new Worker(child)));
      });
    } finally {
      closeSync(log);
    }
  }

  /** Alive until its exit has been seen: `killed` only means that a signal was sent. */
  get alive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Bytes of events, read no faster than they are taken; ends when the worker and all it started let go of the pipe. */
  async *events(): AsyncGenerator<Buffer, void, void> {
    try {
      for await (const chunk of this.#events) {
        this.#bytes += (chunk as Buffer).length;
        yield chunk as Buffer;
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ERR_STREAM_PREMATURE_CLOSE") throw error;
    }
  }

  /** Asks for an end after the current step. Written at once; a worker that is still starting reads it later. */
  stop(): void {
    if (this.alive && this.#control.writable) this.#control.write(`${JSON.stringify({ type: "stop" })}\n`);
  }

  /** Hands on a line that a person typed, where the worker asked for one. */
  say(text: string): void {
    if (this.alive && this.#control.writable) this.#control.write(`${JSON.stringify({ type: "say", text })}\n`);
  }

  /** SIGTERM to the group; SIGKILL when the worker is still there after `grace` milliseconds. */
  terminate(grace = GRACE_MS): void {
    if (!this.alive) return;
    this.#signalGroup("SIGTERM");
    this.#ending ??= setTimeout(() => this.kill(), grace);
  }

  kill(): void {
    if (this.alive) this.#signalGroup("SIGKILL");
  }

  #signalGroup(signal: NodeJS.Signals): void {
    try {
      process.kill(-this.pid, signal);
    } catch {
      // No such group: all of it is gone.
    }
  }

  /** Cuts the pipe once it has been empty for a while. What is buffered waits for its reader, however slow. */
  #drain(): void {
    if (this.#events.closed) return; // its `close` has been: nothing would end the timer before it fires
    let taken = -1;
    const timer = setInterval(() => {
      const quiet = this.#events.readableLength === 0 && taken === this.#bytes;
      taken = this.#bytes;
      if (quiet) this.#events.destroy();
      if (this.#events.destroyed || this.#events.readableEnded) clearInterval(timer);
    }, DRAIN_MS);
    this.#events.once("close", () => clearInterval(timer));
  }
}
