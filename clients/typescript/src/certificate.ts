/**
 * The certificate of accounting Theorem B, or E: a pair (mu, tau) such that one round of `dim` coordinates has
 * delta(eps) <= deltaG(eps; mu) + dim tau for every eps >= 0. Computed here from the law of the noise itself, point by point:
 * f by its recurrence from the mode, F by adding up f from each tail, z = Phi^-1(F) by Newton's steps. Where a figure is beyond
 * what floats can bound, there is no certificate.
 */
import { NoCertificateError } from "./errors.ts";
import { logDensity, tailScore } from "./normal.ts";

const UNIT = 2 ** -53;
export const SHIFT_MARGIN = 1e-9;
const SLOPE_MARGIN = 1e-8;
const MAX_TRIALS = 1e12;
const MOST_POINTS = 4e6;
// Tails of the noise below this lose digits; what is below it relative to the mode is counted as this.
const LEAST_TAIL = 1e-290;
const FINE_STEP = 1e-3;
// From so many points on Python bounds ct in blocks, and leaves c and kappa aside.
const SCAN_POINTS = 30_000;

// Theorem E: what it gives up beside the windows, the part of Theorem B's mu that its own has to be within, and nu over k sqrt(2 d)
// for k from 2^(octave - 1) to 2^octave with five binary digits (tools/bends.py).
const RESIDUE = 1e-12;
const WORTH_IT = 0.97;
const FIRST_OCTAVE = -16;
const LAST_OCTAVE = -6;
const BENDS: readonly (readonly [length: number, factors: readonly number[]])[] = [
  [512, [1.023, 1.024, 1.026, 1.027, 1.028, 1.03, 1.031, 1.032, 1.033, 1.034, 1.036]],
  [2048, [1.007, 1.007, 1.008, 1.008, 1.008, 1.009, 1.009, 1.009, 1.01, 1.01, 1.011]],
  [4096, [1.005, 1.005, 1.005, 1.005, 1.005, 1.005, 1.006, 1.006, 1.006, 1.006, 1.006]],
  [8192, [1.003, 1.003, 1.003, 1.003, 1.004, 1.004, 1.004, 1.004, 1.004, 1.004, 1.004]],
];

export interface Certificate {
  mu: number;
  tau: number;
  low: number;
  high: number;
  /** What Theorem E gives up beside the windows; 0 where mu is by Theorem B. */
  residue: number;
}

export interface Noise {
  trials: number;
  probability: number;
  shift: number;
  reach: number;
  dim: number;
}

/** The law of Bin(trials, p) between two places, each from its own tail. */
class Law {
  /** The first place that is kept; all below it together are counted in the lower tail. */
  readonly first: number;
  readonly pmf: Float64Array;
  /** F(y), and 1 - F(y). */
  readonly below: Float64Array;
  readonly above: Float64Array;
  /** A bound on the relative error of all of these. */
  readonly error: number;

