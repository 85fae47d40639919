/**
 * From a vector to integers: clip to the plan's norm, rotate where the plan does, scale to 0..g, round at random, add Bin(b, p). The operations and their order
 * are those of src/croupier/protocol/_encoding.py, so that what is proved for it (accounting, section 6) holds here.
 */
import type { Bytes } from "./bytes.ts";
import { RecordError } from "./errors.ts";
import type { SumPlan } from "./plan.ts";
import type { RandomSource } from "./random.ts";
import { coordinatesOf, turned, turnedBack } from "./rotation.ts";
import { binomial, roundAtRandom } from "./sampling.ts";

const NORMS = [1e-30, 1e30];
const LONGEST_ROW = 1e100;

/** The sum of products in the order in which numpy adds up on x86-64: two lanes, eight entries at a time, the last of them first. */
export function dot(one: Float64Array, other: Float64Array): number {
  let even = 0;
  let odd = 0;
  let place = 0;
  for (; place + 8 <= one.length; place += 8) {
    for (let pair = 6; pair >= 0; pair -= 2) {
      even += one[place + pair] * other[place + pair];
      odd += one[place + pair + 1] * other[place + pair + 1];
    }
  }
  for (; place < one.length; place += 2) {
    even += one[place] * other[place];
    if (place + 1 < one.length) odd += one[place + 1] * other[place + 1];
  }
  return even + odd;
}

const square = (vector: Float64Array): number => (vector.length === 1 ? vector[0] * vector[0] : dot(vector, vector));

/** The vector divided by `norm`, scaled back to just inside the unit ball where it is outside: its true length is at most 1. */
export function clipped(vector: Float64Array, norm: number): Float64Array {
  if (!vector.every(Number.isFinite)) throw new RecordError("a gradient that is not made of finite numbers");
  const squares = square(vector);
  const slack = (vector.length + 16) * 2 ** -52;
  if (squares < LONGEST_ROW ** 2 && norm > NORMS[0] && norm < NORMS[1]) {
    const longest = Math.sqrt(squares * (1 + slack));
    const factor = 1 / Math.max(norm, longest);
    return vector.map((entry) => factor * entry);
  }
  const limit = 1 - (vector.length + 8) * 2 ** -53;
  const peak = vector.reduce((most, entry) => Math.max(most, Math.abs(entry)), 0);
  const unit = vector.map((entry) => entry / Math.max(peak, norm));
  const length = Math.sqrt(square(unit));
  const back = length > limit || peak > norm ? limit / Math.max(length, limit) : 1;
  return unit.map((entry) => entry * back);
}

/** Real encodings a = (x + 1) g / 2 of a vector in the unit ball. */
export function encoded(unit: Float64Array, levels: number): Float64Array {
  const half = levels / 2;
  return unit.map((entry) => (entry + 1) * half);
}

/** What a device makes of its vector: the count of ones of each coordinate that leaves it, and what that is made of. */
export interface Randomized {
  /** Ones among the g + b bits of each coordinate: the noisy counts. */
  counts: number[];
  /** Real encodings before rounding and noise: these never leave. */
  exact: Float64Array;
  /** How far each number of the vector is from one that says nothing, in levels: before rounding and noise, and as it was sent. */
  said: Float64Array;
  sent: Float64Array;
}

/** Clip, rotate where the plan does, encode, round at random and add Bin(b, p): the ones of each coordinate. The seed of a rotation is the digest of the round's document, whichever block is sent. */
export function randomized(vector: Float64Array, plan: SumPlan, random: RandomSource, seed: Bytes, block = 0): Randomized {
  if (vector.length !== plan.dim) throw new RecordError(`a vector of ${vector.length} numbers where the plan has ${plan.dim}`);
  if (!vector.every(Number.isFinite)) throw new RecordError("a gradient that is not made of finite numbers");
  const noise = binomial(random, plan.noiseBits, plan.noiseProbability, coordinatesOf(plan));
  const unit = clipped(vector, plan.norm);
  const { range } = plan;
  const exact = encoded(range === null ? unit : turned(unit, { ...plan, range }, seed, block), plan.levels);
  const counts = roundAtRandom(random, exact).map((ones, place) => ones + noise[place]);
  const own = (numbers: Float64Array): Float64Array => (range === null ? numbers : turnedBack(numbers, plan, seed, block));
  const middle = plan.levels / 2 + plan.noiseBits * plan.noiseProbability;
  const said = own(exact.map((entry) => entry - plan.levels / 2));
  return { counts, exact, said, sent: own(Float64Array.from(counts, (count) => count - middle)) };
}
