/** The words that `sinkflex eval` takes, once for its help and for its checks. Constants only: the grammar imports it. */

export const SUITES = [
  "mini-shop",
  "tool-calls",
  "tau2-retail",
  "tau2-airline",
  "tau2-telecom",
  "tau2-telecom-solo",
] as const;
export const SCORE_MODES = ["official", "offline"] as const;
export const USERS = ["scripted", "llm", "human"] as const;

/** Reference agents: every suite has the first four; and the person at the terminal. */
export const AGENTS = ["expert", "gold", "noop", "random", "faulty", "hand_off", "human"] as const;
