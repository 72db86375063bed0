#!/usr/bin/env node
/**
 * What `sinkflex --help` costs beside an empty `node -e 0`, measured side by side in one run: the two alternate, and the
 * medians of their wall times are compared. Usage: node benchmarks/startup.mjs [rounds, default 10]. Needs a build.
 */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const rounds = Number(process.argv[2] ?? 10);
const bin = fileURLToPath(new URL("../bin/sinkflex.js", import.meta.url));

function time(args) {
  const start = process.hrtime.bigint();
  const { status, stderr } = spawnSync(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  if (status !== 0) throw new Error(`node ${args.join(" ")} ended with ${status}: ${stderr}`);
  return Number(process.hrtime.bigint() - start) / 1e6;
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const commands = { "node -e 0": ["-e", "0"], "sinkflex --help": [bin, "--help"] };
const times = { "node -e 0": [], "sinkflex --help": [] };
for (const args of Object.values(commands)) time(args); // both are in the file cache before anything counts
for (let round = 0; round < rounds; round++) {
  for (const [name, args] of Object.entries(commands)) times[name].push(time(args));
}
const [empty, help] = Object.keys(commands).map((name) => median(times[name]));
for (const name of Object.keys(commands)) {
  process.stdout.write(`${name.padEnd(16)} ${median(times[name]).toFixed(1)} ms (median of ${rounds})\n`);
}
process.stdout.write(`ratio            ${(help / empty).toFixed(2)} (goal: at most 1.90)\n`);
