/**
 * Secret lots (accounting, Theorem L): one report in one of T rounds that only the dealer knows. The likelihood ratio is S / T, S the
 * sum of T independent X = exp(mu z - mu^2/2). X is spread onto a lattice with its mean kept, doubt is lowered, and the law of S is
 * the T-th power of its transform, whose error is taken off every weight: every step gives an upper bound.
 */
import { cdf, gaussianDelta, quantile } from "./normal.ts";

export interface Allocation {
  mu: number;
  rounds: number;
}

type Relation = "replace-one" | "zero-out";

const UNIT = 2 ** -53;
const PLACE = 1e-13;
const TOTAL = 1e-14;
const FINENESS = 0.05;
const FEWEST_POINTS = 1 << 14;
const MOST_POINTS = 1 << 17;
const DEPTHS = [6, 6.75, 7.75];
const REACH_DOWN = 8;
const MANY = 64;
const NEGLIGIBLE = 100;
const LARGEST_EPSILON = 700;
const LEAST_MU = 1e-9;
const ARITHMETIC = 1e-12;
const QUANTILES = 1e-9;
export const MAX_ROUNDS = 1e6;
export const SLACKS: readonly number[] = Array.from({ length: 9 }, (_, k) => 10 ** -(k + 3));

/** The mu of the Gaussian that holds where the lot is known. */
export const knownMu = (allocation: Allocation, neighbours: Relation): number =>
  neighbours === "replace-one" ? 2 * allocation.mu : allocation.mu;

/** A bound on the hockey-stick divergence at `epsilon`, in the worse order; never above that of a known lot. */
export function allocationDelta(allocation: Allocation, epsilon: number, neighbours: Relation): number {
  let best = gaussianDelta(epsilon, knownMu(allocation, neighbours));
  if (allocation.rounds === 1 || allocation.mu < LEAST_MU || epsilon > LARGEST_EPSILON) return best;
  for (const depth of DEPTHS) {
    const curves = curvesOf(allocation, neighbours, depth);
    best = Math.min(best, Math.max(...curves.map((curve) => curve.delta(epsilon))));
    if (best > NEGLIGIBLE * Math.max(...curves.map((curve) => curve.powers[0]))) break;
  }
  return best;
}

/** A mu such that every test's power is at most the Gaussian one of mu plus `slack`, in both orders. */
export function allocationGaussian(allocation: Allocation, neighbours: Relation, slack: number): number {
  let best = knownMu(allocation, neighbours);
  if (allocation.rounds === 1 || allocation.mu < LEAST_MU || slack <= 0) return best;
  for (const depth of DEPTHS) {
    const curves = curvesOf(allocation, neighbours, depth);
    best = Math.min(best, Math.max(...curves.map((curve) => curve.gaussian(slack))));
    if (slack > NEGLIGIBLE * Math.max(...curves.map((curve) => curve.powers[0]))) break;
  }
  return best;
}

const kept = new Map<string, Curve[]>();

function curvesOf({ mu, rounds }: Allocation, neighbours: Relation, depth: number): Curve[] {
  const name = `${mu} ${rounds} ${neighbours} ${depth}`;
  let curves = kept.get(name);
  if (curves === undefined) {
    const [toBlank, fromBlank] = powerCurves(mu, rounds, depth);
    curves = neighbours === "replace-one" ? [fromBlank.after(toBlank)] : [toBlank, fromBlank];
    if (kept.size > 8) kept.clear();
    kept.set(name, curves);
  }
  return curves;
}

/** An upper bound on the power of every test, given its level: a polygon, levels rounded down and powers up. */
class Curve {
  readonly levels: Float64Array;
  readonly powers: Float64Array;

  constructor(levels: Float64Array, powers: Float64Array) {
    this.levels = levels;
    this.powers = powers;
  }

