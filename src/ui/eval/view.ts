/** An evaluation while it goes on: the live window, what is played, and the lines of a log. Pure. */
import { type EvalState, initialEval, type TrialRow } from "../../eval/state.js";
import type { Event, EventOf } from "../../protocol/events.js";
import { edges, fitting, gap, join, warningBlock } from "../blocks.js";
import { bar, clip, columns, duration, fixed, labelRows, type Paint, painter, plural, printable } from "../format.js";
import { SILENCE } from "../lines.js";
import type { Look, Picture, Since } from "../screen.js";

export const evalPicture: Picture<EvalState> = {
  initial: initialEval,
  view,
  above: (event) => (event.type === "eval_plan" ? planRows(event) : []),
  lines,
};

type Plan = EventOf<"eval_plan">;

const USERS: Record<string, string> = {
  scripted: "scripted: scores are not those of a user that is a language model",
  human: "human: scores are not those of a simulated user",
};

export const levelsOf = ({ levels }: { levels?: number[] | null | undefined }): string =>
  levels ? `, ${levels.length > 1 ? "levels" : "level"} ${levels.join(", ")}` : "";

/** What is about to be measured, and what is known about it before anybody plays. */
function planRows(plan: Plan): [label: string, text: string][] {
  const before = plan.done_before > 0 ? `, ${plan.done_before} played before` : "";
  const odd = Object.keys(plan.known_odd);
  const dropped = Object.entries(plan.dropped_components);
  const rows: [string, string][] = [
    [
      "eval",
      `${plan.suite}, split ${plan.split}${levelsOf(plan)}: ${plural(plan.tasks, "task")}, ${plural(plan.trials, "trial")} each${before}`,
    ],
    ["agent", plan.agent_kind === "scripted" ? `${plan.agent} (scripted)` : plan.agent],
    ["user", USERS[plan.user] ?? plan.user],
    [
      "scored",
      `${plan.score_mode ?? "by the suite"}, data ${plan.data_sha256?.slice(0, 12) ?? "unknown"}, ${plan.version ?? ""}`,
    ],
    ["at once", plural(plan.concurrency, "trial")],
    ["baseline", `doing nothing scores ${fixed(plan.noop_mean, 3)} on these tasks`],
    ...(odd.length > 0 ? [["odd", `tasks ${odd.join(", ")} are known to be odd`] as [string, string]] : []),
    ...dropped.map(([name, tasks]): [string, string] => ["dropped", `${name}: left out for ${plural(tasks, "task")}`]),
    ...plan.notes.map((note): [string, string] => ["note", note]),
  ];
  return rows.map(([label, text]) => [label, printable(text).replaceAll("\n", " ")]);
}

function view(state: EvalState, look: Look): string[] {
  if (state.end !== null) return [];
  const paint = painter(look.color);
  const elapsed = look.elapsed ?? state.t;
  const head = [title(state, look, paint), progress(state, look, elapsed, paint)];
  const warnings = warningBlock(state.warnings, look, paint);
  const foot =
    look.notice === undefined ? [] : [paint(look.stopping ? "yellow" : "dim", clip(look.notice, look.width))];
  const taken = head.length + gap(warnings) + gap(foot) + 2; // a blank row and the table's head
  const room = look.height === undefined ? Number.POSITIVE_INFINITY : Math.max(1, look.height - taken);
  const rows = join([head, warnings, table(state, look.width, elapsed, room, paint), foot]);
  const tight = look.height !== undefined && rows.length > look.height;
  const shown = tight ? rows.filter((row) => row !== "").slice(-(look.height ?? 0)) : rows;
  return shown.map((row) => clip(row, look.width));
}

function title(state: EvalState, look: Look, paint: Paint): string {
  const doing = look.stopping ? "stopping" : state.plan === null ? "starting" : "playing";
  return edges(`eval ${state.plan?.suite ?? ""}`.trim(), doing, look.width, [
    (text) => paint("bold", text),
    (text) => paint(["bold", look.stopping ? "yellow" : "cyan"], text),
  ]);
}

