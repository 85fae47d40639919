/**
 * Secret lots (accounting, Theorem L): one report in one of T rounds that only the dealer knows. A divergence is
 * E (W_1 + ... + W_T)_+ / T for independent copies of one W = a X + b - g Y, X = exp(mu z - mu^2/2), Y = exp(-mu z - mu^2/2). W is
 * spread onto a lattice with its mean kept, doubt is raised, what is cut off is charged, and the law of the sum is the T-th power of a
 * tilted transform, whose error is added to every weight: every step gives an upper bound.
 */
import { cdf, gaussianDelta, quantile } from "./normal.ts";

export interface Allocation {
  mu: number;
  rounds: number;
}

type Relation = "replace-one" | "zero-out";

export const MAX_ROUNDS = 1e6;
export const SLACKS: readonly number[] = Array.from({ length: 9 }, (_, k) => 10 ** -(k + 3));
const LARGEST_EPSILON = 700;
const LEAST_MU = 1e-9;
const LARGEST_MU = 10;
const UNIT = 2 ** -53;
const FARTHEST = 38;
const DEPTHS = [6, 7.5, 9, 12];
const NEGLIGIBLE = 300;
const LONGEST_CUT = 3;
const GENTLE = 0.65;
const REACH = 30;
const REACH_DOWN = 8;
const POINTS = 1 << 16;
const CURVE_POINTS = 1 << 13;
const MOST_POINTS = 1 << 22;
const COARSER = 8;
const LARGEST_TILT = 600;
const LINES = 48;
const LEAST_DELTA = 2e-12;
const ARITHMETIC = 1e-12;
const QUANTILES = 1e-9;

/** The mu of the Gaussian that holds where the lot is known. */
export const knownMu = (allocation: Allocation, neighbours: Relation): number =>
  neighbours === "replace-one" ? 2 * allocation.mu : allocation.mu;

/** A bound on the hockey-stick divergence at `epsilon`, in the worse order; never above that of a known lot. */
export const allocationDelta = (allocation: Allocation, epsilon: number, neighbours: Relation): number =>
  Math.max(...divergences(allocation, epsilon, neighbours));

/** A mu such that every test's power is at most the Gaussian one of mu plus `slack`, in both orders. */
export function allocationGaussian(allocation: Allocation, neighbours: Relation, slack: number): number {
  const known = knownMu(allocation, neighbours);
  if (slack <= 0) return known;
  return Math.min(known, Math.max(...powerCurves(allocation, neighbours).map((curve) => gaussianAbove(curve, slack))));
}

/** What is added to delta where a round's mu holds but for `residue` (accounting, Theorem E): s + w(s), or g(s). */
export function givenUp(allocation: Allocation, residue: number, neighbours: Relation): number {
  if (residue === 0) return 0;
  const power = Math.max(...powerCurves(allocation, neighbours).map((curve) => powerAt(curve, residue))) * (1 + ARITHMETIC);
  return neighbours === "replace-one" ? residue + power : power;
}

function powerAt(curve: Curve, level: number): number {
  const next = curve.findIndex(([right]) => right >= level);
  if (next === 0) return curve[0][1];
  const [[left, low], [right, high]] = [curve[next - 1], curve[next]];
  return low + ((high - low) * (level - left)) / (right - left);
}

/** An upper bound on the power of every test, given its level: the vertices of a polygon, levels rounded down and powers up. */
type Curve = [level: number, power: number][];

/** A mu whose Gaussian power curve, raised by `slack`, is on or above this one: at its vertices, and so everywhere. */
function gaussianAbove(curve: Curve, slack: number): number {
  let largest = -Infinity;
  for (const [level, power] of curve) {
    const needed = power - slack;
    if (needed <= 0) continue;
    if (level <= 0 || (needed >= 1 && level < 1)) return Infinity;
    if (needed < 1 && level < 1) largest = Math.max(largest, quantile(needed) - quantile(level));
  }
  return largest > -Infinity ? Math.max(0, largest + QUANTILES * (1 + Math.abs(largest))) : 0;
}

const keptCurves = new Map<string, Curve[]>();