  delta(epsilon: number): number {
    const factor = Math.exp(epsilon) * (1 - ARITHMETIC);
    let most = 0;
    for (let place = 0; place < this.levels.length; place += 1) {
      most = Math.max(most, this.powers[place] * (1 + ARITHMETIC) - factor * this.levels[place]);
    }
    return Math.min(1, most);
  }

  /** Two steps: a test of level a has at most first(a) under the middle, and so this(first(a)) at the end. */
  after(first: Curve): Curve {
    const corners = first.powers.map((power) => interpolated(power * (1 + ARITHMETIC), this.levels, this.powers, this.powers[0]) * (1 + ARITHMETIC));
    const preimages = this.levels.map((level) => interpolated(level, first.powers, first.levels, 0) * (1 - ARITHMETIC));
    const levels = new Float64Array(corners.length + preimages.length);
    const powers = new Float64Array(levels.length);
    levels.set(first.levels);
    levels.set(preimages, corners.length);
    powers.set(corners.map((power) => Math.min(1, power)));
    powers.set(this.powers.map((power) => Math.min(1, Math.max(power, corners[0]))), corners.length);
    return new Curve(levels, powers);
  }

  gaussian(slack: number): number {
    let largest = -Infinity;
    let telling = false;
    let [one, other] = [0, 0];
    for (let place = 0; place < this.levels.length; place += 1) {
      const needed = this.powers[place] - slack;
      const level = this.levels[place];
      if (needed <= 0) continue;
      telling = true;
      if (level <= 0 || (needed >= 1 && level < 1)) return Infinity;
      if (needed < 1 && level < 1) {
        [one, other] = [quantile(needed, one), quantile(level, other)];
        largest = Math.max(largest, one - other);
      }
    }
    return telling && largest > -Infinity ? Math.max(0, largest + QUANTILES * (1 + Math.abs(largest))) : 0;
  }
}

/** The polygon through (xs, ys), xs ascending, at x; `left` before its beginning. */
function interpolated(x: number, xs: Float64Array, ys: Float64Array, left: number): number {
  if (x < xs[0]) return left;
  let low = 0;
  let high = xs.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  if (high === xs.length || xs[low] === x) return ys[low];
  return ((ys[high] - ys[low]) / (xs[high] - xs[low])) * (x - xs[low]) + ys[low];
}

function powerCurves(mu: number, rounds: number, depth: number): [Curve, Curve] {
  const { ratios, weights, misplaced } = likelihoodRatio(mu, rounds, depth);
  const shifted = weights.map((weight, place) => weight * ratios[place]);
  const onlyBlank = Math.max(0, 1 - total(weights)) + TOTAL + misplaced;
  const onlyReport = Math.max(0, 1 - total(shifted)) + TOTAL + misplaced * ratios[ratios.length - 1] * 1.01;
  const rounding = ratios.length * UNIT * 1.01 + 1e-15;
  return [polygon(shifted, weights, onlyBlank, rounding), polygon(weights.toReversed(), shifted.toReversed(), onlyReport, rounding)];
}

function polygon(levelSteps: Float64Array, powerSteps: Float64Array, start: number, rounding: number): Curve {
  const count = levelSteps.length;
  const levels = new Float64Array(count + 2);
  const powers = new Float64Array(count + 2);
  let level = 0;
  let power = 0;
  powers[0] = Math.min(1, start * (1 + rounding));
  for (let place = 0; place < count; place += 1) {
    level += levelSteps[place];
    power += powerSteps[place];
    levels[place + 1] = Math.min(1, level * (1 - rounding));
    powers[place + 1] = Math.min(1, (power + start) * (1 + rounding));
  }
  levels[count + 1] = 1;
  powers[count + 1] = 1;
  return new Curve(levels, powers);
}

/** A sum within a few units of its largest term, however many terms there are (Neumaier). */
function total(numbers: Float64Array): number {
  let sum = 0;
  let lost = 0;
  for (const number of numbers) {
    const next = sum + number;
    lost += Math.abs(sum) >= Math.abs(number) ? sum - next + number : number - next + sum;
    sum = next;
  }
  return sum + lost;
}