function progress(state: EvalState, look: Look, elapsed: number, paint: Paint): string {
  const time = duration(elapsed);
  const { plan } = state;
  if (plan === null) {
    const waits = state.phase === null ? "waiting for Python to start" : "preparing";
    return fitting([waits, time], "  ", look.width);
  }
  const done = plan.done_before + state.done;
  const mean = state.scored === 0 ? "" : `  reward ${fixed(state.sum / state.scored, 3)}`;
  const label = `${done} of ${plural(plan.total, "trial")}${mean}`;
  const room = Math.min(40, look.width - label.length - time.length - 4);
  if (room < 6) return clip(`${label}  ${time}`, look.width);
  const [left, right] = bar(plan.total === 0 ? 1 : done / plan.total, room);
  return `${label}  ${paint("cyan", left)}${paint("dim", right)}  ${time}`;
}

/** Columns that are left to how a trial stands, before long names of tasks may take them. */
const STATE = 30;

/** The trials under way, and above them the newest finished ones, as far as there is room. */
function table(state: EvalState, width: number, elapsed: number, room: number, paint: Paint): string[] {
  const running = state.underway.slice(-Math.max(1, Math.min(room, state.underway.length)));
  const finished = state.finished.slice(-Math.max(0, room - running.length));
  const rows = [...(room > running.length ? finished : []), ...running];
  if (rows.length === 0) return [];
  const longest = Math.max(4, ...rows.map((row) => printable(row.task).length));
  const task = Math.min(longest, Math.max(16, width - 24 - STATE));
  const spec = [
    { width: task },
    { width: 5, align: "right" as const },
    { width: 5, align: "right" as const },
    { width: 6, align: "right" as const },
    { width: Math.max(6, width - task - 24) },
  ];
  const body = rows.map((row) => [
    printable(row.task),
    String(row.trial + 1),
    String(row.turn),
    row.done ? fixed(row.reward, 2) : "",
    row.done ? ending(row) : `waits for ${row.waitingFor ?? "its turn"}, ${duration(elapsed - row.since)}`,
  ]);
  const [head = "", ...lines] = columns([["task", "trial", "turns", "reward", "state"], ...body], spec);
  return [paint("dim", head), ...lines];
}

/** How a trial ended, in words. */
function ending(row: Pick<TrialRow, "outcome" | "owner" | "reason" | "error">): string {
  const reason = (row.reason ?? "").replaceAll("_", " ");
  if (row.outcome !== "infra_error") return printable(reason || (row.outcome ?? ""));
  return printable(`fault of ${row.owner ?? "infra"}: ${row.error ?? reason}`.replaceAll("\n", " "));
}

function lines(state: EvalState, event: Event, { verbose, silent }: Since): string[] {
  switch (event.type) {
    case "eval_plan":
      return labelRows(planRows(event), Number.MAX_SAFE_INTEGER);
    case "trial":
      return event.kind === "finished" ? [trialLine(state, event)] : [];
    case "beat": {
      const [first] = state.underway;
      if (silent < SILENCE || first === undefined) return [];
      const waits = `task ${first.task}, trial ${first.trial + 1} waits for ${first.waitingFor ?? "its turn"}`;
      return [
        printable(
          `still playing ${plural(state.underway.length, "trial")}; ${waits}, ${duration(state.t - first.since)}`,
        ),
      ];
    }
    case "phase":
      return verbose ? [printable(`phase ${event.phase}${event.detail ? `: ${event.detail}` : ""}`)] : [];
    default:
      return [];
  }
}

function trialLine(state: EvalState, event: EventOf<"trial">): string {
  const total = state.plan?.total ?? 0;
  const at = `${String((state.plan?.done_before ?? 0) + state.done).padStart(String(total).length)}/${total}`;
  const reward =
    event.reward === null || event.reward === undefined ? "not scored" : `reward ${fixed(event.reward, 2)}`;
  const { outcome = null, owner = null, reason = null, error = null } = event;
  const how = ending({ outcome, owner, reason, error });
  return printable(
    `trial ${at}  task ${event.task_id} #${event.trial + 1}  ${reward}  ${plural(event.turn, "turn")}  ${how}`,
  );
}
