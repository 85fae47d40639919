/** JSON as the analyzer writes it: whole numbers and floats are told apart, and every value has one canonical text. */
import { WireError } from "./errors.ts";

/** A number as it stands in a text: `integer` is null where it was written as a float. */
export class JsonNumber {
  readonly value: number;
  readonly integer: bigint | null;
  constructor(token: string) {
    this.value = Number(token);
    this.integer = /[.eE]/.test(token) ? null : BigInt(token);
  }
}

export type JsonObject = Map<string, Json>;
export type Json = null | boolean | string | JsonNumber | Json[] | JsonObject;

const MOST_DEPTH = 100;
const MOST_DIGITS = 400;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const LONE = /\p{Surrogate}/u; // half of a code point: no text that a record could hold
const ESCAPES: Record<string, string> = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

/** Parse a JSON text, strictly: what RFC 8259 does not have (NaN, comments, a byte order mark) is refused. */
export function parseJson(text: string): Json {
  let place = 0;
  const fail = (): never => {
    throw new WireError("a document that is not JSON");
  };
  const space = (): void => {
    while (place < text.length && " \t\n\r".includes(text[place])) place += 1;
  };
  const literal = (word: string, value: Json): Json => {
    if (!text.startsWith(word, place)) fail();
    place += word.length;
    return value;
  };
  const string = (): string => {
    let made = "";
    place += 1;
    for (;;) {
      const letter = text[place];
      if (letter === undefined || letter < " ") fail();
      place += 1;
      if (letter === '"') return LONE.test(made) ? fail() : made;
      if (letter !== "\\") {
        made += letter;
        continue;
      }
      const escape = text[place];
      place += 1;
      if (escape === "u") {
        const digits = text.slice(place, place + 4);
        if (!/^[0-9a-fA-F]{4}$/.test(digits)) fail();
        made += String.fromCharCode(parseInt(digits, 16));
        place += 4;
      } else {
        const known = ESCAPES[escape ?? ""];
        if (known === undefined) fail();
        made += known;
      }
    }
  };
  const number = (): JsonNumber => {
    NUMBER.lastIndex = place;
    const found = NUMBER.exec(text);
    if (found === null || found[0].length > MOST_DIGITS) return fail();
    place += found[0].length;
    return new JsonNumber(found[0]);
  };
  const value = (depth: number): Json => {
    if (depth > MOST_DEPTH) fail();
    space();
    switch (text[place]) {
      case "{":
        return object(depth);
      case "[":
        return array(depth);
      case '"':
        return string();
      case "t":
        return literal("true", true);
      case "f":
        return literal("false", false);
      case "n":
        return literal("null", null);
      default:
        return number();
    }
  };
  const object = (depth: number): JsonObject => {
    const made: JsonObject = new Map();
    place += 1;
    space();
    if (text[place] === "}") {
      place += 1;
      return made;
    }
    for (;;) {
      space();
      if (text[place] !== '"') fail();
      const name = string();
      space();
      if (text[place] !== ":") fail();
      place += 1;
      if (made.has(name)) throw new WireError("a document that has a name twice");
      made.set(name, value(depth + 1));
      space();
      const mark = text[place];
      place += 1;
      if (mark === "}") return made;
      if (mark !== ",") fail();
    }
  };
  const array = (depth: number): Json[] => {
    const made: Json[] = [];
    place += 1;
    space();
    if (text[place] === "]") {
      place += 1;
      return made;
    }
    for (;;) {
      made.push(value(depth + 1));
      space();
      const mark = text[place];
      place += 1;
      if (mark === "]") return made;
      if (mark !== ",") fail();
    }
  };
  const whole = value(0);
  space();
  if (place !== text.length) fail();
  return whole;
}

/** The canonical text: names sorted by code points, no spaces, ASCII, floats in the fewest digits that tell them apart. */
export function canonical(value: Json): string {
  if (value === null) return "null";
  if (typeof value === "boolean") return String(value);
  if (typeof value === "string") return quoted(value);
  if (value instanceof JsonNumber) return value.integer === null ? floatText(value.value) : value.integer.toString();
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const names = [...value.keys()].sort(byCodePoints);
  return `{${names.map((name) => `${quoted(name)}:${canonical(value.get(name) as Json)}`).join(",")}}`;
}

/** A float as Python writes it: 5.0, 1e-06, 1e+16, 0.0001. */
export function floatText(number: number): string {
  if (!Number.isFinite(number)) throw new WireError("a number that is not finite");
  const sign = number < 0 || Object.is(number, -0) ? "-" : "";
  const [mantissa, power] = Math.abs(number).toExponential().split("e");
  const digits = mantissa.replace(".", "");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    const fraction = digits.length > 1 ? `.${digits.slice(1)}` : "";
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${sign}${digits[0]}${fraction}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  if (digits.length <= exponent + 1) return `${sign}${digits.padEnd(exponent + 1, "0")}.0`;
  return `${sign}${digits.slice(0, exponent + 1)}.${digits.slice(exponent + 1)}`;
}

const SHORT: Record<string, string> = { '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function quoted(text: string): string {
  let made = '"';
  for (let place = 0; place < text.length; place += 1) {
    const letter = text[place];
    const code = text.charCodeAt(place);
    if (SHORT[letter] !== undefined) made += SHORT[letter];
    else if (code < 0x20 || code > 0x7e) made += `\\u${code.toString(16).padStart(4, "0")}`;
    else made += letter;
  }
  return `${made}"`;
}

/** Python's order of texts: by code points, where JavaScript's own is by halves of them. */
export function byCodePoints(one: string, other: string): number {
  const left = Array.from(one, (letter) => letter.codePointAt(0) as number);
  const right = Array.from(other, (letter) => letter.codePointAt(0) as number);
  for (let place = 0; place < Math.min(left.length, right.length); place += 1) {
    if (left[place] !== right[place]) return left[place] - right[place];
  }
  return left.length - right.length;
}