interface Lattice {
  start: number;
  first: number;
  step: number;
  points: number;
}

function latticeOf(mu: number, rounds: number, depth: number): Lattice {
  const spread = Math.sqrt(Math.expm1(Math.min(mu * mu, 600)));
  const lowest = Math.exp(-mu * (depth + 1.5) - (mu * mu) / 2);
  const bulk = spread * Math.sqrt(rounds - 1);
  let lowestSum = rounds * lowest;
  if (rounds >= MANY) lowestSum = Math.max(lowestSum, rounds - (REACH_DOWN + mu) * bulk);
  const highestSum = Math.exp(Math.min(mu * depth + (mu * mu) / 2, 600)) + (rounds - 1) + depth * bulk;
  const length = highestSum - lowestSum;
  const wanted = 2 ** Math.max(0, Math.ceil(Math.log2(length / (FINENESS * spread))));
  const points = Math.min(MOST_POINTS, Math.max(FEWEST_POINTS, wanted));
  const step = length / (points - 2);
  const start = Math.floor(lowest / step);
  const cut = lowestSum > rounds * lowest;
  return { start, first: cut ? Math.floor(lowestSum / step) : rounds * start, step, points };
}

/** Weights of a law on (start + i) step that is below X in the increasing concave order. */
function oneRound(mu: number, { start, step, points }: Lattice): Float64Array {
  const weights = new Float64Array(points);
  const edge = (index: number): number => {
    const place = (start + index) * step;
    return place > 0 ? Math.min(38, Math.max(-38, (Math.log(place) + (mu * mu) / 2) / mu)) : -38;
  };
  let before = edge(0);
  for (let index = 0; index < points - 1; index += 1) {
    const after = edge(index + 1);
    const [mass, massError] = cell(before, after);
    const [mean, meanError] = cell(before - mu, after - mu);
    const left = (start + index) * step;
    const right = (start + index + 1) * step;
    const certain = Math.max(mass - massError, 0);
    const share = (mean - meanError - left * (mass + massError) * (1 + 4 * UNIT)) / step - ((2 * PLACE * right) / step) * mass;
    const upper = Math.min(Math.max(share, 0), certain);
    weights[index] += (certain - upper) * (1 - 4 * UNIT);
    weights[index + 1] += upper * (1 - 4 * UNIT);
    before = after;
  }
  weights[points - 1] += cdf(-before) * (1 - 1e-11);
  return weights;
}

/** The normal probability between two edges, from its nearer tail, and a bound on its error. */
function cell(low: number, high: number): [number, number] {
  const left = high <= 0;
  const probability = left ? cdf(high) - cdf(low) : cdf(-low) - cdf(-high);
  const tail = left ? cdf(high) : cdf(-low);
  return [Math.max(0, probability), 8e-16 * (4 + Math.max(low * low, high * high)) * tail];
}

function likelihoodRatio(mu: number, rounds: number, depth: number): { ratios: Float64Array; weights: Float64Array; misplaced: number } {
  const lattice = latticeOf(mu, rounds, depth);
  const { points } = lattice;
  const law = oneRound(mu, lattice);
  const real = law.slice();
  const imaginary = new Float64Array(points);
  transform(real, imaginary, false);
  const doubtful = 8 * UNIT * Math.log2(points);
  const doubts = new Float64Array(points);
  for (let k = 0; k < points; k += 1) {
    const size = Math.hypot(real[k], imaginary[k]);
    doubts[k] = rounds * doubtful * (size + doubtful) ** (rounds - 1) + (3 * UNIT * rounds + doubtful) * size ** rounds;
    const [a, b] = power(real[k], imaginary[k], rounds);
    real[k] = a;
    imaginary[k] = b;
  }
  const error = (total(doubts) / points) * 1.002;
  transform(real, imaginary, true);
  const shift = (((rounds * lattice.start - lattice.first) % points) + points) % points;
  const places: number[] = [];
  const values: number[] = [];
  for (let place = 0; place < points; place += 1) {
    const weight = (real[(place - shift + points) % points] / points - error) * (1 - 8 * UNIT);
    if (weight > 0) {
      places.push((lattice.first + place) * (lattice.step / rounds) * (1 - PLACE));
      values.push(weight);
    }
  }
  return { ratios: Float64Array.from(places), weights: Float64Array.from(values), misplaced: below(law, rounds, lattice) };
}

