/**
 * Verified sums: a report proves to two servers, of which neither sees its counts, that each of them is from 0 to g + b.
 * Prio3SumVec with three proofs over a field of 64 bits (draft-irtf-cfrg-vdaf-18); docs/protocol.md says it all.
 */
import { turboshake128 } from "@noble/hashes/sha3-addons.js";
import { ascii, type Bytes, joined, littleEndian } from "./bytes.ts";
import { randomBytes } from "./crypto.ts";

const P = 2n ** 64n - 2n ** 32n + 1n;
const PROOFS = 3;
const SEED = 32;
const HALF = (1n << 32n) - 1n;

const power = (base: bigint, exponent: bigint): bigint => {
  let made = 1n;
  let factor = base;
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) made = (made * factor) % P;
    factor = (factor * factor) % P;
  }
  return made;
};

/** The root of unity of order n, a power of two. */
const rootOf = (n: number): bigint => power(7n, (HALF << 32n) / BigInt(n));

/** Values of a polynomial at the powers of a root of unity, from its coefficients, in place. */
function transformed(values: bigint[], root: bigint): bigint[] {
  const n = values.length;
  for (let i = 1, j = 0; i < n; i += 1) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [values[i], values[j]] = [values[j], values[i]];
  }
  for (let size = 2; size <= n; size *= 2) {
    const step = power(root, BigInt(n / size));
    const roots = [1n];
    for (let k = 1; k < size / 2; k += 1) roots.push((roots[k - 1] * step) % P);
    for (let first = 0; first < n; first += size) {
      for (let k = 0; k < size / 2; k += 1) {
        const low = values[first + k];
        const high = (values[first + k + size / 2] * roots[k]) % P;
        const sum = low + high;
        values[first + k] = sum >= P ? sum - P : sum;
        values[first + k + size / 2] = low >= high ? low - high : low - high + P;
      }
    }
  }
  return values;
}

export interface VerifiedSizes {
  /** Bits of a count, and elements of a vector. */
  bits: number;
  elements: number;
  chunk: number;
  calls: number;
  /** The least power of two above the calls. */
  points: number;
}

/** How counts of 0 to `most` in `dim` coordinates are cut into chunks: so that a proof is as short as can be. */
export function verifiedSizes(dim: number, most: number): VerifiedSizes {
  const bits = most.toString(2).length;
  const elements = dim * bits;
  let chunk = 0;
  let shortest = Infinity;
  for (let points = 2; points <= 2 * elements; points *= 2) {
    const length = Math.ceil(elements / (points - 1));
    if (2 * length + 2 * points - 1 < shortest) [chunk, shortest] = [length, 2 * length + 2 * points - 1];
  }
  return sizesOf(bits, elements, chunk);
}

function sizesOf(bits: number, elements: number, chunk: number): VerifiedSizes {
  const calls = Math.ceil(elements / chunk);
  let points = 1;
  while (points < calls + 1) points *= 2;
  return { bits, elements, chunk, calls, points };
}

/** Bytes of what the analyzer checks of a report: envelope, nonce, public share and the shuffler's verifier share. */
export const verifiedPart = (dim: number, most: number): number => 112 + 16 + 64 + PROOFS * (2 * verifiedSizes(dim, most).chunk + 2) * 8 + SEED;

/** Bytes of a report after its header: envelope, nonce, public share, the leader's share of measurement and proofs, and its blind. */
export function verifiedReport(dim: number, most: number): number {
  const { elements, chunk, points } = verifiedSizes(dim, most);
  return 112 + 16 + 64 + 8 * (elements + PROOFS * (2 * chunk + 2 * points - 1)) + SEED;
}

/** Elements and seeds that the hash gives for a use in this round. */
class Hash {
  readonly #context: Bytes;

  constructor(digest: Bytes) {
    this.#context = joined(ascii("croupier report v1 verified-sum "), digest);
  }

  #output(seed: Bytes, use: number, binder: Bytes): { xof(count: number): Uint8Array } {
    const tag = joined(new Uint8Array([18, 0, 255, 255, 255, 255, 0, use]), this.#context);
    const text = joined(littleEndian(tag.length, 2), tag, new Uint8Array([seed.length]), seed, binder);
    return turboshake128.create({ D: 1 }).update(text);
  }

