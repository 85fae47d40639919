/**
 * A public random rotation: signs from the round's digest, then the Walsh-Hadamard transform. The operations and their order are
 * those of src/croupier/protocol/_rotation.py, so that both make the same bits (accounting, section 10).
 */
import { chacha20 } from "@noble/ciphers/chacha.js";
import { blake2b } from "@noble/hashes/blake2.js";
import { ascii, type Bytes } from "./bytes.ts";
import type { SumPlan } from "./plan.ts";

/** The power of two that is at least `dim`: the coordinates of a rotated vector. */
export const paddedLength = (dim: number): number => 2 ** Math.ceil(Math.log2(dim));

/** Coordinates that one user sends. */
export const coordinatesOf = (plan: Pick<SumPlan, "dim" | "range">): number => (plan.range === null ? plan.dim : paddedLength(plan.dim));

const PERSON = new Uint8Array(16);
PERSON.set(ascii("rotation"));

/** One sign each, from the bits of a ChaCha20 stream keyed by BLAKE2b of the seed. */
function signsOf(seed: Bytes, count: number): Float64Array {
  const key = blake2b(seed, { personalization: PERSON, dkLen: 32 });
  const bits = chacha20(key, new Uint8Array(12), new Uint8Array(Math.ceil(count / 8)));
  return Float64Array.from({ length: count }, (_, place) => ((bits[place >> 3] >> (place & 7)) & 1 ? -1 : 1));
}

/** The Walsh-Hadamard transform in place, without its factor: log2(d') stages of sums and differences. */
function transform(vector: Float64Array): void {
  for (let half = 1; half < vector.length; half *= 2) {
    for (let first = 0; first < vector.length; first += 2 * half) {
      for (let place = first; place < first + half; place += 1) {
        const [one, other] = [vector[place], vector[place + half]];
        vector[place] = one + other;
        vector[place + half] = one - other;
      }
    }
  }
}

/** Rotate a vector in the unit ball and clip its entries to the range; in ranges, so that they are in [-1, 1]. */
export function turned(unit: Float64Array, range: number, seed: Bytes): Float64Array {
  const padded = paddedLength(unit.length);
  const signs = signsOf(seed, padded);
  const vector = new Float64Array(padded);
  unit.forEach((entry, place) => (vector[place] = entry * signs[place]));
  transform(vector);
  // more than what sums and products can add to the length
  const scale = (1 - (Math.log2(padded) + 16) * 2 ** -52) / Math.sqrt(padded);
  return vector.map((entry) => Math.min(Math.max((entry * scale) / range, -1), 1));
}

/** Turn rotated numbers back into the vector's own coordinates. */
export function turnedBack(rotated: Float64Array, dim: number, seed: Bytes): Float64Array {
  const signs = signsOf(seed, rotated.length);
  const vector = rotated.slice();
  transform(vector);
  return vector.map((entry, place) => (entry / Math.sqrt(rotated.length)) * signs[place]).slice(0, dim);
}