/** Upper bound (Chernoff) on the probability that a sum of lattice points is below those that are told apart. */
function below(law: Float64Array, rounds: number, lattice: Lattice): number {
  const missed = lattice.first - rounds * lattice.start;
  if (missed === 0) return 0;
  const centre = missed / rounds;
  const spread = Math.sqrt(total(law.map((weight, place) => weight * (place - centre) ** 2)));
  const bounds = [0.8, 1, 1.25].map((part) => {
    const rate = (part * REACH_DOWN) / (spread * Math.sqrt(rounds));
    return rounds * Math.log(total(law.map((weight, place) => weight * Math.exp(Math.max(-rate * (place - centre), -300)))));
  });
  return Math.min(1, Math.exp(Math.min(...bounds)) * (1 + 1e-6));
}

/** Powers by squaring: `exponent` - 1 products in the expanded tree, each within sqrt 5 units. */
function power(real: number, imaginary: number, exponent: number): [number, number] {
  let [a, b] = [real, imaginary];
  let made: [number, number] | undefined;
  for (let rest = exponent; rest > 0; ) {
    if (rest % 2 === 1) made = made === undefined ? [a, b] : [made[0] * a - made[1] * b, made[0] * b + made[1] * a];
    rest = Math.floor(rest / 2);
    if (rest > 0) [a, b] = [a * a - b * b, 2 * a * b];
  }
  return made as [number, number];
}

/** The discrete Fourier transform of 2^k points in place; every root of unity is computed by itself, within a unit. */
function transform(real: Float64Array, imaginary: Float64Array, inverse: boolean): void {
  const points = real.length;
  for (let i = 1, j = 0; i < points; i += 1) {
    let bit = points >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      [real[i], real[j]] = [real[j], real[i]];
      [imaginary[i], imaginary[j]] = [imaginary[j], imaginary[i]];
    }
  }
  const half = points >> 1;
  const cosines = new Float64Array(half);
  const sines = new Float64Array(half);
  for (let k = 0; k < half; k += 1) [cosines[k], sines[k]] = root(k, points);
  for (let size = 2; size <= points; size *= 2) {
    const stride = points / size;
    for (let first = 0; first < points; first += size) {
      for (let k = 0; k < size / 2; k += 1) {
        const c = cosines[k * stride];
        const s = inverse ? sines[k * stride] : -sines[k * stride];
        const low = first + k;
        const high = low + size / 2;
        const re = real[high] * c - imaginary[high] * s;
        const im = real[high] * s + imaginary[high] * c;
        real[high] = real[low] - re;
        imaginary[high] = imaginary[low] - im;
        real[low] += re;
        imaginary[low] += im;
      }
    }
  }
}

/** cos and sin of 2 pi k / n for 0 <= k < n / 2, from an angle of at most pi / 4. */
function root(k: number, n: number): [number, number] {
  const eighth = n / 8;
  if (k <= eighth) return [Math.cos((2 * Math.PI * k) / n), Math.sin((2 * Math.PI * k) / n)];
  if (k <= 2 * eighth) {
    const [s, c] = root(2 * eighth - k, n);
    return [c, s];
  }
  const [c, s] = root(k - 2 * eighth, n);
  return [-s, c];
}
