/** What models cost, dollars per million tokens: the same for all of them, or each by its name, from a file. Pure. */

interface Price {
  prompt: number;
  completion: number;
}

export type Prices = Price | { models: Record<string, Price> };

export function isPriceFile(text: string): boolean {
  return /\.(ya?ml|json)$/.test(text);
}

/** `0.5/1.5`, or null. */
export function flatPrice(text: string): Price | null {
  const [, prompt, completion] = /^\$?(\d+(?:\.\d+)?)\/\$?(\d+(?:\.\d+)?)$/.exec(text) ?? [];
  return prompt === undefined || completion === undefined
    ? null
    : { prompt: Number(prompt), completion: Number(completion) };
}
