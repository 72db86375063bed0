/** What models cost, from a file: dollars per million tokens for each by its name. */
import { z } from "zod";
import { type Problem, UserError } from "../errors.js";
import { locator, parseTree, pathId } from "./document.js";
import { readText } from "./file.js";

const price = z.strictObject({ prompt: z.number().min(0), completion: z.number().min(0) });
const list = z.record(z.string().min(1), price);

const SHAPE = "Write one line for each model, such as `qwen3-8b: {prompt: 0.05, completion: 0.2}`.";

/** The prices in a YAML file. Throws a UserError that holds every problem, with its place. */
export async function readPrices(file: string): Promise<{ models: z.output<typeof list> }> {
  const { text } = await readText(file);
  const { tree, problems } = parseTree(text, locator(file, text));
  if (tree === undefined || problems.length > 0) throw new UserError(problems, { left: "Nothing was played." });
  const read = list.safeParse(tree.value ?? {});
  if (read.success && Object.keys(read.data).length > 0) return { models: read.data };
  const found = (read.error?.issues ?? []).map((issue): Problem => {
    const place = tree.origins.get(pathId(issue.path as (string | number)[]));
    const name = issue.path.length > 0 ? `\`${issue.path.join(".")}\`` : "the file";
    const what = `${name} is no price: ${issue.message.replace(/^./, (first) => first.toLowerCase())}`;
    return { code: "SF-CONFIG-TYPE", what, where: place?.value ?? { file, line: 1, col: 1 }, fix: SHAPE };
  });
  const none: Problem = {
    code: "SF-CONFIG-TYPE",
    what: "there are no prices",
    where: { file, line: 1, col: 1 },
    fix: SHAPE,
  };
  throw new UserError(found.length > 0 ? found : [none], { left: "Nothing was played." });
}