  /** Goes on, on each side, for `more` places after f has fallen below `least` times its largest value. */
  constructor(trials: number, probability: number, least: number, more: number) {
    const mode = Math.min(trials, Math.floor((trials + 1) * probability));
    const other = 1 - probability;
    const down: number[] = [];
    const up: number[] = [1];
    for (let y = mode, f = 1, left = more; y > 0 && f > LEAST_TAIL && left > 0; y -= 1) {
      f *= (y * other) / ((trials - y + 1) * probability);
      if (f < least) left -= 1;
      down.push(f);
      if (down.length > MOST_POINTS) throw new NoCertificateError(`${trials} noise bits are more than this client can certify`);
    }
    for (let y = mode, f = 1, left = more; y < trials && f > LEAST_TAIL && left > 0; y += 1) {
      f *= ((trials - y) * probability) / ((y + 1) * other);
      if (f < least) left -= 1;
      up.push(f);
      if (up.length > MOST_POINTS) throw new NoCertificateError(`${trials} noise bits are more than this client can certify`);
    }
    this.first = mode - down.length;
    const weights = new Float64Array(down.length + up.length);
    for (let place = 0; place < down.length; place += 1) weights[down.length - 1 - place] = down[place];
    weights.set(up, down.length);
    const last = this.first + weights.length - 1;
    // What is left out: beyond its end a law falls at least geometrically.
    const fall = (ratio: number, end: number): number => (ratio < 1 ? (end * ratio) / (1 - ratio) : Infinity);
    const leftOut = this.first === 0 ? 0 : fall((this.first * other) / ((trials - this.first + 1) * probability), weights[0]);
    const rightOut = last === trials ? 0 : fall(((trials - last) * probability) / ((last + 1) * other), weights[weights.length - 1]);
    this.below = new Float64Array(weights.length);
    this.above = new Float64Array(weights.length);
    let sum = leftOut;
    for (let place = 0; place < weights.length; place += 1) {
      sum += weights[place];
      this.below[place] = sum;
    }
    const total = sum + rightOut;
    sum = rightOut;
    for (let place = weights.length - 1; place >= 0; place -= 1) {
      this.above[place] = sum;
      sum += weights[place];
    }
    for (let place = 0; place < weights.length; place += 1) {
      weights[place] /= total;
      this.below[place] /= total;
      this.above[place] /= total;
    }
    this.pmf = weights;
    // a step of the recurrence is wrong by at most 5 units, an addition by one, and once more for the total
    this.error = 14 * UNIT * (weights.length + 8);
  }

  lower(y: number): number {
    const place = y - this.first;
    return place < 0 ? LEAST_TAIL : place >= this.pmf.length ? 1 : this.below[place];
  }

  upper(y: number): number {
    const place = y - this.first;
    return place < 0 ? 1 : place >= this.pmf.length ? LEAST_TAIL : this.above[place];
  }

  /** The smallest y with F(y) >= tail, and the largest with P(eta >= y) >= tail. */
  quantiles(tail: number): [number, number] {
    let low = 0;
    while (low < this.below.length - 1 && this.below[low] < tail) low += 1;
    let high = this.pmf.length - 1;
    while (high > 0 && this.above[high - 1] < tail) high -= 1;
    return [this.first + low, this.first + high];
  }
}

function lawOf(trials: number, probability: number, least: number, more: number): Law {
  if (!(trials >= 1 && trials <= MAX_TRIALS)) {
    throw new NoCertificateError(`${trials} noise bits are more than the ${MAX_TRIALS} that the certificate covers`);
  }
  return new Law(trials, probability, least, more);
}

/** Certify Bin(trials, probability) with tau <= tail, and what Theorem E gives up at most `spare`, or refuse. */
export function certify(noise: Noise, tail: number, spare = 0): Certificate {
  const { trials, probability, reach } = noise;
  // the window's ends are at most `reach` + 2 places beyond the tails of tail / 2
  const law = lawOf(trials, probability, tail * 1e-30, reach + 4);
  const [least, most] = law.quantiles(tail / 2);
  const low = Math.max(0, least - reach - 2);
  const high = Math.min(trials - 1, most + reach + 1);
  const certificate = certifyWindow(noise, low, high, law, spare);
  if (!(certificate.tau <= tail)) {
    throw new NoCertificateError(`noise leaves its window with probability ${certificate.tau}, more than the ${tail} allowed`);
  }
  return certificate;
}

