import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  age,
  bar,
  bytes,
  clip,
  columns,
  compact,
  duration,
  fixed,
  labelRows,
  painter,
  plural,
  printable,
  sentences,
  small,
  sparkline,
  wrapText,
} from "../../../src/ui/format.js";

describe("numbers", () => {
  it.each([
    [null, "-"],
    [0, "0"],
    [0.25, "0.25"],
    [0.004, "0.004"],
    [1.3e-6, "1.3e-6"],
    [-2e-5, "-2.0e-5"],
    [1234, "1.2e+3"],
    [0.5049, "0.5"],
  ])("small %s", (value, text) => expect(small(value)).toBe(text));

  it.each([
    [null, "-"],
    [0, "0"],
    [7, "7"],
    [7.25, "7.3"],
    [812, "812"],
    [999, "999"],
    [999.7, "1.0k"],
    [9812, "9.8k"],
    [99_940, "99.9k"],
    [99_960, "100k"],
    [455_000, "455k"],
    [999_600, "1.0M"],
    [1_234_000, "1.2M"],
    [2e9, "2.0G"],
  ])("compact %s", (value, text) => expect(compact(value)).toBe(text));

  it.each([
    [null, "-"],
    [Number.POSITIVE_INFINITY, "-"],
    [0, "0 s"],
    [59.4, "59 s"],
    [59.6, "1 m 00 s"],
    [102, "1 m 42 s"],
    [3600, "1 h 00 m"],
    [7500, "2 h 05 m"],
    [86_400 * 3 + 14_400, "3 d 4 h"],
    [-5, "0 s"],
  ])("duration %s", (value, text) => expect(duration(value)).toBe(text));

  it.each([
    [0, "0 s"],
    [61, "1 m"],
    [7200, "2 h"],
    [1e6, "11 d"],
  ])("age %s", (value, text) => expect(age(value)).toBe(text));

  it.each([
    [0, "0 B"],
    [1000, "1.0 kB"],
    [7_400_000, "7.4 MB"],
    [612e6, "612 MB"],
    [28e9, "28 GB"],
  ])("bytes %s", (value, text) => expect(bytes(value)).toBe(text));

  it("fixed and plural", () => {
    expect([fixed(0.12345, 3), fixed(null, 3), fixed(undefined, 1), fixed(0, 2)]).toEqual(["0.123", "-", "-", "0.00"]);
    expect([plural(1, "step"), plural(0, "step"), plural(2, "step")]).toEqual(["1 step", "0 steps", "2 steps"]);
  });
});

describe("pictures", () => {
  it("a sparkline inside 0 to 1 keeps that scale, so that noise looks like noise", () => {
    expect(sparkline([0, 0.5, 1], 10)).toBe("▁▅█");
    expect(sparkline([0.5, 0.51, 0.5], 10)).toBe("▅▅▅");
    expect(sparkline([-1, 0, 3], 10)).toBe("▁▃█");
    expect(sparkline([5, 5], 10)).toBe("▁▁");
    expect(sparkline([], 10)).toBe("");
  });

  it("a sparkline averages into the columns it has", () => {
    expect(sparkline([0, 0, 1, 1], 2)).toBe("▁█");
    expect(
      sparkline(
        Array.from({ length: 1000 }, (_, n) => n / 999),
        8,
      ),
    ).toBe("▁▂▃▄▅▆▇█");
  });

  it("a bar has its width, whatever the share", () => {
    fc.assert(
      fc.property(fc.double({ min: -1, max: 2, noNaN: true }), fc.nat(80), (share, width) => {
        const [done, rest] = bar(share, width);
        expect(done.length + rest.length).toBe(width);
      }),
    );
    expect(bar(0.5, 4)).toEqual(["━━", "──"]);
  });
});

describe("text", () => {
  it("colour is a style around the text, or nothing", () => {
    expect(painter(false)("red", "x")).toBe("x");
    expect(painter(true)("red", "x")).toBe("\x1b[31mx\x1b[39m");
    expect(painter(true)("red", "")).toBe("");
  });

  it("columns are aligned, wide characters and colours counted right, blanks at the end removed", () => {
    const spec = [{ width: 6 }, { width: 6, align: "right" as const }, { width: 3 }];
    expect(
      columns(
        [
          ["客户", painter(true)("bold", "1.5"), "a"],
          ["toolongtext", "22.75", ""],
        ],
        spec,
      ),
    ).toEqual(["客户       \x1b[1m1.5\x1b[22m  a", "toolo…   22.75"]);
    expect(columns([], spec)).toEqual([]);
  });

  it("wrapping loses nothing", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "b", " ", "客", "☕", "\n") });
    fc.assert(
      fc.property(text, fc.integer({ min: 2, max: 30 }), (value, width) => {
        expect(wrapText(value, width).join("").replaceAll(/\s/g, "")).toBe(value.replaceAll(/\s/g, ""));
      }),
    );
  });

  it("wrapping keeps indentation and drops only the blank at a break", () => {
    expect(wrapText("one two three\n  - four five", 9)).toEqual(["one two", "three", "  - four", "five"]);
  });

  it("sentences end with a full stop", () => {
    expect(sentences("no signal", "Do this.", null, "(2 times)")).toBe("no signal. Do this. (2 times)");
  });

  it("clipping says that something is missing", () => {
    expect(clip("short", 5)).toBe("short");
    expect(clip("longer", 5)).toBe("long…");
    expect(clip("客户客户", 5)).toBe("客户…");
    expect(clip("a\nb", 5)).toBe("a b");
    expect(clip("abc", 0)).toBe("");
  });

  it("labels stand in a column of their own", () => {
    expect(
      labelRows(
        [
          ["a", "one two three"],
          ["long", "x"],
        ],
        12,
      ),
    ).toEqual(["a     one", "      two", "      three", "long  x"]);
  });

  it("escape sequences of others are shown, not obeyed", () => {
    expect(printable("a\x1b[31mb\x07\r\n\tc\u202e")).toBe("a\u{fffd}[31mb\u{fffd}\u{fffd}\n\tc\u{fffd}");
  });
});
