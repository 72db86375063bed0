/**
 * How a long installation is told to a person. Everything goes to stderr, so that stdout stays what a script asked for.
 * On a terminal one line is kept up to date; elsewhere each stage is a line, and a long one says every 15 s that it is
 * still at work.
 */
import type { Ora } from "ora";

export interface Report {
  /** A new stage begins; the one before it is done. */
  stage(text: string): void;
  /** How far the stage is: packages, megabytes. */
  detail(text: string): void;
  /** A sentence that stays. */
  note(text: string): void;
  /** The last stage is done, or was given up. */
  end(ok: boolean): void;
}

const REMIND_S = 15;

export async function reportTo(stream: NodeJS.WriteStream, env: NodeJS.ProcessEnv = process.env): Promise<Report> {
  if (!stream.isTTY || env.CI) return lines(stream);
  const { default: ora } = await import("ora");
  return spinner(ora({ stream, discardStdin: false }), stream);
}

function spinner(view: Ora, stream: NodeJS.WriteStream): Report {
  let [title, begun] = ["", 0];
  const seconds = () => `${Math.round((Date.now() - begun) / 1000)} s`;
  const end = (ok: boolean) => {
    if (title && ok) view.succeed(`${title} (${seconds()})`);
    else if (title) view.fail(title);
    title = "";
  };
  return {
    stage(text) {
      end(true);
      [title, begun] = [text, Date.now()];
      view.start(text);
    },
    detail(text) {
      view.text = `${title} (${[text, seconds()].filter(Boolean).join(", ")})`;
    },
    note(text) {
      view.clear();
      stream.write(`  ${text}\n`);
    },
    end,
  };
}

function lines(stream: NodeJS.WritableStream): Report {
  let [title, begun, reminded] = ["", 0, 0];
  const seconds = () => Math.round((Date.now() - begun) / 1000);
  const end = (ok: boolean) => {
    if (title && ok) stream.write(`  done in ${seconds()} s\n`);
    title = "";
  };
  return {
    stage(text) {
      end(true);
      [title, begun, reminded] = [text, Date.now(), 0];
      stream.write(`${text}\n`);
    },
    detail(text) {
      if (seconds() < reminded + REMIND_S) return;
      reminded = seconds();
      stream.write(`  ${[text, `${reminded} s`].filter(Boolean).join(", ")}\n`);
    },
    note(text) {
      stream.write(`  ${text}\n`);
    },
    end,
  };
}
