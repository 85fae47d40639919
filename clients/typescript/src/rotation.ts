/**
 * A public random rotation: signs from the round's digest, the Walsh-Hadamard transform, and for blocks an order of the coordinates. The operations and their order are
 * those of src/croupier/protocol/_rotation.py, so that both make the same bits (accounting, section 10).
 */
import { chacha20 } from "@noble/ciphers/chacha.js";
import { blake2b } from "@noble/hashes/blake2.js";
import { ascii, type Bytes } from "./bytes.ts";
import type { SumPlan } from "./plan.ts";

/** The power of two that is at least `dim`: the coordinates of a rotated vector. */
export const paddedLength = (dim: number): number => 2 ** Math.ceil(Math.log2(dim));

type Rotated = Pick<SumPlan, "dim" | "range" | "blocks">;

/** Coordinates that one user sends: all of them, or those of one block. */
export const coordinatesOf = (plan: Rotated): number => (plan.range === null ? plan.dim : paddedLength(plan.dim) / plan.blocks);

/** What the part that a user sends is clipped to, in norms. */
export const blockNorm = (plan: Rotated): number => (plan.blocks === 1 ? 1 : (1 + 1 / Math.sqrt(coordinatesOf(plan))) / Math.sqrt(plan.blocks));

const PERSON = new Uint8Array(16);
PERSON.set(ascii("rotation"));

/** One sign each, from the bits of a ChaCha20 stream keyed by BLAKE2b of the seed; then, for blocks, the order of as many numbers of 64 bits. */
function drawn(seed: Bytes, count: number, permuted: boolean): { signs: Float64Array; order: Uint32Array | null } {
  const key = blake2b(seed, { personalization: PERSON, dkLen: 32 });
  const signBytes = Math.ceil(count / 8);
  const bits = chacha20(key, new Uint8Array(12), new Uint8Array(signBytes + (permuted ? 8 * count : 0)));
  const signs = Float64Array.from({ length: count }, (_, place) => ((bits[place >> 3] >> (place & 7)) & 1 ? -1 : 1));
  if (!permuted) return { signs, order: null };
  const words = new DataView(bits.buffer, bits.byteOffset + signBytes);
  const [low, high] = [0, 4].map((half) => Uint32Array.from({ length: count }, (_, place) => words.getUint32(8 * place + half, true)));
  const order = Uint32Array.from({ length: count }, (_, place) => place);
  return { signs, order: order.sort((one, other) => high[one] - high[other] || low[one] - low[other] || one - other) };
}

/** The rotated coordinates that a block has, in their order; null: all of them. */
const partOf = (order: Uint32Array | null, block: number, blocks: number): Uint32Array | null =>
  order === null ? null : order.subarray((block * order.length) / blocks, ((block + 1) * order.length) / blocks);

/** What a block is multiplied by so as to be no longer than `limit`. Squares are added up in halves: one order. */
function shorter(entries: Float64Array, limit: number): number {
  let squares = entries.map((entry) => entry * entry);
  while (squares.length > 1) {
    const half = squares.length / 2;
    const [first, second] = [squares.subarray(0, half), squares.subarray(half)];
    squares = first.map((square, place) => square + second[place]);
  }
  return limit / Math.max(limit, Math.sqrt(squares[0] * (1 + (entries.length + 16) * 2 ** -52)));
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

/** Rotate a vector in the unit ball, take a block, clip it to its norm and its entries to the range; in ranges, so that they are in [-1, 1]. */
export function turned(unit: Float64Array, plan: Rotated & { range: number }, seed: Bytes, block: number): Float64Array {
  const padded = paddedLength(unit.length);
  const { signs, order } = drawn(seed, padded, plan.blocks > 1);
  const vector = new Float64Array(padded);
  unit.forEach((entry, place) => (vector[place] = entry * signs[place]));
  transform(vector);
  // more than what sums and products can add to the length
  const scale = (1 - (Math.log2(padded) + 16) * 2 ** -52) / Math.sqrt(padded);
  const inRange = (entry: number): number => Math.min(Math.max(entry / plan.range, -1), 1);
  const part = partOf(order, block, plan.blocks);
  if (part === null) return vector.map((entry) => inRange(entry * scale));
  const entries = Float64Array.from(part, (place) => vector[place] * scale);
  const back = shorter(entries, blockNorm(plan));
  return entries.map((entry) => inRange(entry * back));
}

/** Turn rotated numbers, or those of a block, back into what they say of the vector's own coordinates. */
export function turnedBack(rotated: Float64Array, plan: Rotated, seed: Bytes, block: number): Float64Array {
  const padded = paddedLength(plan.dim);
  const { signs, order } = drawn(seed, padded, plan.blocks > 1);
  const part = partOf(order, block, plan.blocks);
  const vector = part === null ? rotated.slice() : new Float64Array(padded);
  part?.forEach((place, k) => (vector[place] = rotated[k]));
  transform(vector);
  return vector.map((entry, place) => (entry / Math.sqrt(padded)) * signs[place]).slice(0, plan.dim);
}
