/**
 * Exact samplers: each draws from its law without any error, and makes the same of the same random bytes as Python does
 * (src/croupier/protocol/_sampling.py).
 */
import type { RandomSource } from "./random.ts";
import { drawMany, MAX_TRIALS, MIN_TRIALS } from "./rejection.ts";

const FEW_BITS = 1 << 10;
const FEW_BITS_IN_ALL = 1 << 22;
const CHUNK_WORDS = 1 << 15;
const TOGETHER = 1 << 16;

/** `size` draws of Bin(trials, probability), for any float probability in (0, 1). */
export function binomial(source: RandomSource, trials: number, probability: number, size: number): number[] {
  if (size > TOGETHER) {
    const drawn: number[] = [];
    for (let first = 0; first < size; first += TOGETHER) {
      drawn.push(...binomial(source, trials, probability, Math.min(TOGETHER, size - first)));
    }
    return drawn;
  }
  if (!(trials <= MAX_TRIALS)) throw new RangeError(`${trials} trials are more than are drawn exactly`);
  const digits = binaryDigits(probability);
  if (size > 0 && trials >= 64 && trials * digits.length <= Math.max(FEW_BITS, Math.floor(FEW_BITS_IN_ALL / size))) {
    return countBelow(source, trials, digits, size);
  }
  const successes = new Array<number>(size).fill(0);
  let open: number | number[] = trials;
  for (const digit of digits) {
    const zeros = fairBinomial(source, open, size);
    if (digit === "1") {
      zeros.forEach((ones, place) => (successes[place] += ones));
      const before: number | number[] = open;
      open = zeros.map((ones, place) => (typeof before === "number" ? before : before[place]) - ones);
    } else {
      open = zeros;
    }
    if (open.every((left) => left === 0)) break;
  }
  return successes;
}

/** Draws of Bin(trials_i, 1/2): few random bits are counted, many are left to rejection. */
export function fairBinomial(source: RandomSource, trials: number | readonly number[], size: number): number[] {
  if (size === 0) return [];
  const least = Math.max(MIN_TRIALS, Math.floor(FEW_BITS_IN_ALL / 2 / size));
  if (typeof trials === "number") return trials >= least ? drawMany(source, new Array<number>(size).fill(trials)) : popcounted(source, trials, size);
  const ones = new Array<number>(size).fill(0);
  for (const many of [true, false]) {
    const places = trials.flatMap((number, place) => (number >= least === many ? [place] : []));
    const some = places.map((place) => trials[place]);
    const drawn = many ? drawMany(source, some) : popcounted(source, some, some.length);
    places.forEach((place, index) => (ones[place] = drawn[index]));
  }
  return ones;
}

/** Bin(trials_i, 1/2): random bits, counted. */
function popcounted(source: RandomSource, trials: number | readonly number[], size: number): number[] {
  if (size === 0) return [];
  const least = typeof trials === "number" ? trials : trials.reduce((fewest, number) => Math.min(fewest, number), Infinity);
  const common = Math.floor(least / 64);
  const ones = popcountWords(source, common, size);
  if (typeof trials !== "number" || trials > 64 * common) {
    const rest = Array.from({ length: size }, (_, place) => (typeof trials === "number" ? trials : trials[place]) - 64 * common);
    popcountMasked(source, rest).forEach((count, place) => (ones[place] += count));
  }
  return ones;
}

/** Numbers between 0 and below 2^44, rounded at random to a whole number next to them with their own value as the mean. */
export function roundAtRandom(source: RandomSource, numbers: Float64Array): number[] {
  const drawn = source.draw(numbers.length);
  const tied: number[] = [];
  const rest: number[] = [];
  const rounded = Array.from(numbers, (number, place) => {
    const scaled = number * 256; // exact: a power of two
    const leading = Math.floor(scaled);
    const total = leading + (255 - drawn[place]);
    if (total % 256 === 255 && scaled > leading) {
      tied.push(place);
      rest.push(scaled - leading);
    }
    return Math.floor(total / 256);
  });
  for (const place of aboveUniform(source, rest)) rounded[tied[place]] += 1;
  return rounded;
}

