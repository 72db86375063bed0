/** What a run will do, before it does it. Pure. */
import type { EventOf } from "../protocol/events.js";
import { compact, plural, printable, roughly } from "./format.js";

/** What was chosen, in sentences; shown once when the worker has decided. */
export function planRows(plan: EventOf<"plan">): [label: string, text: string][] {
  const threads = plan.threads === null ? "" : `, ${plural(plan.threads, "thread")}`;
  const name = plan.device_name && plan.device !== "cpu" ? ` (${plan.device_name})` : "";
  const warm = plan.sft_steps > 0 ? `${plan.sft_steps} steps of warm start, then ` : "";
  const rows: [string, string][] = [
    [
      "policy",
      `${plan.model.name}, ${compact(plan.model.parameters)} parameters, ${plan.dtype}, on ${plan.device}${threads}${name}`,
    ],
    ["attention", `${plan.attention_impl}: ${plan.attention_reason}`],
    [
      "plan",
      `${warm}${plural(plan.steps, "training step")} of ${plan.tasks_per_step} tasks x ${plan.group_size} on ${plan.suite}`,
    ],
    ...timeRow(plan),
    ...threadsRow(plan),
    ...plan.notes.map((note): [string, string] => ["note", note]),
  ];
  return rows.map(([label, text]) => [label, printable(text).replaceAll("\n", " ")]);
}

/** What the probe before the first step foresees, and in which case. */
function timeRow({ forecast }: EventOf<"plan">): [string, string][] {
  if (!forecast) return [];
  const { expected, most } = forecast;
  const all = ({ step_s, total_s }: typeof most) => `${roughly(step_s)} a step, ${roughly(total_s)} in all`;
  const text = expected
    ? `${all(expected)}, played as the expert plays; with every turn at its token limit ${all(most)}`
    : `at most ${all(most)}, with every turn at its token limit`;
  return [["time", `${text} (from a short probe; measured steps replace it)`]];
}

function threadsRow({ threads, threads_measured: measured }: EventOf<"plan">): [string, string][] {
  if (!measured?.length) return [];
  const speeds = measured.map(
    (one) => `decode ${compact(one.decode_per_second)}, update ${compact(one.update_per_second)} with ${one.threads}`,
  );
  return [["threads", `${threads}, measured in tokens/s: ${speeds.join("; ")}`]];
}