/** The power of every test in each order: a divergence delta at c says that the power at level a is at most delta + c a. */
function powerCurves(allocation: Allocation, neighbours: Relation): Curve[] {
  const name = `${allocation.mu} ${allocation.rounds} ${neighbours}`;
  let curves = keptCurves.get(name);
  if (curves === undefined) {
    let last = 1;
    while (last < LARGEST_EPSILON && Math.max(...divergences(allocation, last, neighbours, CURVE_POINTS)) > LEAST_DELTA) last *= 1.5;
    while (last > LEAST_MU && Math.max(...divergences(allocation, last / 1.5, neighbours, CURVE_POINTS)) <= LEAST_DELTA) last /= 1.5;
    const epsilons = Array.from({ length: LINES }, (_, k) => last * (k / (LINES - 1)) ** 1.5);
    const found = epsilons.map((epsilon) => divergences(allocation, epsilon, neighbours, CURVE_POINTS));
    const orders = found[0].map((_, order) => found.map((both) => both[order]));
    curves = orders.map((order, which) => {
      const other = orders[orders.length - 1 - which];
      const lines: [number, number][] = [[0, 1]];
      epsilons.forEach((epsilon, k) => {
        const slope = Math.exp(epsilon);
        // a test's complement has the other order's divergence at 1 / c: H(1/c) = 1 - 1/c + H'(c) / c
        for (const [c, height] of [[slope, order[k]], [1 / slope, 1 - 1 / slope + other[k] / slope]]) lines.push([c, height * (1 + ARITHMETIC) + 1e-15]);
      });
      return envelope(lines);
    });
    if (keptCurves.size > 64) keptCurves.clear();
    keptCurves.set(name, curves);
  }
  return curves;
}

/** The least of the lines height + slope a between the levels 0 and 1; a vertex is on or above both of its lines. */
function envelope(lines: [slope: number, height: number][]): Curve {
  lines.sort((one, other) => other[0] - one[0] || other[1] - one[1]);
  const kept: { slope: number; height: number; start: number }[] = [];
  for (const [slope, height] of lines) {
    let start = 0;
    while (kept.length > 0) {
      const last = kept[kept.length - 1];
      start = last.slope > slope ? (height - last.height) / (last.slope - slope) : height < last.height ? 0 : Infinity;
      if (start > last.start) break;
      kept.pop();
    }
    if (kept.length === 0) start = 0;
    if (start < 1) kept.push({ slope, height, start });
  }
  const curve: Curve = [[0, Math.min(1, kept[0].height)]];
  kept.slice(1).forEach(({ slope, height, start }, before) => {
    const power = Math.max(kept[before].height + kept[before].slope * start, height + slope * start) * (1 + ARITHMETIC);
    curve.push([start * (1 - ARITHMETIC), Math.min(1, power)]);
  });
  return [...curve, [1, 1]];
}

const keptDivergences = new Map<string, number[]>();

/** Bounds on the hockey-stick divergences of the two hypotheses at `epsilon`: one of replace-one, two of zero-out. */
function divergences(allocation: Allocation, epsilon: number, neighbours: Relation, points = POINTS): number[] {
  const { mu, rounds } = allocation;
  const name = `${mu} ${rounds} ${epsilon} ${neighbours} ${points}`;
  let bounds = keptDivergences.get(name);
  if (bounds === undefined) {
    const known = gaussianDelta(epsilon, knownMu(allocation, neighbours));
    const factor = Math.exp(Math.min(epsilon, LARGEST_EPSILON));
    const variables: Variable[] =
      neighbours === "replace-one"
        ? [{ mu, epsilon, a: 1, b: 0, g: factor }]
        : [{ mu, epsilon, a: 1, b: -factor, g: 0 }, { mu, epsilon, a: 0, b: 1, g: factor }];
    const hopeless = rounds === 1 || mu < LEAST_MU || mu > LARGEST_MU || epsilon > LARGEST_EPSILON;
    bounds = variables.map((one) => (hopeless ? known : Math.min(known, stopLoss(one, rounds, points))));
    if (keptDivergences.size > 4096) keptDivergences.clear();
    keptDivergences.set(name, bounds);
  }
  return bounds;
}