/** Which of some numbers in (0, 1) are above a uniform one, in lazy bytes. */
function aboveUniform(source: RandomSource, numbers: readonly number[]): number[] {
  const above: number[] = [];
  let tied = numbers.map((_, place) => place);
  let rest = [...numbers];
  while (tied.length > 0) {
    const drawn = source.draw(tied.length);
    const stillTied: number[] = [];
    const stillLeft: number[] = [];
    tied.forEach((place, index) => {
      const scaled = rest[index] * 256;
      const leading = Math.floor(scaled);
      if (drawn[index] < leading) above.push(place);
      else if (drawn[index] === leading && scaled > leading) {
        stillTied.push(place);
        stillLeft.push(scaled - leading);
      }
    });
    tied = stillTied;
    rest = stillLeft;
  }
  return above;
}

/** The digits after the binary point of a float in (0, 1), down to the last one. */
export function binaryDigits(probability: number): string {
  let digits = "";
  for (let rest = probability; rest > 0; ) {
    rest *= 2; // exact
    digits += rest >= 1 ? "1" : "0";
    if (rest >= 1) rest -= 1;
  }
  return digits;
}

function popcount(word: number): number {
  let bits = word - ((word >>> 1) & 0x55555555);
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333);
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

function words(bytes: Uint8Array): Uint32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Uint32Array.from({ length: bytes.length / 4 }, (_, place) => view.getUint32(4 * place, true));
}

function popcountWords(source: RandomSource, count: number, size: number): number[] {
  const drawn = words(source.draw(8 * count * size));
  return Array.from({ length: size }, (_, index) => {
    let ones = 0;
    for (let place = 2 * count * index; place < 2 * count * (index + 1); place += 1) ones += popcount(drawn[place]);
    return ones;
  });
}

/** Bin(trials_i, 1/2) in words of the smallest size that holds them, the bits not asked for shifted out. */
function popcountMasked(source: RandomSource, trials: readonly number[]): number[] {
  const longest = trials.reduce((most, number) => Math.max(most, number), 0);
  const width = [8, 16, 32, 64].find((bits) => longest <= bits) ?? 64;
  const rows = Math.ceil(longest / width);
  const together = Math.max(1, Math.floor(CHUNK_WORDS / Math.max(1, rows)));
  const totals = new Array<number>(trials.length).fill(0);
  for (let first = 0; first < trials.length; first += together) {
    const some = trials.slice(first, first + together);
    const drawn = source.draw((some.length * rows * width) / 8);
    for (let row = 0; row < rows; row += 1) {
      some.forEach((wanted, column) => {
        const kept = Math.min(Math.max(wanted - row * width, 0), width); // the highest bits of the word are kept
        const start = ((row * some.length + column) * width) / 8;
        totals[first + column] += highOnes(drawn, start, width, kept);
      });
    }
  }
  return totals;
}

/** Ones among the `kept` highest bits of the little-endian word of `width` bits at `start`. */
function highOnes(bytes: Uint8Array, start: number, width: number, kept: number): number {
  let ones = 0;
  let left = kept;
  for (let place = start + width / 8 - 1; left > 0; place -= 1) {
    ones += popcount(left >= 8 ? bytes[place] : bytes[place] >>> (8 - left));
    left -= 8;
  }
  return ones;
}

/** Bin(trials, 0.digits), 64 trials at once: by the last digit first, what is below it and what follows. */
function countBelow(source: RandomSource, trials: number, digits: string, size: number): number[] {
  const halves = 2 * Math.ceil(trials / 64);
  const below = new Uint32Array(size * halves);
  for (let digit = digits.length - 1; digit >= 0; digit -= 1) {
    const zeros = words(source.draw(4 * below.length));
    const more = digits[digit] === "1";
    for (let place = 0; place < below.length; place += 1) {
      below[place] = more ? zeros[place] | below[place] : zeros[place] & below[place];
    }
  }
  const unwanted = 32 * halves - trials; // of the last word of 64 bits, its lowest
  return Array.from({ length: size }, (_, index) => {
    let ones = 0;
    for (let half = 0; half < halves; half += 1) {
      let word = below[index * halves + half];
      if (half === halves - 2) word = unwanted >= 32 ? 0 : word >>> unwanted;
      if (half === halves - 1 && unwanted > 32) word >>>= unwanted - 32;
      ones += popcount(word);
    }
    return ones;
  });
}
