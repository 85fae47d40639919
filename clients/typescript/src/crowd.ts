/** How many honest users a random batch holds, but for a small chance (accounting, section 4). */

const TAILS = 1e-8;

/** Honest users in a random batch, the user at stake among them, but for probability `chance` (Hoeffding 1963). */
export function honestInBatch(users: number, honest: number, batch: number, chance: number): number {
  const all = Math.ceil(honest * users * (1 - 1e-12));
  if (users === all || users === batch) return Math.min(all, batch);
  const drawn = batch - 1;
  const others = (all - 1) / (users - 1);
  let few = -1;
  let many = Math.ceil(others * drawn);
  while (many - few > 1) {
    const middle = Math.floor((few + many) / 2);
    const improbable = drawn * divergence(middle / drawn, others) * (1 - 1e-12) >= -Math.log(chance) * (1 + 1e-9);
    if (improbable) few = middle;
    else many = middle;
  }
  return few + 2;
}

/** Honest users that any batch with the user at stake holds at least, whoever is in it. */
export const surelyHonest = (users: number, honest: number, batch: number): number =>
  Math.max(1, Math.ceil(honest * users * (1 - 1e-12)) - (users - batch));

function divergence(a: number, p: number): number {
  if (a >= p) return 0;
  return (a > 0 ? a * Math.log(a / p) : 0) + (1 - a) * Math.log((1 - a) / (1 - p));
}

/** Upper bound on P(Bin(trials, 1 / rounds) >= successes): a sum from its first term on, which falls geometrically in the end. */
export function atLeast(successes: number, trials: number, rounds: number): number {
  if (successes <= 0) return 1;
  if (successes > trials) return 0;
  if (rounds === 1) return 1;
  const p = 1 / rounds;
  if (successes <= trials * p) return 1;
  return Math.min(1, tail(successes, trials, p) * (1 + TAILS));
}

/** Upper bound on P(Bin(trials, 1 / rounds) <= successes). */
export function atMost(successes: number, trials: number, rounds: number): number {
  if (successes < 0) return 0;
  if (successes >= trials) return 1;
  if (rounds === 1) return 0;
  const p = 1 - 1 / rounds;
  const failures = trials - successes;
  if (failures <= trials * p) return 1;
  return Math.min(1, tail(failures, trials, p) * (1 + TAILS));
}

/** P(Bin(n, p) >= k) for k above the mean: f(k) times the sum of ratios, f by its saddle point (Loader 2000). */
function tail(k: number, n: number, p: number): number {
  const q = 1 - p;
  let sum = 1;
  let term = 1;
  for (let y = k; y < n; y += 1) {
    term *= ((n - y) * p) / ((y + 1) * q);
    sum += term;
    if (term < 1e-18 * sum) {
      const ratio = ((n - y - 1) * p) / ((y + 2) * q);
      sum += ratio < 1 ? (term * ratio) / (1 - ratio) : Infinity;
      break;
    }
  }
  return Math.exp(logPmf(k, n, p)) * sum;
}

/** P(Bin(n, p) = k). */
export function binomialWeight(k: number, n: number, p: number): number {
  return k === 0 ? Math.exp(n * Math.log1p(-p)) : Math.exp(logPmf(k, n, p));
}

function logPmf(k: number, n: number, p: number): number {
  if (k === n) return n * Math.log(p);
  const q = 1 - p;
  const error = stirling(n) - stirling(k) - stirling(n - k);
  return error - deviance(k, n * p) - deviance(n - k, n * q) + 0.5 * Math.log(n / (2 * Math.PI * k * (n - k)));
}

/** x log(x / m) - x + m. */
function deviance(x: number, m: number): number {
  const d = (x - m) / (x + m);
  if (Math.abs(x - m) < 0.1 * (x + m)) {
    let s = (x - m) * d;
    let term = 2 * x * d;
    const square = d * d;
    for (let j = 1; j < 1000; j += 1) {
      term *= square;
      const next = s + term / (2 * j + 1);
      if (next === s) break;
      s = next;
    }
    return s;
  }
  return x * Math.log(x / m) + m - x;
}

const LOG_FACTORIALS = [0, 0];
for (let n = 2; n < 16; n += 1) LOG_FACTORIALS.push(LOG_FACTORIALS[n - 1] + Math.log(n));

/** log n! less Stirling's formula. */
function stirling(n: number): number {
  if (n < 16) return n === 0 ? 0 : LOG_FACTORIALS[n] - ((n + 0.5) * Math.log(n) - n + 0.9189385332046727);
  const s = n * n;
  return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / s) / s) / s) / s) / n;
}
