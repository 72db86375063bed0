export interface SupportedPythons {
  oldest: number;
  newest: number;
  /** "Python 3.11 to 3.13" */
  text: string;
}

export interface FoundPython {
  command: string;
  /** sys.executable */
  path: string;
  major: number;
  minor: number;
  micro: number;
  version: string;
  /** Whether it can make virtual environments (Debian ships that apart). */
  venv: boolean;
  /** Whether torch is installed there (not imported: that takes seconds). */
  torch: boolean;
}

export interface PythonProblem {
  kind: "missing" | "too-old" | "too-new";
  what: string;
  fix: string;
}

export function supportedPythons(root: string): SupportedPythons;
export function probePython(command: string, env?: NodeJS.ProcessEnv): FoundPython | null;
export function judgePython(python: FoundPython, supported: SupportedPythons): "ok" | "too-old" | "too-new";
export function findPython(
  root: string,
  env?: NodeJS.ProcessEnv,
): { python: FoundPython; problem?: undefined } | { python?: undefined; problem: PythonProblem };
export function withLock<T>(path: string, onWait: (pid: number) => void, work: () => Promise<T>): Promise<T>;
export function isFree(path: string): boolean;
