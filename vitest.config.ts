import { defineConfig } from "vitest/config";

/**
 * unit: pure, in milliseconds. cli: the compiled command line against stub workers. pty: screens as a person sees them.
 * The tests of cli and pty start processes, so their limits are generous; nothing is decided by a time.
 */
const project = (name: string, testTimeout: number) => ({
  test: { name, include: [`test/${name}/**/*.test.ts`], testTimeout, hookTimeout: testTimeout },
});

export default defineConfig({
  test: {
    projects: [project("unit", 30_000), project("cli", 120_000), project("pty", 120_000)],
    coverage: { provider: "v8", include: ["src/**"] },
    maxWorkers: 2,
  },
});
