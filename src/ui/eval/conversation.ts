/**
 * An evaluation in which a person takes part: no live window but a conversation, line by line, with a prompt whenever the
 * worker asks. What is typed while nobody asks is kept and stands at the next prompt, to be read again before it is sent.
 * Ctrl-C and Ctrl-D stop the evaluation.
 */
import { createInterface, type Interface } from "node:readline";
import { Writable } from "node:stream";
import type { EvalState } from "../../eval/state.js";
import type { Event, EventOf } from "../../protocol/events.js";
import { labelRows, painter, printable, wrapText } from "../format.js";
import { PlainScreen } from "../plain.js";
import type { Screen, Taste } from "../screen.js";
import { PROMPT, saidRows } from "./said.js";
import { evalPicture } from "./view.js";

const STOPPING = "Stopping: this trial is dropped, finished ones are kept; Ctrl-C again to stop now";

interface Voice {
  say(line: string): void;
  stop(): void;
}

/** The echo of the keys: shown only while somebody is asked. */
class Echo extends Writable {
  open = false;
  readonly #out: NodeJS.WriteStream;

  constructor(out: NodeJS.WriteStream) {
    super();
    this.#out = out;
  }

  get columns(): number {
    return this.#out.columns ?? 80;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    if (this.open) this.#out.write(chunk);
    done();
  }
}

export class Conversation implements Screen<EvalState> {
  readonly #in: NodeJS.ReadStream;
  readonly #out: NodeJS.WriteStream;
  readonly #taste: Taste;
  readonly #plain: PlainScreen<EvalState>;
  readonly #echo: Echo;
  #keys: Interface | null = null;
  #words: readonly string[] = [];
  #early: string[] = [];
  #stopping = false;
  #over = false;
  readonly #onResize = () => this.#echo.emit("resize");

  constructor(input: NodeJS.ReadStream, out: NodeJS.WriteStream, taste: Taste) {
    this.#in = input;
    this.#out = out;
    this.#taste = taste;
    this.#echo = new Echo(out);
    this.#plain = new PlainScreen({ write: (text) => this.#write(text) }, taste, evalPicture);
  }

  /** From now on the keys are read and lines go to `voice`. */
  listen(voice: Voice): void {
    this.#keys = createInterface({
      input: this.#in,
      output: this.#echo,
      terminal: true,
      prompt: PROMPT,
      completer: (line: string) => [this.#words.filter((word) => word.startsWith(line)), line],
    });
    this.#out.on("resize", this.#onResize);
    this.#keys.on("line", (line) => {
      if (!this.#echo.open) {
        this.#early.push(line);
        return;
      }
      this.#echo.open = false;
      voice.say(line);
    });
    this.#keys.on("SIGINT", () => voice.stop());
    this.#keys.on("close", () => {
      if (!this.#over) voice.stop();
    });
  }

  lines(): void {}

  event(state: EvalState, event: Event): void {
    if (event.type === "human") this.#human(event);
    else if (event.type === "eval_plan") this.#plan(event);
    else if (event.type === "trial" && event.kind === "started") this.#begin(state, event);
    else if (event.type === "trial" && event.kind === "finished") this.#finished(state, event);
    else if (event.type !== "beat") this.#plain.event(state, event); // nobody is hurried
  }

  notice(text: string, stopping: boolean): void {
    const prompted = this.#echo.open;
    if (stopping) this.#echo.open = false; // nothing that is typed now would be heard
    const first = stopping && !this.#stopping;
    this.#stopping ||= stopping;
    this.#write(`${prompted && stopping ? "\n" : ""}${first ? STOPPING : text}\n`);
  }

  close(): void {
    if (this.#over) return;
    this.#over = true;
    this.#out.off("resize", this.#onResize);
    this.#keys?.close();
  }

  get #width(): number {
    return Math.max(20, this.#out.columns ?? 80);
  }

  #human(event: EventOf<"human">): void {
    if (event.kind === "ask") this.#ask(event.words);
    else this.#rows(saidRows(event, { width: this.#width, color: this.#taste.color }));
  }

  #plan(event: EventOf<"eval_plan">): void {
    if (!this.#taste.quiet) this.#rows(labelRows(evalPicture.above(event), this.#width));
  }

  #begin({ plan, done }: EvalState, event: EventOf<"trial">): void {
    const which = plan === null ? "" : `, conversation ${plan.done_before + done + 1} of ${plan.total}`;
    const text = printable(`task ${event.task_id}, trial ${event.trial + 1}${which}`);
    const paint = painter(this.#taste.color);
    this.#rows(["", ...wrapText(text, this.#width).map((row) => paint(["bold", "cyan"], row))]);
  }

  #finished(state: EvalState, event: Event): void {
    if (!this.#taste.quiet) this.#out.write("\n");
    this.#plain.event(state, event);
  }

  /** What was typed early stands in the line, before what was begun after it. */
  #ask(words: readonly string[]): void {
    const keys = this.#keys;
    if (keys === null || this.#stopping) return;
    this.#words = words;
    this.#out.write("\n");
    if (this.#early.length > 0) {
      const text = [...this.#early, keys.line].join(" ").trimEnd();
      this.#early = [];
      keys.write(null, { ctrl: true, name: "e" });
      keys.write(null, { ctrl: true, name: "u" });
      keys.write(text);
    }
    this.#echo.open = true;
    keys.prompt(true);
  }

  #rows(rows: readonly string[]): void {
    this.#write(`${rows.join("\n")}\n`);
  }

  /** Text that comes while a line is being typed leaves it above and repeats it below. */
  #write(text: string): void {
    this.#out.write(this.#echo.open ? `\n${text}` : text);
    if (this.#echo.open && !this.#over) this.#keys?.prompt(true);
  }
}
