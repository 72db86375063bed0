import { afterEach, describe, expect, it } from "vitest";
import { StopLadder } from "../../../src/process/ladder.js";

let ladder: StopLadder | undefined;
afterEach(() => ladder?.dispose());

function recorder() {
  const calls: string[] = [];
  return {
    calls,
    worker: {
      stop: () => calls.push("stop"),
      terminate: () => calls.push("terminate"),
      kill: () => calls.push("kill"),
    },
  };
}

describe("the stop ladder", () => {
  it("asks, then ends, then kills", () => {
    const { calls, worker } = recorder();
    const told: number[] = [];
    ladder = new StopLadder((presses) => told.push(presses));
    ladder.attach(worker);
    ladder.press("SIGINT", 1000);
    ladder.press("SIGINT", 2000);
    ladder.press("SIGTERM", 3000);
    expect(calls).toEqual(["stop", "terminate", "kill"]);
    expect(told).toEqual([1, 2, 3]);
    expect(ladder.first).toBe("SIGINT");
  });

  it("takes a press that arrives twice as one", () => {
    const { calls, worker } = recorder();
    ladder = new StopLadder(() => {});
    ladder.attach(worker);
    ladder.press("SIGINT", 1000);
    ladder.press("SIGINT", 1050);
    expect(calls).toEqual(["stop"]);
    ladder.press("SIGINT", 1400);
    expect(calls).toEqual(["stop", "terminate"]);
  });

  it("keeps what comes before there is a worker", () => {
    const { calls, worker } = recorder();
    ladder = new StopLadder(() => {});
    ladder.press("SIGTERM", 1000);
    ladder.attach(worker);
    expect(calls).toEqual(["stop"]);
    expect(ladder.first).toBe("SIGTERM");
  });

  it("listens to signals until it is disposed", () => {
    const before = process.listenerCount("SIGINT");
    ladder = new StopLadder(() => {});
    expect(process.listenerCount("SIGINT")).toBe(before + 1);
    process.emit("SIGINT", "SIGINT");
    expect(ladder.presses).toBe(1);
    ladder.dispose();
    expect(process.listenerCount("SIGINT")).toBe(before);
  });
});
