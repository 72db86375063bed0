/** What the YAML reader could not read, in the words of somebody who edits a config. */
import type { CST, Document, ParsedNode, ErrorCode as YamlCode } from "yaml";
import type { ErrorCode, Problem } from "../errors.js";
import type { Locate } from "./document.js";

const MAX_DEPTH = 64;
const MAX_SHOWN = 10;

const ADVICE: Partial<Record<YamlCode, { code?: ErrorCode; what?: string; fix: string }>> = {
  TAB_AS_INDENT: {
    code: "SF-CONFIG-TAB",
    what: "a tab is used for indentation",
    fix: "YAML is indented with blanks only. Most editors can turn tabs into blanks.",
  },
  BAD_INDENT: { fix: "Indent all keys of a section by the same number of blanks, and close every `[` and `{`." },
  BLOCK_AS_IMPLICIT_KEY: {
    what: "another key begins where the value should end",
    fix: "Indent all keys of a section alike, one `key: value` a line. Text that contains `: ` needs quotes.",
  },
  BAD_DQ_ESCAPE: {
    fix: "In double quotes a backslash starts an escape. Write the text in single quotes: 'C:\\new\\tmp'.",
  },
  BAD_SCALAR_START: { fix: "Put the text in quotes." },
  MISSING_CHAR: { fix: "Look for a bracket or quote that is not closed, or a key without its colon." },
  TAG_RESOLVE_FAILED: { what: "a tag that YAML 1.2 does not know", fix: "Remove the word that starts with `!`." },
};

/**
 * The YAML composer is recursive and catches its own stack overflow, which can take the whole process down, so depth is
 * measured on the tokens, which are read without recursion.
 */
export function nestingProblem(tokens: readonly CST.Token[], locate: Locate): Problem | undefined {
  const open: { token: CST.Token; depth: number }[] = tokens.map((token) => ({ token, depth: 0 }));
  for (let next = open.pop(); next; next = open.pop()) {
    const { token, depth } = next;
    if (depth > MAX_DEPTH) {
      const where = locate(token.offset, token.offset + 1);
      const fix = "A config needs five levels at most; look for a bracket that is not closed.";
      return { code: "SF-CONFIG-SYNTAX", what: "values are nested too deeply", where, fix };
    }
    const below = token.type === "document" ? [token.value] : "items" in token ? token.items.flatMap(parts) : [];
    for (const child of below) if (child) open.push({ token: child, depth: depth + 1 });
  }
  return undefined;
}

function parts(item: CST.CollectionItem): (CST.Token | null | undefined)[] {
  return [item.key, item.value];
}

/** The first problem of each line: those after it are mostly echoes of the first. */
export function syntaxProblems(documents: readonly Document.Parsed<ParsedNode>[], locate: Locate): Problem[] {
  const problems = documents.flatMap(({ errors, warnings }) =>
    [...errors, ...warnings].map(({ code, message, pos }): Problem => {
      const advice = ADVICE[code];
      const unclosed = /^Flow (map|sequence)/.test(message) ? "a `{` or `[` is not closed" : undefined;
      const what = unclosed ?? advice?.what ?? message.charAt(0).toLowerCase() + message.slice(1);
      const where = locate(pos[0], pos[1]);
      return { code: advice?.code ?? "SF-CONFIG-SYNTAX", what, where, fix: advice?.fix };
    }),
  );
  const version = documents[0]?.directives.yaml;
  if (version?.explicit && version.version !== "1.2") {
    const where = locate(0, 1);
    const what = `\`%YAML ${version.version}\` asks for another YAML`;
    problems.push({ code: "SF-CONFIG-SYNTAX", what, where, fix: "SinkFlex reads YAML 1.2. Remove the line." });
  }
  const second = documents[1];
  if (second) {
    const where = locate(second.range[0], second.range[0] + 1);
    const what = "the file holds more than one YAML document";
    problems.push({ code: "SF-CONFIG-SYNTAX", what, where, fix: "Keep one of the parts between the `---` lines." });
  }
  const firstOfLine = new Map(problems.toReversed().map((problem) => [problem.where?.line, problem]));
  return problems.filter((problem) => firstOfLine.get(problem.where?.line) === problem).slice(0, MAX_SHOWN);
}