/** W = a X + b - g Y, which grows with z; g is 0 or e^epsilon. */
interface Variable {
  mu: number;
  epsilon: number;
  a: number;
  b: number;
  g: number;
}

/** Places of W are computed within this times a X + |b| + g Y. */
const doubtOf = ({ mu, epsilon }: Variable): number => 1e-13 + 16 * UNIT * (FARTHEST * mu + mu * mu + epsilon);

const valueAt = ({ mu, a, b, g }: Variable, z: number): number =>
  (a > 0 ? a * Math.exp(mu * z - (mu * mu) / 2) : 0) + b - (g > 0 ? g * Math.exp(Math.min(-mu * z - (mu * mu) / 2, 700)) : 0);

/** The z at which W has a value. */
function inverse({ mu, epsilon, a, b, g }: Variable, value: number): number {
  const half = (mu * mu) / 2;
  let z: number;
  if (a > 0 && g > 0) z = (Math.asinh(value * (Math.exp(half - epsilon / 2) / 2)) + epsilon / 2) / mu;
  else if (a > 0) z = (Math.log(Math.max(value - b, 0)) + half) / mu;
  else z = -(Math.log(Math.max(b - value, 0) / g) + half) / mu;
  return Math.min(FARTHEST, Math.max(-FARTHEST, z));
}

/** A bound on E (W_1 + ... + W_T)_+ / T; 1 where nothing can be said. A coarse lattice finds how deep the full one has to be. */
function stopLoss(variable: Variable, rounds: number, points: number): number {
  let best = { bound: 1, depth: DEPTHS[0] };
  for (const depth of DEPTHS) {
    const [bound, charge] = boundBy(variable, rounds, depth, points / COARSER);
    if (bound < best.bound) best = { bound, depth };
    if (best.bound > NEGLIGIBLE * charge) break;
  }
  const [full] = boundBy(variable, rounds, best.depth, points);
  return full < best.bound ? full : best.bound;
}

/** One lattice's bound, and the part of it that was cut off above. Any cut, tilt, window and step are safe. */
function boundBy(variable: Variable, rounds: number, depth: number, points: number): [bound: number, charge: number] {
  const { mu, epsilon, a, g } = variable;
  const factor = Math.exp(epsilon);
  let cut = 1; // without X, W < 1, and where one W is below 1 - T no sum is positive
  let lowest = -Math.max(1, rounds - 1);
  if (a > 0) {
    cut = Math.min(valueAt(variable, mu + depth), g > 0 ? LONGEST_CUT * factor * rounds : factor * (rounds - 1));
    lowest = -factor;
    if (!(cut > 0)) return [1, 0];
  }
  const { theta, logTotal, mean, spread } = tiltOf(variable, rounds, cut, lowest);
  const bottom = Math.min((REACH - Math.min(0, logTotal)) / theta, Math.max(0, -mean) + REACH_DOWN * spread + 1 / theta);
  let top = REACH / theta;
  if (a === 0) top = Math.min(top, rounds * (1.01 + (2 * (1.01 * rounds + bottom)) / points)); // no sum is larger
  const step = shortened((top + bottom) / (points - 2));
  const start = Math.floor((a > 0 && g > 0 ? -bottom : Math.max(-bottom, lowest)) / step);
  if (!(cut / step - start < MOST_POINTS)) return [1, 0];
  const end = Math.max(start + 2, Math.ceil(cut / step));
  if (!(theta * step * (end - start) <= LARGEST_TILT)) return [1, 0];
  const { law, charge } = latticeLaw(variable, start, end, step);

  // The tilted law and the T-th power of its transform: the sum first * step is at index 0.
  const tilted = law.map((weight, place) => weight * Math.exp(theta * step * (start - end + place)));
  const whole = total(tilted);
  const logScale = rounds * (Math.log(whole) + theta * step * end);
  if (!(logScale < LARGEST_EPSILON)) return [1, 0];
  const folded = new Float64Array(points);
  for (let place = 0; place < tilted.length; place += 1) folded[place % points] += (tilted[place] * (1 + 1e-12)) / whole;
  const weights = convolved(folded, rounds);
  const first = -Math.ceil(bottom / step);
  const shift = (((rounds * start - first) % points) + points) % points;
  const losses = new Float64Array(points);
  for (let place = 1 - first; place < points; place += 1) {
    const sum = (first + place) * step;
    losses[place] = weights[(place - shift + points) % points] * sum * Math.exp(-theta * sum);
  }
  // 1e-9 and 4e-12 T are for the inflation above, T times, and for errors of exponents up to 600.
  const main = ((Math.exp(logScale) * total(losses)) / rounds) * (1 + 1e-9 + 4e-12 * rounds);
  // Sums above the window come around downwards, so they are charged; those below it come around upwards.
  const window = (first + points) * step;
  const largest = Math.max(window, 1 / theta);
  const lost = window < rounds * end * step ? ((Math.exp(logScale - theta * largest) * largest) / rounds) * 1.01 : 0;
  const bound = main + charge + lost + 2 * doubtOf(variable);
  return [Number.isFinite(bound) ? bound : 1, charge];
}

