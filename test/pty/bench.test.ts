import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { clip } from "../../src/ui/format.js";
import { Folder } from "../fixtures/sinkflex.js";
import { Screen, STYLE } from "../fixtures/terminal.js";

let folder: Folder;
beforeEach(() => {
  folder = new Folder();
});
afterEach(() => folder.clear());

const big = { columns: 80, rows: 24 };
const bench = ["bench", "--seq", "1024", "2048", "4096"];
const slow = { cell_s: 0.5, fit: 3000 };

/** The rows of the live window: from its title to the hint below. */
function windowOf(text: string): string[] {
  const rows = text.split("\n");
  return rows.slice(rows.findLastIndex((row) => /^bench attention +(starting|measuring|stopping)$/.test(row)));
}

describe("the live window of a benchmark", () => {
  it("fills its table, shows the cell under way, and gives place to the whole table", async () => {
    const screen = new Screen(folder, bench, big, slow);
    const text = await screen.until((now) => /^3 of 6 cells/m.test(now) && /2048 {2}flash {2}time/.test(now));
    const rows = windowOf(text);
    expect(rows[0]).toHaveLength(80);
    expect(rows[1]).toMatch(/^3 of 6 cells {2}━{25}─{25} {2}\d+ s$/);
    expect(rows.slice(2, 7)).toEqual([
      "",
      "tokens  impl   fwd ms  bwd ms  peak MiB  x floor  time x   mem x         error",
      "  1024  eager    8.39    20.1      64.0    3.53x   1.00x   1.00x     dq 3.1e-6",
      "  1024  flash    2.10    5.03      8.79    0.48x   0.25x   0.14x     dq 3.1e-6",
      "  2048  eager    33.6    80.5       256    7.06x   1.00x   1.00x     dq 3.1e-6",
    ]);
    expect(rows[7]).toMatch(/^ {2}2048 {2}flash {2}time 3 of 7, \d s$/);
    expect(rows.slice(8)).toEqual(["", "Ctrl-C: finish the cell, show what was measured and stop"]);
    expect((await screen.exited).exitCode).toBe(0);
    const end = await screen.text();
    expect(end.match(/^tokens {2}impl/gm)).toHaveLength(1); // no ghost of the window
    expect(end).not.toMatch(/Ctrl-C:|of 6 cells|measuring/);
    expect(end.match(/^bench {2}attention on cpu/gm)).toHaveLength(1);
    expect(end).toMatch(/^ {2}4096 {2}eager {2}does not fit: predicted: 2 GB, and 21 GB are free$/m);
    expect(end).toMatch(/^counted {3}Times are medians/m);
    expect(screen.raw).toContain("\x1b[?25h"); // the cursor is back
  });

  it.each([
    [120, 30],
    [60, 16],
    [20, 12],
  ])("at %i x %i no row is broken and none is left behind", async (columns, rows) => {
    const screen = new Screen(
      folder,
      [...bench, "--impl", "eager", "flash"],
      { columns, rows },
      { ...slow, cell_s: 0.2 },
    );
    const text = await screen.until((now) => /^4 of 6 cells/m.test(now));
    for (const row of windowOf(text)) expect(clip(row, columns)).toBe(row);
    expect(text.match(/of 6 cells/g)).toHaveLength(1);
    expect((await screen.exited).exitCode).toBe(0);
    const end = await screen.text();
    expect(end.match(/^tokens {2}impl/gm)).toHaveLength(1);
    expect(end).not.toMatch(/of 6 cells|Ctrl-C/);
  });

  it("survives a window that becomes narrow and wide again", async () => {
    const screen = new Screen(folder, bench, { columns: 120, rows: 30 }, slow);
    await screen.until((text) => /^2 of 6 cells/m.test(text));
    screen.resize({ columns: 60, rows: 30 });
    const narrow = await screen.until((text) => /^3 of 6 cells/m.test(text));
    expect(narrow.match(/of 6 cells/g)).toHaveLength(1);
    expect(narrow).not.toContain("x floor");
    screen.resize({ columns: 120, rows: 30 });
    const wide = await screen.until((text) => /^5 of 6 cells/m.test(text));
    expect(wide.match(/of 6 cells/g)).toHaveLength(1);
    expect(wide).toContain("x floor");
    expect((await screen.exited).exitCode).toBe(0);
  });

  it("a warning stays in the window while it measures", async () => {
    const screen = new Screen(folder, bench, big, { ...slow, warn_at: [1, "busy", "Another process is busy."] });
    const text = await screen.until((now) => /^2 of 6 cells/m.test(now));
    expect(windowOf(text)).toContain("warning  Another process is busy.");
    screen.type("\x03");
    expect((await screen.exited).exitCode).toBe(130);
  });

  it("B119 NO_COLOR: the same window without a colour; without it the table has some", async () => {
    const plain = new Screen(folder, bench, big, { cell_s: 0.1, fit: 3000 }, { NO_COLOR: "1" });
    await plain.exited;
    expect(plain.raw.match(STYLE)).toBeNull();
    const colored = new Screen(folder, bench, big, { cell_s: 0.1, fit: 3000 });
    await colored.exited;
    expect(colored.raw).toContain("\x1b[33mdoes not fit");
    expect(await colored.text()).toBe(await plain.text());
  });

  it.each([{ CI: "true" }, { TERM: "dumb" }])("B119 on a terminal with %j: plain lines", async (env) => {
    const screen = new Screen(folder, bench, big, { cell_s: 0.05 }, env);
    expect((await screen.exited).exitCode).toBe(0);
    expect(await screen.text()).toContain("cell 6/6  flash at 4096 tokens  forward 33.6 ms");
    expect(screen.raw.replaceAll(STYLE, "")).not.toContain("\x1b"); // no cursor is moved
    expect(screen.raw.replaceAll("\r\n", "\n")).not.toContain("\r");
  });
});

describe("Ctrl-C on the terminal", () => {
  it("once: says what happens, finishes the cell, shows the table so far", async () => {
    const screen = new Screen(folder, bench, big, { ...slow, cell_s: 1 });
    await screen.until((text) => /^1 of 6 cells/m.test(text));
    screen.type("\x03");
    const text = await screen.until((now) => now.includes("Finishing this cell; Ctrl-C again to stop now"));
    expect(windowOf(text)[0]).toMatch(/stopping$/);
    expect(text).not.toContain("^C");
    expect((await screen.exited).exitCode).toBe(130);
    const end = await screen.text();
    expect(end).toMatch(/^stopped after [23] of 6 cells, \d+ s$/m);
    expect(end.match(/^tokens {2}impl/gm)).toHaveLength(1);
  });
});