  seed(seed: Bytes, use: number, binder: Bytes): Bytes {
    return new Uint8Array(this.#output(seed, use, binder).xof(SEED));
  }

  elements(seed: Bytes, use: number, binder: Bytes, count: number): bigint[] {
    const output = this.#output(seed, use, binder);
    const made: bigint[] = [];
    while (made.length < count) {
      const bytes = new Uint8Array(output.xof(8 * (count - made.length)));
      const view = new DataView(bytes.buffer);
      for (let place = 0; place < bytes.length; place += 8) {
        const number = view.getBigUint64(place, true);
        if (number < P) made.push(number);
      }
    }
    return made;
  }
}

function written(elements: readonly bigint[]): Bytes {
  const bytes = new Uint8Array(8 * elements.length);
  const view = new DataView(bytes.buffer);
  elements.forEach((element, place) => view.setBigUint64(8 * place, element, true));
  return bytes;
}

const less = (one: bigint, other: bigint): bigint => (one >= other ? one - other : one - other + P);

/** A count as zeros and ones of weights 1, 2, 4, ... and, the last, what is left to `most`. */
function encoded(count: number, most: number, bits: number): bigint[] {
  const half = 2 ** (bits - 1);
  const last = count >= half ? 1 : 0;
  const rest = count - last * (most - (half - 1));
  const made = Array.from({ length: bits - 1 }, (_, place) => BigInt(Math.floor(rest / 2 ** place) % 2));
  return [...made, BigInt(last)];
}

/** One proof: the wire seeds, and the gadget's values at the powers of the root of order 2 P but the last. */
function proof(encoding: readonly bigint[], sizes: VerifiedSizes, r: readonly bigint[], seeds: readonly bigint[]): bigint[] {
  const { chunk, calls, points } = sizes;
  const inverse = power(rootOf(points), P - 2n);
  const count = power(BigInt(points), P - 2n);
  const [root, gadget] = [rootOf(2 * points), new Array<bigint>(2 * points).fill(0n)];
  const powers = Array.from({ length: calls }, (_, i) => r[i]);
  const spread = (values: bigint[]): bigint[] => {
    const coefficients = transformed(values, inverse).map((value) => (value * count) % P);
    return transformed([...coefficients, ...new Array<bigint>(points).fill(0n)], root);
  };
  for (let j = 0; j < chunk; j += 1) {
    const left = new Array<bigint>(points).fill(0n);
    const right = new Array<bigint>(points).fill(0n);
    [left[0], right[0]] = [seeds[2 * j], seeds[2 * j + 1]];
    for (let i = 0; i < calls; i += 1) {
      const x = encoding[i * chunk + j] ?? 0n;
      left[i + 1] = (powers[i] * x) % P;
      right[i + 1] = less(x, 1n);
      powers[i] = (powers[i] * r[i]) % P;
    }
    const [one, other] = [spread(left), spread(right)];
    for (let k = 0; k < 2 * points; k += 1) gadget[k] = (gadget[k] + one[k] * other[k]) % P;
  }
  return [...seeds, ...gadget.slice(0, -1)];
}

export interface VerifiedShares {
  /** What is sealed for the analyzer: two seeds. */
  helper: Bytes;
  /** What goes to the shuffler as it is: nonce, public share and the leader's share. */
  open: Bytes;
}

/** Shares of counts and of proofs that each is from 0 to `most`. `random` and `chunk` are for vectors alone. */
export function verifiedShares(counts: readonly number[], most: number, digest: Bytes, random: Bytes = randomBytes(144), chunk?: number): VerifiedShares {
  const chosen = verifiedSizes(counts.length, most);
  const sizes = chunk === undefined ? chosen : sizesOf(chosen.bits, chosen.elements, chunk);
  const [nonce, helper, helperBlind, leaderBlind, prove] = [16, 48, 80, 112, 144].map((end, place) =>
    random.slice(place === 0 ? 0 : end - SEED, end),
  ) as Bytes[];
  const hash = new Hash(digest);
  const encoding = counts.flatMap((count) => encoded(count, most, sizes.bits));
  const helperMeasurement = hash.elements(helper, 1, new Uint8Array([1]), sizes.elements);
  const measurement = encoding.map((element, place) => less(element, helperMeasurement[place]));
  const part = (blind: Bytes, who: number, share: readonly bigint[]): Bytes => hash.seed(blind, 7, joined(new Uint8Array([who]), nonce, written(share)));
  const publicShare = joined(part(leaderBlind, 0, measurement), part(helperBlind, 1, helperMeasurement));
  const joint = hash.seed(new Uint8Array(SEED), 6, publicShare);
  const { chunk: width, calls, points } = sizes;
  const r = hash.elements(joint, 3, new Uint8Array([PROOFS]), PROOFS * calls);
  const seeds = hash.elements(prove, 4, new Uint8Array([PROOFS]), PROOFS * 2 * width);
  const proofs = Array.from({ length: PROOFS }, (_, k) =>
    proof(encoding, sizes, r.slice(k * calls, (k + 1) * calls), seeds.slice(2 * k * width, 2 * (k + 1) * width)),
  ).flat();
  const helperProofs = hash.elements(helper, 2, new Uint8Array([PROOFS, 1]), PROOFS * (2 * width + 2 * points - 1));
  const leaderProofs = proofs.map((element, place) => less(element, helperProofs[place]));
  return {
    helper: joined(helper, helperBlind),
    open: joined(nonce, publicShare, written(measurement), written(leaderProofs), leaderBlind),
  };
}
