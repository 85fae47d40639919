/**
 * Bin(n, 1/2) for many trials n, exactly, at a cost that does not grow with n: the sampler of src/croupier/protocol/_sampling.py,
 * which says what is drawn and proves it (accounting, section 6). Of the same random bytes it makes the same draws. Floats decide
 * where their error, which is bounded, cannot matter; whole numbers decide the rest.
 */
import type { RandomSource } from "./random.ts";

// Trials from which on the bound on the error of floats holds, and up to which every whole number here is a float.
export const MIN_TRIALS = 1 << 10;
export const MAX_TRIALS = 2 ** 52;
const CHANCE_BITS = 14;
const TAIL = 24;
const SCALE = 2156;
// |float - exact| of what is compared, the bits of the uniform number not drawn yet among it
const SLACK = 2e-6;

/** Chances of the cells, of 2^14 in all: each at least SCALE exp(-c^2 / 64), the last for the tail. */
const SHARES = [...Array.from({ length: TAIL }, (_, cell) => Math.ceil(SCALE * Math.exp((-cell * cell) / 64) + 1e-9)), 1];
SHARES[0] += (1 << CHANCE_BITS) - SHARES.reduce((sum, share) => sum + share, 0);
const CELLS = Uint8Array.from(SHARES.flatMap((share, cell) => new Array<number>(share).fill(cell)));
// What a 32-bit number is multiplied by to be compared with g. In the tail floats know nothing.
const PRICES = SHARES.map((share, cell) => (cell === TAIL ? NaN : share / SCALE / 2 ** 32));

/** Draws of Bin(trials_i, 1/2), for MIN_TRIALS to MAX_TRIALS trials each. */
export function drawMany(source: RandomSource, trials: readonly number[]): number[] {
  const result = new Array<number>(trials.length);
  let open = trials.map((_, place) => place);
  while (open.length > 0) {
    const some = open.map((place) => trials[place]);
    const proposed = proposals(source, some);
    open.forEach((place, index) => (result[place] = proposed[index]));
    open = open.filter((_, index) => Number.isNaN(proposed[index]));
  }
  return result;
}

/** A proposal for each number of trials; NaN where it is not kept. */
function proposals(source: RandomSource, trials: readonly number[]): number[] {
  const size = trials.length;
  const drawn = source.draw(12 * size);
  const view = new DataView(drawn.buffer, drawn.byteOffset, drawn.byteLength);
  const word = (row: number, index: number): number => view.getUint32(4 * (row * size + index), true);
  const open: number[] = [];
  const distances = new Array<number>(size);
  const lefts = new Array<number>(size);
  const kept = new Array<boolean>(size);
  for (let index = 0; index < size; index += 1) {
    const middle = Math.floor((trials[index] + 1) / 2);
    const width = widthOf(middle);
    const cell = CELLS[word(2, index) >>> (32 - CHANCE_BITS)];
    const [high, left] = product(word(0, index), width);
    const distance = cell * width + high;
    const excess = word(1, index) * PRICES[cell] - nearly(distance, middle);
    distances[index] = distance;
    lefts[index] = left;
    kept[index] = excess < 0;
    if (!(Math.abs(excess) > SLACK) || left < width) open.push(index);
  }
  for (const index of open) {
    const cell = CELLS[word(2, index) >>> (32 - CHANCE_BITS)];
    const middle = Math.floor((trials[index] + 1) / 2);
    [distances[index], kept[index]] = settled(source, cell, lefts[index], word(1, index), distances[index], middle);
  }
  return trials.map((number, index) => {
    if (!kept[index]) return NaN;
    const choice = word(2, index);
    const side = choice & 1 ? -distances[index] - 1 : distances[index];
    const even = number % 2 === 0 ? (choice >>> 1) & 1 : 0; // an even number is an odd one and a fair bit
    return Math.floor((number + 1) / 2) + side + even;
  });
}

/** More than sqrt(middle) / 8: the root is correctly rounded. */
const widthOf = (middle: number): number => Math.floor(Math.sqrt(middle) / 8) + 1;

/** place times width, of 32 and at most 23 bits: what is above 2^32, and what is left. */
function product(place: number, width: number): [number, number] {
  const above = (place >>> 16) * width;
  const rest = (above % 65536) * 65536 + (place & 65535) * width;
  return [Math.floor(above / 65536) + Math.floor(rest / 2 ** 32), rest % 2 ** 32];
}