/** The same on a window that is given: any one gives a true bound. */
export function certifyWindow(noise: Noise, low: number, high: number, known?: Law, spare = 0): Certificate {
  const { trials, probability, reach, dim } = noise;
  if (!(low >= 0 && high <= trials - 1 && high - low > reach)) {
    throw new NoCertificateError(`Bin(${trials}, ${probability}) is too narrow to hide a difference of ${reach}`);
  }
  const law = known ?? lawOf(trials, probability, LEAST_TAIL, 1);
  const tau =
    Math.max(law.lower(low + 1) + law.upper(high - reach - 1), law.lower(low + reach + 1) + law.upper(high - 1)) *
    (1 + SLOPE_MARGIN + law.error);
  const { step, slope, extreme } = scanned(law, trials * probability, low, high);
  const margin = SLOPE_MARGIN + 4 * law.error;
  const c = step * (1 + margin);
  const ct = slope * (1 + margin);
  const shift = noise.shift * (1 + SHIFT_MARGIN);
  let mu = ct * shift;
  let residue = 0;
  if (high - low < SCAN_POINTS) {
    const bulge = Math.min(c * Math.max(0, 1 - step / slope) + c * margin, (ct * ct * Math.max(extreme, 2 * c)) / 8);
    mu = Math.min(mu, c * shift + bulge * Math.sqrt(dim));
    const bent = spare >= RESIDUE ? bendOf((ct * ct) / 8, dim) : null;
    const byBend = bent === null ? Infinity : c * shift + 2 * c * bent.k * Math.sqrt(dim) + bent.nu;
    if (byBend <= WORTH_IT * mu) [mu, residue] = [byBend, RESIDUE];
  }
  if (!(Number.isFinite(mu) && mu > 0 && Number.isFinite(tau))) throw new NoCertificateError(`the certificate came out as mu = ${mu}`);
  return { mu, tau, low, high, residue };
}

/** A k of at least `least` and its nu of Theorem E for at least `dim` coordinates; null where the table has none. */
export function bendOf(least: number, dim: number): { k: number; nu: number } | null {
  const from = Math.max(least, 2 ** (FIRST_OCTAVE - 1));
  let octave = Math.floor(Math.log2(from)) + 1;
  while (2 ** octave <= from) octave += 1;
  while (2 ** (octave - 1) > from) octave -= 1;
  const k = Math.ceil((from / 2 ** octave) * 32) * 2 ** (octave - 5);
  if (k >= 2 ** octave) octave += 1;
  const row = BENDS.find(([length]) => length >= dim);
  if (row === undefined || octave > LAST_OCTAVE) return null;
  return { k, nu: row[1][octave - FIRST_OCTAVE] * k * Math.sqrt(2 * row[0]) * (1 + 1e-12) };
}

/** c, ct and max |z| over low..high. */
function scanned(law: Law, mean: number, low: number, high: number): { step: number; slope: number; extreme: number } {
  let step = 0;
  let slope = 0;
  let extreme = 0;
  let before: number | undefined;
  let guess: number | undefined;
  for (let y = low; y <= high; y += 1) {
    const upperHalf = y >= mean;
    const tail = upperHalf ? law.upper(y) : law.lower(y);
    if (!(tail > 1e-280 && tail < 1)) throw new NoCertificateError("a tail of the noise is beyond floating point");
    // a tail above one half has its score on the other side
    const t = tail <= 0.5 ? tailScore(Math.log(tail), guess) : -tailScore(Math.log1p(-tail), guess);
    guess = Math.abs(t);
    const z = upperHalf ? t : -t;
    extreme = Math.max(extreme, Math.abs(z));
    if (before !== undefined) {
      const logPmf = Math.log(law.pmf[y - law.first]);
      const one = fineStep(before, z, logPmf);
      const bend = Math.exp(logPmf - Math.min(logDensity(before), logDensity(z)));
      if (!(one > 0 && Number.isFinite(bend))) throw new NoCertificateError("the slopes of the noise could not be computed");
      step = Math.max(step, one);
      slope = Math.max(slope, bend);
    }
    before = z;
  }
  return { step, slope: Math.max(slope, step), extreme };
}

/**
 * z(y) - z(y - 1), where it is small from f(y), the integral of phi over the step: phi(m) h sinh(x) / x (1 - h^2 / 24), m the
 * middle, x = m h / 2, but for a part of h^2 x^2 / 50 + h^4 / 600.
 */
function fineStep(before: number, z: number, logPmf: number): number {
  const length = z - before;
  if (!(length > 0 && length < FINE_STEP)) return length;
  const middle = (z + before) / 2;
  const x = (middle * length) / 2;
  const widened = Math.abs(x) < 1e-3 ? 1 + (x * x) / 6 : Math.sinh(x) / x;
  return (Math.exp(logPmf - logDensity(middle)) * (1 + (length * length) / 24)) / widened;
}
