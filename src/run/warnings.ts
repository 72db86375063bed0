/** Warnings as a state keeps them: one a code, counted, so that a state does not grow. Pure. */
import type { EventOf } from "../protocol/events.js";

export interface Warning {
  code: string;
  what: string;
  fix: string | null;
  count: number;
}

const MOST = 32;

/** The warnings with one more; the newest text of a code is kept, at the place of its first. */
export function warned(warnings: readonly Warning[], { code, what, fix }: EventOf<"warn">): readonly Warning[] {
  const before = warnings.find((warning) => warning.code === code);
  const warning: Warning = { code, what, fix: fix ?? null, count: (before?.count ?? 0) + 1 };
  if (before === undefined) return [...warnings, warning].slice(-MOST);
  return warnings.map((other) => (other === before ? warning : other));
}
