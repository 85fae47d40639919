/** Documents as src/croupier/service/wire/documents.json describes them: every field's type and range, for both clients. */
import described from "../../../src/croupier/service/wire/documents.json";
import { WireError } from "./errors.ts";
import { type Json, JsonNumber, type JsonObject } from "./json.ts";

type Shape = string | { is: string; [more: string]: unknown };
const SHAPES = described.shapes as unknown as Record<string, Shape>;
const DOCUMENTS = described.documents as unknown as Record<string, [string, string]>;

/** A text of somebody else as it may be shown: controls, and characters that nobody sees or that turn the writing, become U+FFFD. */
export function cleaned(text: string): string {
  const { pattern } = described.shapes.printable;
  const printable = new RegExp(`^${pattern.replace(/\*$/, "")}$`, "u");
  return Array.from(text, (letter) => (printable.test(letter) ? letter : "\ufffd")).join("");
}

/** A value that is not of its shape. */
class Unlike extends Error {}

const fail = (name: string, allowed: string): never => {
  throw new Unlike(`${name} must be ${allowed}`);
};

/** Refuse values that are not as documents of this kind are described. */
export function requireDescribed(kind: number, values: Json): void {
  const [name, shape] = DOCUMENTS[String(kind)];
  try {
    requireShape(name, values, shape);
  } catch (problem) {
    if (problem instanceof Unlike) throw new WireError(`a ${name} that says something impossible: ${problem.message}`);
    throw problem;
  }
}

function requireShape(name: string, value: Json, given: Shape): void {
  const shape = (typeof given === "string" ? (SHAPES[given] ?? { is: given }) : given) as { is: string; [more: string]: unknown };
  switch (shape.is) {
    case "null or":
      if (value !== null) requireShape(name, value, shape.of as Shape);
      break;
    case "one of":
      if (!(shape.of as Shape[]).some((one) => isOf(value, one))) fail(name, "of another type");
      break;
    case "either": {
      const has = value instanceof Map && value.has(shape.has as string);
      requireShape(name, value, (has ? shape.then : shape.else) as Shape);
      break;
    }
    case "by": {
      const [field, kinds] = [shape.field as string, shape.kinds as Record<string, Record<string, Shape>>];
      const kind = value instanceof Map ? value.get(field) : null;
      if (typeof kind !== "string" || !Object.hasOwn(kinds, kind)) fail(`${name}.${field}`, `one of ${Object.keys(kinds).join(", ")}`);
      else requireFields(name, value, { [field]: "text", ...kinds[kind] });
      break;
    }
    case "object": {
      const also = shape.also === undefined ? {} : (SHAPES[shape.also as string] as { fields: Record<string, Shape> } & Shape).fields;
      requireFields(name, value, { ...(shape.fields as Record<string, Shape>), ...also });
      break;
    }
    case "map":
      if (!(value instanceof Map)) fail(name, "a JSON object");
      else for (const [key, one] of value) requireShape(`${name}.${key}`, one, shape.of as Shape);
      break;
    case "word":
      if (!(shape.words as Json[]).includes(value)) fail(name, `one of ${(shape.words as string[]).join(", ")}`);
      break;
    default:
      requirePlain(name, value, shape.is, shape);
  }
}

function isOf(value: Json, shape: Shape): boolean {
  try {
    requireShape("", value, shape);
    return true;
  } catch (problem) {
    if (problem instanceof Unlike) return false;
    throw problem;
  }
}

/** An object with these fields, of which those with a question mark may be missing, and no others. */
function requireFields(name: string, value: Json, fields: Record<string, Shape>): void {
  if (!(value instanceof Map)) return fail(name, "a JSON object");
  const known = new Map(Object.entries(fields).map(([field, shape]) => [field.replace(/\?$/, ""), shape]));
  for (const field of (value as JsonObject).keys()) if (!known.has(field)) fail(`${name}.${field}`, "left out: this version does not know it");
  for (const field of Object.keys(fields)) {
    const plain = field.replace(/\?$/, "");
    const one = value.get(plain);
    if (one !== undefined) requireShape(`${name}.${plain}`, one, fields[field]);
    else if (plain === field) fail(`${name}.${plain}`, "given");
  }
}

/** A number, a text, a truth value or a list, within its limits. */
function requirePlain(name: string, value: Json, plain: string, shape: { [limit: string]: unknown }): void {
  switch (plain) {
    case "text": {
      if (typeof value !== "string") return fail(name, "a text");
      if (shape.longest !== undefined && Array.from(value).length > (shape.longest as number)) fail(name, `a text of at most ${shape.longest as number} characters`);
      if (shape.pattern !== undefined && !new RegExp(`^(?:${shape.pattern as string})$`, "u").test(value)) fail(name, `a text like ${shape.pattern as string}`);
      break;
    }
    case "flag":
      if (typeof value !== "boolean") fail(name, "true or false");
      break;
    case "whole":
    case "number": {
      const whole = plain === "whole";
      const number = value instanceof JsonNumber && (value.integer === null ? !whole : Number.isSafeInteger(value.value)) ? value.value : NaN;
      const { above = -Infinity, at_least = -Infinity, below = Infinity, at_most = Infinity } = shape as Record<string, number>;
      if (!(Number.isFinite(number) && above < number && at_least <= number && number < below && number <= at_most)) {
        const limits = ["above", "at_least", "below", "at_most"].filter((limit) => shape[limit] !== undefined);
        fail(name, [whole ? "a whole number" : "a finite number", ...limits.map((limit) => `${limit.replace("_", " ")} ${shape[limit] as number}`)].join(", "));
      }
      break;
    }
    case "list": {
      if (!Array.isArray(value)) return fail(name, "a list");
      const { fewest = 0, most = Infinity } = shape as { fewest?: number; most?: number };
      if (value.length < fewest || value.length > most) fail(name, `a list of at least ${fewest}${most < Infinity ? ` and at most ${most}` : ""}`);
      value.forEach((one, place) => requireShape(`${name}[${place}]`, one, shape.of as Shape));
      break;
    }
    default:
      throw new Error(`no such shape: ${plain}`);
  }
}
