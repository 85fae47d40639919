/** Words of a document, taken as what they must be or refused. */
import { WireError } from "./errors.ts";
import { type Json, JsonNumber, type JsonObject } from "./json.ts";

export interface Limits {
  above?: number;
  atLeast?: number;
  below?: number;
  atMost?: number;
}

const refuse = (name: string, allowed: string): never => {
  throw new WireError(`a task that says something impossible: ${name} must be ${allowed}`);
};

export function object(name: string, value: Json | undefined): JsonObject {
  return value instanceof Map ? value : refuse(name, "a JSON object");
}

export function list(name: string, value: Json | undefined): Json[] {
  return Array.isArray(value) ? value : refuse(name, "a list");
}

export function text(name: string, value: Json | undefined): string {
  return typeof value === "string" ? value : refuse(name, "a text");
}

export function flag(name: string, value: Json | undefined): boolean {
  return typeof value === "boolean" ? value : refuse(name, "true or false");
}

/** A whole number that a float holds exactly. */
export function whole(name: string, value: Json | undefined, limits: Limits = {}): number {
  if (!(value instanceof JsonNumber) || value.integer === null || !Number.isSafeInteger(value.value)) {
    return refuse(name, "a whole number");
  }
  return within(name, value.value, limits);
}

export function real(name: string, value: Json | undefined, limits: Limits = {}): number {
  if (!(value instanceof JsonNumber) || !Number.isFinite(value.value)) return refuse(name, "a finite number");
  return within(name, value.value, limits);
}

export function oneOf<Word extends string>(name: string, value: Json | undefined, words: readonly Word[]): Word {
  return words.includes(value as Word) ? (value as Word) : refuse(name, `one of ${words.join(", ")}`);
}

/** The names of an object are exactly these, `optional` ones allowed to be missing. */
export function names(name: string, value: JsonObject, needed: readonly string[], optional: readonly string[] = []): void {
  for (const one of needed) if (!value.has(one)) refuse(name, `given with ${one}`);
  for (const one of value.keys()) {
    if (!needed.includes(one) && !optional.includes(one)) refuse(name, `without ${one}, which this version does not know`);
  }
}

function within(name: string, number: number, limits: Limits): number {
  const { above = -Infinity, atLeast = -Infinity, below = Infinity, atMost = Infinity } = limits;
  if (!(number > above || above === -Infinity) || number < atLeast || !(number < below || below === Infinity) || number > atMost) {
    const words = [
      above > -Infinity ? `greater than ${above}` : "",
      atLeast > -Infinity ? `at least ${atLeast}` : "",
      below < Infinity ? `less than ${below}` : "",
      atMost < Infinity ? `at most ${atMost}` : "",
    ];
    return refuse(name, words.filter(Boolean).join(" and "));
  }
  return number;
}
