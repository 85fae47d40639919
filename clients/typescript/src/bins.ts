/** Bins of a question, and what is sent of each: the operations and their order are those of src/croupier/statistics. */
import { list, real } from "./checks.ts";
import { WireError } from "./errors.ts";
import { type Json, JsonNumber } from "./json.ts";

const FURTHEST = 1e30;
const LEAST = 1e-290;

/** A number of a task that a float holds exactly, also where it was written as a whole number. */
export function exactly(name: string, value: Json | undefined, limit: number): number {
  const number = real(name, value, { above: -limit, below: limit });
  if (value instanceof JsonNumber && value.integer !== null && !Number.isSafeInteger(number)) {
    throw new WireError(`a task that says something impossible: ${name} must be a number that a float holds`);
  }
  return number;
}

/** 1, 1/2, 3/8, ...: a column of the lower triangular root of prefix sums, divided by the length of the longest column. */
export function unitRoot(size: number): Float64Array {
  const falling = new Float64Array(size);
  let product = 1;
  let squares = 0;
  for (let place = 0; place < size; place += 1) {
    if (place > 0) product *= (2 * place - 1) / (2 * place);
    falling[place] = product;
    squares += product * product;
  }
  const longest = Math.sqrt(squares);
  return falling.map((entry) => entry / longest);
}

/** Write what is sent of bin `place` of some that begin at `first`: the root's column, which is zero above its place. */
export function writeRoot(vector: Float64Array, first: number, place: number, root: Float64Array, weight: number): void {
  for (let below = place; below < root.length; below += 1) vector[first + below] = weight * root[below - place];
}

/** How many of ascending numbers are below a value; with `orEqual` those that equal it, too. */
export function countBelow(ascending: readonly number[], value: number, orEqual: boolean): number {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle] < value || (orEqual && ascending[middle] === value)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The bins of a number between stated ends: below, between, a bin for 0 alone where 0 is an end, above, missing. */
export class NumberBins {
  readonly low: number;
  readonly high: number;
  readonly whole: boolean;
  readonly edges: readonly number[];
  readonly size: number;
  readonly #zero: number | null;

  constructor(low: number, high: number, whole: boolean, bins: number, edges: readonly number[]) {
    const ends = whole ? [Math.ceil(low) - 0.5, Math.floor(high) + 0.5] : [low, high];
    const small = [low, high].some((end) => end !== 0 && Math.abs(end) < LEAST);
    const ascending = edges.every((edge, place) => place === 0 || edges[place - 1] < edge);
    const fits = edges.length >= 2 && edges.length <= bins + 1 && edges[0] === ends[0] && edges[edges.length - 1] === ends[1];
    if (!(low < high) || small || (whole && high - low < 1) || !ascending || !fits) {
      throw new WireError("a task that says something impossible: bins whose ends do not ascend from low to high");
    }
    this.low = low;
    this.high = high;
    this.whole = whole;
    this.edges = edges;
    const zero = whole ? -1 : edges.findIndex((edge) => edge === 0);
    this.#zero = zero < 0 ? null : zero;
    this.size = edges.length + 2 + (this.#zero === null ? 0 : 1);
  }

  /** The bin of a number; NaN is missing. */
  place(value: number): number {
    if (Number.isNaN(value)) return this.size - 1;
    const last = this.edges.length - 1;
    const found = value === this.edges[last] ? last : countBelow(this.edges, value, true);
    return found + (this.#zero !== null && value > 0 ? 1 : 0);
  }

  /** What a bin holds, in words. */
  words(place: number): string {
    if (place === this.size - 1) return "nothing";
    if (place === 0) return `below ${this.#said(0, true)}`;
    if (place === this.size - 2) return `above ${this.#said(this.edges.length - 1, false)}`;
    let at = place;
    if (this.#zero !== null && place > this.#zero) {
      if (place === this.#zero + 1) return "0";
      at -= 1;
    }
    if (!this.whole) return `${shown(this.edges[at - 1])} to ${shown(this.edges[at])}`;
    const [from, to] = [this.#said(at - 1, true), this.#said(at, false)];
    return from === to ? from : `${from} to ${to}`;
  }

  /** Which numbers a bin and all before it hold, in words. */
  upTo(place: number): string {
    if (place === 0) return `below ${this.#said(0, true)}`;
    if (place >= this.size - 2) return place === this.size - 1 ? "anything, or nothing" : "any number";
    if (place === this.#zero) return "below 0"; // 0 itself is the next
    const at = this.#zero !== null && place > this.#zero ? place - 1 : place;
    return `up to ${this.#said(at, false)}`;
  }

  /** An edge; of whole numbers the one above or below it. */
  #said(place: number, above: boolean): string {
    const edge = this.edges[place];
    return shown(this.whole ? (above ? Math.ceil(edge) : Math.floor(edge)) : edge);
  }
}

const shortly = (number: number): string =>
  Math.abs(number) < 1 ? String(Number(number.toPrecision(4))) : number.toLocaleString("en", { maximumSignificantDigits: 4 });

/** A number for people: at most four digits, more only where it is whole. */
export const shown = (number: number): string =>
  Number.isInteger(number) && Math.abs(number) < 1e15 ? (number + 0).toLocaleString("en") : shortly(number);

export const readEdges = (value: Json | undefined): number[] => list("edges", value).map((edge) => exactly("edges", edge, FURTHEST));