/** A number at least as large with 20 binary digits, so that its multiples are exact. */
function shortened(size: number): number {
  const unit = 2 ** (Math.floor(Math.log2(size)) - 19);
  return Math.ceil(size / unit) * unit;
}

/** A tilt theta > 0 that makes sums about as large as matter; then, of the tilted sum, roughly: log M^T, mean and deviation. */
function tiltOf(variable: Variable, rounds: number, cut: number, lowest: number) {
  const { mu, a } = variable;
  const count = 1001;
  const values = new Float64Array(count);
  const logs = new Float64Array(count);
  for (let k = 0; k < count; k += 1) {
    const z = -14 + (28 * k) / (count - 1) + (a > 0 ? mu / 2 : -mu / 2);
    const value = Math.min(valueAt(variable, z), cut);
    values[k] = a > 0 ? value : Math.max(value, lowest);
    logs[k] = (-z * z) / 2;
  }
  const scaleOfLogs = Math.log(total(logs.map(Math.exp)));
  const tilted = (theta: number) => {
    const exponents = logs.map((log, k) => theta * values[k] + log - scaleOfLogs);
    const most = exponents.reduce((one, other) => Math.max(one, other));
    let [whole, mean, squares] = [0, 0, 0];
    exponents.forEach((exponent, k) => {
      const weight = Math.exp(exponent - most);
      whole += weight;
      mean += weight * values[k];
    });
    mean /= whole;
    exponents.forEach((exponent, k) => (squares += Math.exp(exponent - most) * (values[k] - mean) ** 2));
    return { logTotal: rounds * (most + Math.log(whole)), mean: rounds * mean, spread: Math.sqrt((rounds * squares) / whole) };
  };
  const scale = Math.max(values.reduce((one, other) => Math.max(one, other)), 1e-300);
  let low = Math.log(1e-9 / scale);
  let high = Math.log(LARGEST_TILT / scale);
  while (high - low > 0.01) {
    const middle = (low + high) / 2;
    const { logTotal, mean } = tilted(Math.exp(middle));
    if (mean * Math.exp(middle) > 1 || logTotal < -60) high = middle;
    else low = middle;
  }
  const theta = GENTLE * Math.exp(low);
  return { theta, ...tilted(theta) };
}

