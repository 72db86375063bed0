/** What a run will do, before it does it. Pure. */
import type { EventOf } from "../protocol/events.js";
import { compact, plural, printable } from "./format.js";

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
    ...plan.notes.map((note): [string, string] => ["note", note]),
  ];
  return rows.map(([label, text]) => [label, printable(text).replaceAll("\n", " ")]);
}
