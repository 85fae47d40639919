/** Which texts many people hold: a text's cells by a public seed, as src/croupier/statistics/heavy_hitters.py has them. */
import { blake2b } from "@noble/hashes/blake2.js";
import { ascii, type Bytes } from "./bytes.ts";
import { names, real, text, whole } from "./checks.ts";
import { WireError } from "./errors.ts";
import type { JsonObject } from "./json.ts";
import type { Question } from "./question.ts";
import { type RecordValues, requireColumns, textOf, trimmed } from "./records.ts";

const CHECKS = 4;
const WHOLE = 1 << 12;
const GOLDEN = 0x9e3779b97f4a7c15n;
const word = (value: bigint): bigint => BigInt.asUintN(64, value);

/** The last steps of SplitMix64. */
function mixed(value: bigint): bigint {
  const first = word((value ^ (value >> 30n)) * 0xbf58476d1ce4e5b9n);
  const second = word((first ^ (first >> 27n)) * 0x94d049bb133111ebn);
  return second ^ (second >> 31n);
}

const step = (state: bigint, symbol: number): bigint => mixed(word(state + BigInt(symbol + 1) * GOLDEN));

/** A text as it is counted: normalised, without spaces around it, cut to so many bytes between two letters. */
export function wordOf(given: string, maxBytes: number): Bytes {
  const letters = Array.from(trimmed(given.normalize("NFC").replaceAll("\0", "")).replace(/\p{Cs}/gu, "?"));
  const encoder = new TextEncoder();
  let [length, kept] = [0, ""];
  for (const letter of letters) {
    length += encoder.encode(letter).length;
    if (length > maxBytes) break;
    kept += letter;
  }
  return encoder.encode(trimmed(kept));
}

const compared = (one: Uint8Array, other: Uint8Array): number => {
  for (let place = 0; place < Math.min(one.length, other.length); place += 1) if (one[place] !== other[place]) return one[place] - other[place];
  return one.length - other.length;
};

/** As many texts as count, by the seed and all texts of the person: not the same ones of everybody. */
function someOf(words: readonly Bytes[], perPerson: number, seed: bigint): readonly Bytes[] {
  if (words.length <= perPerson) return words;
  const parts = [ascii(seed.toString()), ...[...words].sort(compared)];
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length + 1, -1));
  let place = 0;
  for (const part of parts) {
    all.set(part, place);
    place += part.length + 1; // a zero between them
  }
  const key = blake2b(all, { dkLen: 32 });
  const ranked = words.map((one) => ({ one, rank: blake2b(one, { key, dkLen: 64 }) }));
  return ranked.sort((one, other) => compared(one.rank, other.rank)).slice(0, perPerson).map(({ one }) => one);
}

export function readWords(words: JsonObject): Question {
  names("query", words, ["kind", "column", "max_bytes", "per_person", "cells", "mistakes", "hash_seed"]);
  const column = text("column", words.get("column"));
  const maxBytes = whole("max_bytes", words.get("max_bytes"), { atLeast: 2, atMost: 256 });
  const perPerson = whole("per_person", words.get("per_person"), { atLeast: 1, atMost: 100 });
  const cells = whole("cells", words.get("cells"), { atLeast: 1 << 8, atMost: 1 << 19 });
  real("mistakes", words.get("mistakes"), { above: 0, atMost: 1 });
  const seed = BigInt(whole("hash_seed", words.get("hash_seed"), { atLeast: 0, atMost: Number.MAX_SAFE_INTEGER }));
  if ((cells & (cells - 1)) !== 0) throw new WireError("a task that says something impossible: cells must be a power of two");
  const bits = BigInt(Math.log2(cells));
  const dim = cells + cells / 2;
  const root = mixed(word(seed + GOLDEN));
  /** The cells of a text, and what whoever holds it adds in each. */
  const cellsOf = (bytes: Bytes): { places: number[]; size: number } => {
    const halves = Array.from(bytes, (byte) => [byte >> 4, byte & 15]).flat();
    const levels = bytes.length < 2 ? bytes.length : 2 * bytes.length - 2;
    if (levels === 0) return { places: [], size: 0 };
    const places: number[] = [];
    let state = step(root, (halves[0] << 8) | (halves[1] << 4) | (halves[2] ?? 0));
    places.push(Number(state >> (64n - bits)));
    for (let level = 2; level <= levels; level += 1) {
      state = step(state, halves[level + 1]);
      places.push(Number(state >> (64n - bits)));
    }
    for (let check = 0; check < CHECKS; check += 1) places.push(cells + Number(step(state, WHOLE + check) >> (65n - bits)));
    return { places, size: 1 / Math.sqrt(perPerson * (levels + CHECKS)) };
  };
  const together = (records: readonly RecordValues[]): Float64Array => {
    const held = new Map<string, Bytes>();
    for (const record of records) {
      requireColumns(record, [column]);
      const bytes = wordOf(textOf(record, column), maxBytes);
      if (bytes.length > 0) held.set(bytes.join(), bytes);
    }
    const vector = new Float64Array(dim);
    for (const bytes of someOf([...held.values()], perPerson, seed)) {
      const { places, size } = cellsOf(bytes);
      for (const place of places) vector[place] = Math.max(vector[place], size); // of two texts in one cell the larger counts
    }
    return vector;
  };
  return {
    kind: "words",
    dim,
    parameters: 1,
    norm: 1,
    diameter: Math.SQRT2,
    fields: [{ name: column, text: "text" }],
    words: `which texts many people have in ${column}, and how many have each; a text that few have is not found`,
    note: "A text counts in some cells that its letters and a public number choose.",
    says: (record) => [{ part: column, counts: new TextDecoder().decode(wordOf(textOf(record, column), maxBytes)) || "nothing" }],
    vector: (record) => together([record]),
    together,
    coordinate: (place) => (place < cells ? { part: "beginnings", counts: `cell ${place + 1}` } : { part: "whole texts", counts: `cell ${place - cells + 1}` }),
  };
}