/** Weights on start..end times step of a law above min(W, last) in the increasing convex order, and E (W - last)_+ from above. */
function latticeLaw(variable: Variable, start: number, end: number, step: number): { law: Float64Array; charge: number } {
  const { mu, a, b, g } = variable;
  const doubt = doubtOf(variable);
  const law = new Float64Array(end - start + 1);
  let before = ends(variable, start * step);
  law[0] += before.z.left * (1 + 1e-11); // lower values are raised to the first
  for (let place = 0; place < law.length - 1; place += 1) {
    const left = (start + place) * step;
    const after = ends(variable, left + step);
    const [mass, massError] = cell(before.z, after.z);
    let [mean, meanError, size] = [b * mass, Math.abs(b) * massError, Math.abs(b) * mass];
    if (a > 0) {
      const [part, error] = cell(before.x as End, after.x as End);
      [mean, meanError, size] = [mean + a * part, meanError + a * error, size + a * part];
    }
    if (g > 0) {
      const [part, error] = cell(before.y as End, after.y as End);
      [mean, meanError, size] = [mean - g * part, meanError + g * error, size + g * part];
    }
    const most = (mass + massError) * (1 + 8 * UNIT);
    const above = mean + meanError + (doubt + 8 * UNIT) * size - left * (left > 0 ? Math.max(mass - massError, 0) : most);
    const upper = Math.min(Math.max((above + 8 * UNIT * Math.abs(left) * most) / step, 0), most);
    law[place] += most - upper;
    law[place + 1] += upper;
    before = after;
  }
  law[law.length - 1] += before.z.right * (1 + 1e-11);
  const z = before.z.at;
  const first = a > 0 ? cdf(mu - z) : 0;
  const rest = (end * step - b) * cdf(-z) + g * cdf(-z - mu);
  return { law, charge: a > 0 ? Math.max(0, first - rest) + 1e-9 * first : 0 };
}

/** A normal quantile with both of its tails. */
interface End {
  at: number;
  left: number;
  right: number;
}

function endAt(at: number): End {
  const tail = cdf(-Math.abs(at));
  return at <= 0 ? { at, left: tail, right: 1 - tail } : { at, left: 1 - tail, right: tail };
}

/** Where W has a value: in z, and in the coordinates that X and Y make normal. */
function ends(variable: Variable, value: number): { z: End; x: End | null; y: End | null } {
  const z = inverse(variable, value);
  return { z: endAt(z), x: variable.a > 0 ? endAt(z - variable.mu) : null, y: variable.g > 0 ? endAt(z + variable.mu) : null };
}

/** The normal probability between two edges, from its nearer tail, and a bound on its error. */
function cell(low: End, high: End): [probability: number, error: number] {
  const left = high.at <= 0;
  const probability = left ? high.left - low.left : low.right - high.right;
  return [Math.max(0, probability), 8e-16 * (4 + Math.max(low.at ** 2, high.at ** 2)) * (left ? high.left : low.right)];
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

/** Upper bounds of the cyclic convolution of `times` copies of a law on 2^k points whose weights add up to about 1. */
function convolved(law: Float64Array, times: number): Float64Array {
  const points = law.length;
  const real = law.slice();
  const imaginary = new Float64Array(points);
  transform(real, imaginary, false);
  const doubtful = 8 * UNIT * Math.log2(points);
  const half = points / 2;
  const doubts = new Float64Array(half + 1);
  for (let k = 0; k <= half; k += 1) {
    const size = Math.sqrt(real[k] * real[k] + imaginary[k] * imaginary[k]);
    const most = (size + doubtful) ** (times - 1);
    doubts[k] = times * doubtful * most + (3 * UNIT * times + doubtful) * size * most;
    [real[k], imaginary[k]] = power(real[k], imaginary[k], times);
  }
  // all frequencies but two stand for a conjugate pair
  for (let k = 1; k < half; k += 1) [real[points - k], imaginary[points - k]] = [real[k], -imaginary[k]];
  const error = ((2 * total(doubts)) / points) * 1.01;
  transform(real, imaginary, true);
  return real.map((weight) => Math.max(0, weight / points + error));
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
  const [cosines, sines] = rootsOf(points);
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

const keptRoots = new Map<number, [Float64Array, Float64Array]>();

function rootsOf(points: number): [cosines: Float64Array, sines: Float64Array] {
  let roots = keptRoots.get(points);
  if (roots === undefined) {
    roots = [new Float64Array(points >> 1), new Float64Array(points >> 1)];
    for (let k = 0; k < points >> 1; k += 1) [roots[0][k], roots[1][k]] = root(k, points);
    keptRoots.set(points, roots);
  }
  return roots;
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
