/** What a run needs from outside: nothing. No port, no tracker, no prompt. */
import { appendFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Folder } from "../fixtures/sinkflex.js";

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
  folder.config({ steps: 3 });
});
afterEach(() => folder.clear());

/** Listens on the port, or leaves it to whoever has it already: occupied either way. */
function occupy(port: number): Promise<Server> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("listening", () => resolve(server));
    server.once("error", () => resolve(server));
    server.listen(port, "127.0.0.1");
  });
}

describe("a run on its own", () => {
  it("B123 two runs start at the same moment while the usual ports are taken", async () => {
    const servers = await Promise.all([12345, 8000, 29500].map(occupy));
    try {
      const results = await Promise.all([folder.run(["train", "c.yaml"]), folder.run(["train", "c.yaml"])]);
      expect(results.map((result) => result.code)).toEqual([0, 0]);
      expect(results.map((result) => result.stderr)).toEqual(["", ""]);
      expect(folder.dirs()).toHaveLength(2);
      for (const dir of folder.dirs()) expect(folder.json("summary.json", dir).status).toBe("completed");
    } finally {
      for (const server of servers) server.close();
    }
  });

  it("B128 a tracker that does not exist is refused at once, without a prompt, and nothing is started", async () => {
    appendFileSync(join(folder.path, "c.yaml"), "tracker: wandb\n");
    const { code, stderr } = await folder.run(["train", "c.yaml"], {}, { WANDB_API_KEY: undefined });
    expect(code).toBe(2);
    expect(stderr).toContain("tracker");
    expect(folder.dirs()).toEqual([]);
  });

  it("B128 tracker settings in the environment change nothing: the local record is the record", async () => {
    writeFileSync(join(folder.path, "wandb"), "");
    const { code } = await folder.run(["train", "c.yaml"], {}, { WANDB_MODE: "online", WANDB_PROJECT: "p" });
    expect(code).toBe(0);
    expect(folder.read("events.jsonl").split("\n").length).toBeGreaterThan(3);
  });
});