/** g(distance) but for 3.6e-7 and the error of exp, outside the tail. */
function nearly(distance: number, middle: number): number {
  const first = (distance * (distance + 1)) / middle;
  return Math.exp(-first * (1 + first / (6 * middle)));
}

/** The proposal and whether it is kept, in whole numbers. */
function settled(source: RandomSource, cell: number, left: number, uniform: number, distance: number, middle: number): [number, boolean] {
  const width = widthOf(middle);
  if (left < 2 ** 32 % width) return [distance, false]; // without these products all offsets are alike
  const beyond = cell === TAIL ? geometric(source) : -1;
  const further = distance + Math.max(0, beyond) * width;
  if (further >= middle) return [0, false];
  return [further, isBelow(source, BigInt(uniform), BigInt(further), BigInt(middle), BigInt(SCALE) << BigInt(beyond + 1), BigInt(SHARES[cell]))];
}

function word64(source: RandomSource): bigint {
  return source.draw(8).reduceRight((word, byte) => (word << 8n) | BigInt(byte), 0n);
}

/** Law: k with probability 2^-(k + 1): the zeros before the first one. */
function geometric(source: RandomSource): number {
  let zeros = 0;
  for (;;) {
    let word = word64(source);
    if (word > 0n) {
      for (; (word & 1n) === 0n; word >>= 1n) zeros += 1;
      return zeros;
    }
    zeros += 64;
  }
}

/** Whether U < g(distance) numerator / denominator, for a U in [0, 1) whose first 32 bits are known; more are drawn at need. */
function isBelow(source: RandomSource, first: bigint, distance: bigint, middle: bigint, numerator: bigint, denominator: bigint): boolean {
  let uniform = first;
  for (let bits = 32n; ; bits += 64n) {
    const [short, long] = minusLog(distance, middle, bits + 32n);
    const precision = bits + 128n + 2n * (long >> (bits + 32n));
    const factor = numerator << bits;
    if (((uniform + 1n) * denominator) << precision <= expMinus(long, bits + 32n, precision, false) * factor) return true;
    if ((uniform * denominator) << precision >= expMinus(short, bits + 32n, precision, true) * factor) return false;
    uniform = (uniform << 64n) | word64(source);
  }
}

/** Whole numbers that -2^bits ln g(i) lies between. */
function minusLog(distance: bigint, middle: bigint, bits: bigint): [bigint, bigint] {
  const t = distance * (distance + 1n);
  const sums: bigint[] = [];
  let total = 0n;
  for (let q = 1; ; q += 1) {
    const order = BigInt(q);
    // the sums of odd powers of 1, ..., i, each from those before it
    let others = 0n;
    for (let k = 3; k <= q; k += 2) others += choose(q, k) * sums[q - 1 - Math.floor(k / 2)];
    sums.push((t ** order - 2n * others) / (2n * order));
    const odd = 2n * order - 1n;
    total += (sums[q - 1] << (bits + 1n)) / (odd * middle ** odd);
    const cutOff = (t ** (order + 1n) << bits) / ((order + 1n) * (odd + 2n) * middle ** odd * (middle ** 2n - t)) + 1n;
    if (cutOff === 1n) return [total, total + order + 1n];
  }
}

function choose(n: number, k: number): bigint {
  let chosen = 1n;
  for (let place = 1; place <= k; place += 1) chosen = (chosen * BigInt(n - k + place)) / BigInt(place);
  return chosen;
}

/** 2^precision exp(-number / 2^bits), rounded up or down to a whole number on that side of it: Taylor's series, then squares. */
function expMinus(number: bigint, bits: bigint, precision: bigint, up: boolean): bigint {
  const halvings = BigInt(Math.max(0, number.toString(2).length - Number(bits) + 8)); // to below 1/256
  const shift = bits + halvings;
  const floor = (number << precision) >> shift;
  const y = up ? floor : floor + 1n; // the smaller y, the larger exp(-y)
  const one = 1n << precision;
  let [low, high, sum] = [one, one, one];
  // terms fall and alternate: a sum that ends with a positive one is too large, with a negative one too small
  for (let k = 1n; ; k += 1n) {
    low = (low * y) / (one * k);
    high = (high * y) / (one * k) + 1n;
    const positive = k % 2n === 0n;
    const term = positive === up ? high : low;
    sum += positive ? term : -term;
    if (positive === up && high <= 1n) break;
  }
  for (let time = 0n; time < halvings; time += 1n) sum = up ? (sum * sum) / one + 1n : (sum * sum) / one;
  return sum;
}
