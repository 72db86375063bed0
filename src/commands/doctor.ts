/** `sinkflex doctor`: is everything there that training needs, and what to do about what is not. */
import { EXIT } from "../errors.js";
import type { DoctorOptions } from "../options.js";
import { type Check, judge, needsRebuild } from "../process/checks.js";
import { type Facts, gatherFacts } from "../process/facts.js";
import { painter, wrapText } from "../ui/format.js";

const STYLE = { ok: "green", warn: "yellow", fail: "red" } as const;

export async function run(options: DoctorOptions): Promise<number> {
  let facts = await gatherFacts(options.python);
  if (options.fix && (await repair(facts, options))) facts = await gatherFacts(options.python);
  const checks = judge(facts);
  const ok = checks.every(({ status }) => status !== "fail");
  if (options.json) {
    process.stdout.write(`${JSON.stringify({ type: "doctor", ok, python: facts.python?.path ?? null, checks })}\n`);
  } else {
    process.stdout.write(render(checks, options.color, Math.min(process.stdout.columns ?? 100, 100)));
  }
  return ok ? EXIT.ok : EXIT.environment;
}

/** Builds the managed environment where that can help. A Python that the user named is theirs to change. */
async function repair(facts: Facts, options: DoctorOptions): Promise<boolean> {
  const named = options.python ?? process.env.SINKFLEX_PYTHON;
  if (named) {
    const by = options.python ? "--python" : "SINKFLEX_PYTHON";
    process.stderr.write(
      `${by} names ${named}: it is yours, so nothing is changed there. Without ${by}, --fix builds SinkFlex's own environment.\n`,
    );
    return false;
  }
  const again = needsRebuild(facts);
  if (facts.python && !again) return false;
  const [{ buildEnvironment }, { reportTo }] = await Promise.all([
    import("../process/build.js"),
    import("../process/progress.js"),
  ]);
  await buildEnvironment({ report: await reportTo(process.stderr), again });
  return true;
}

/** One row a check: its state in words, then its name and detail, and under a failing one what to do. */
function render(checks: readonly Check[], color: boolean, width: number): string {
  const paint = painter(color);
  const rows = checks.flatMap(({ id, status, detail, fix }) => {
    const lines = wrapText(detail, width - 20);
    const head = `${paint(STYLE[status], status.padEnd(5))} ${id.padEnd(13)} ${lines[0] ?? ""}`;
    const advice = fix && status !== "ok" ? wrapText(`fix: ${fix}`, width - 20) : [];
    return [head, ...[...lines.slice(1), ...advice].map((line) => `${" ".repeat(20)}${line}`)];
  });
  const failed = checks.filter(({ status }) => status === "fail").length;
  const verdict = failed === 0 ? "Ready to train." : `${failed} of ${checks.length} checks failed.`;
  return `${[...rows, "", verdict].join("\n")}\n`;
}
