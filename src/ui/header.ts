/** The head of the picture: what is running, how far it is, what was chosen. Pure. */
import { remaining } from "../run/pace.js";
import type { State } from "../run/state.js";
import { edges, fitting } from "./blocks.js";
import { ABSENT, bar, clip, compact, duration, type Paint, plural, printable, roughly } from "./format.js";
import type { Look } from "./screen.js";

export const PHASES: Record<string, string> = {
  loading: "loading",
  warm_start: "warm start",
  rollout: "rollout",
  update: "update",
  eval: "evaluation",
  checkpoint: "saving a checkpoint",
  stopping: "stopping",
};

const STATUS_STYLE = {
  starting: "cyan",
  running: "cyan",
  completed: "green",
  stopped: "yellow",
  failed: "red",
} as const;

export function header(state: State, look: Look, paint: Paint): string[] {
  return [title(state, look, paint), ...progress(state, look, paint), ...facts(state, look, paint)];
}

function statusText(state: State, look: Look): string {
  if (state.end === null && look.interrupted) return "interrupted";
  if (state.end === null && look.stopping) return "stopping";
  const phase = state.phase === null ? undefined : (PHASES[state.phase.phase] ?? state.phase.phase);
  if (state.status === "starting") return "starting";
  if (state.status !== "running") return state.status;
  return phase === undefined ? "starting" : phase === "stopping" ? phase : `running: ${phase}`;
}

function title(state: State, look: Look, paint: Paint): string {
  const style = state.end === null && (look.interrupted || look.stopping) ? "yellow" : STATUS_STYLE[state.status];
  const attempt = state.attempt > 1 ? ` (attempt ${state.attempt})` : "";
  return edges(`${state.run || "run"}${attempt}`, statusText(state, look), look.width, [
    (text) => paint("bold", text),
    (text) => paint(["bold", style], text),
  ]);
}

interface Stage {
  name: string;
  done: number;
  total: number;
  left: number | null;
}

/** Where the run is: the warm start until the first training step, then the training steps. */
export function stage(state: State): Stage | null {
  const newest = state.rows.at(-1);
  const warming = newest === undefined && state.phase?.phase === "warm_start";
  const total = newest?.total ?? state.plan?.steps;
  if (warming && (state.plan?.sft_steps ?? 0) > 0) {
    const sftTotal = state.sft?.total ?? state.plan?.sft_steps ?? 0;
    const done = state.sft?.step ?? 0;
    const left = state.pace.sft === null ? null : state.pace.sft * (sftTotal - done);
    return { name: "warm start", done, total: sftTotal, left };
  }
  if (total === undefined) return null;
  return { name: "step", done: newest?.step ?? 0, total, left: remaining(state) };
}

function progress(state: State, look: Look, paint: Paint): string[] {
  const elapsed = duration(look.elapsed ?? state.before + state.t);
  const at = stage(state);
  if (at === null)
    return [clip(`${state.events === 0 ? "waiting for Python to start" : "preparing"}  ${elapsed}`, look.width)];
  const label = `${at.name} ${at.done} of ${at.total}`;
  const live = state.end === null && !look.interrupted;
  const times = live && at.left !== null && at.left > 0 ? `${elapsed}, ${roughly(at.left)} left` : elapsed;
  const room = Math.min(50, look.width - label.length - times.length - 4);
  if (room < 6) return [clip(`${label}  ${times}`, look.width)];
  const [done, rest] = bar(at.total === 0 ? 1 : at.done / at.total, room);
  return [`${label}  ${paint("cyan", done)}${paint("dim", rest)}  ${times}`];
}

function facts(state: State, look: Look, paint: Paint): string[] {
  const plan = state.plan;
  if (plan === null) return [];
  const device =
    plan.device === "cpu" && plan.threads !== null ? `cpu, ${plural(plan.threads, "thread")}` : plan.device;
  const parts = [
    device,
    `attention ${plan.attention_impl}`,
    plan.suite,
    `${plan.tasks_per_step} tasks x ${plan.group_size}`,
    plan.dtype,
    `${plan.model.name} ${compact(plan.model.parameters)}`,
    `seed ${state.seed ?? ABSENT}`,
    ...(plan.device === "cpu" || !plan.device_name ? [] : [plan.device_name]),
  ];
  return [paint("dim", fitting(parts.map(printable), " · ", look.width))];
}
