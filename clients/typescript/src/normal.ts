/** The normal law in both tails, and the Gaussian yardstick deltaG. Relative errors are below 1e-13 for |t| <= 38. */
import { CENTRE, COEFFICIENTS } from "./mills.ts";

const ROOT_2 = Math.SQRT2;
const HALF_LOG_2PI = 0.9189385332046727;
const TAIL_ERROR = 1e-12;

/** Mills' ratio (1 - Phi(t)) / phi(t) for t >= 0. */
export function mills(t: number): number {
  const x = t / ROOT_2;
  const y = (x - CENTRE) / (x + CENTRE);
  let next = 0;
  let after = 0;
  for (let k = COEFFICIENTS.length - 1; k > 0; k -= 1) {
    const now = 2 * y * next - after + COEFFICIENTS[k];
    after = next;
    next = now;
  }
  return ((y * next - after + COEFFICIENTS[0]) / (1 + 2 * x)) * 1.2533141373155003;
}

export const logDensity = (z: number): number => (-z * z) / 2 - HALF_LOG_2PI;

/** log Phi(-t) for t >= 0. */
export const logTail = (t: number): number => logDensity(t) + Math.log(mills(t));

/** Phi(z). */
export function cdf(z: number): number {
  const tail = Math.exp(logTail(Math.abs(z)));
  return z <= 0 ? tail : 1 - tail;
}

/** The t >= 0 with log Phi(-t) = logQ, for logQ at most log(1/2) but for rounding: Newton's steps on a concave function. */
export function tailScore(logQ: number, start?: number): number {
  let t = start ?? Math.sqrt(Math.max(0, -2 * (logQ + HALF_LOG_2PI)));
  for (let step = 0; step < 60; step += 1) {
    const ratio = mills(Math.max(t, 0));
    const moved = Math.max(0, t + (logDensity(t) + Math.log(ratio) - logQ) * ratio);
    if (Math.abs(moved - t) <= 4e-16 * (1 + t)) return moved;
    t = moved;
  }
  return t;
}

/** Phi^-1(1/2 + part) for 0 <= part < 0.3, to the last digits also where it is small: Newton's steps on the series of Phi. */
export function centralScore(part: number): number {
  let t = part * Math.sqrt(2 * Math.PI);
  for (let step = 0; step < 60; step += 1) {
    let sum = 0;
    for (let k = 0, power = t; Math.abs(power) > 1e-18 * t; k += 1, power *= (-t * t) / (2 * k)) sum += power / (2 * k + 1);
    const moved = t + (part * Math.sqrt(2 * Math.PI) - sum) * Math.exp((t * t) / 2);
    if (Math.abs(moved - t) <= 4e-16 * t) return moved;
    t = moved;
  }
  return t;
}

/** Phi^-1(q) for 0 < q < 1; `near` is a number that it is near to, if one is known. */
export function quantile(q: number, near?: number): number {
  const start = near === undefined ? undefined : Math.abs(near);
  return q <= 0.5 ? -tailScore(Math.log(q), start) : tailScore(Math.log(1 - q), start);
}

/** deltaG(epsilon; mu) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), rounded up; at most 1. */
export function gaussianDelta(epsilon: number, mu: number): number {
  if (!(mu >= 0) || Number.isNaN(epsilon)) throw new RangeError(`no Gaussian divergence for ${epsilon}, ${mu}`);
  if (mu === 0) return epsilon < 0 ? Math.max(0, -Math.expm1(epsilon)) : 0;
  if (mu === Infinity) return 1;
  const shift = Math.max(mu, 1e-150);
  const logCdf = (z: number): number => (z <= 0 ? logTail(-z) : Math.log1p(-Math.exp(logTail(z))));
  const upper = Math.exp(logCdf(-epsilon / shift + shift / 2));
  const lower = Math.exp(Math.min(0, epsilon + logCdf(-epsilon / shift - shift / 2)));
  // 1e-13 for the tails, as many for exp of a sum of numbers as large as these
  const error = TAIL_ERROR + 4e-16 * (Math.abs(epsilon) + (Math.abs(epsilon) / shift + shift) ** 2);
  return Math.min(1, Math.max(0, upper - lower) + error * (upper + lower));
}

/** The largest mu whose divergence at `epsilon` is at most `delta`, rounded down. */
export function gaussianMu(epsilon: number, delta: number): number {
  let low = 0;
  let high = 1;
  while (gaussianDelta(epsilon, high) <= delta) [low, high] = [high, 2 * high];
  for (let step = 0; step < 200; step += 1) {
    const middle = (low + high) / 2;
    if (middle === low || middle === high) break;
    if (gaussianDelta(epsilon, middle) <= delta) low = middle;
    else high = middle;
  }
  return low;
}
