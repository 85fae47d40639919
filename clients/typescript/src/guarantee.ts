/** What is promised: upper bounds on what the analyzer's view reveals about one user. */
import { type Allocation, allocationDelta, allocationGaussian, knownMu, SLACKS } from "./allocation.ts";
import { binomialWeight } from "./crowd.ts";
import { NoCertificateError } from "./errors.ts";
import { centralScore, gaussianDelta, tailScore } from "./normal.ts";

const ROUND_UP = 1 + 1e-9;
const MOST_PURE_ROUNDS = 1e5;

/** At most as telling as N(mu, 1) against N(0, 1), or as one report in one of secret rounds, but for `slack`. */
export interface Guarantee {
  mu: number;
  slack: number;
  neighbours: "replace-one" | "zero-out";
  /** By the paper's theorems: so many randomized responses of an epsilon each, beside the Gaussian. */
  pure?: { epsilon: number; rounds: number };
  /** With secret lots: the rounds among which the lot was drawn, and one round's mu. */
  allocation: Allocation | null;
  /** With secret lots: what holds against an attacker who also knows when each user answered. */
  watched: Guarantee | null;
}

export const gaussianGuarantee = (mu: number, slack: number, neighbours: Guarantee["neighbours"] = "replace-one"): Guarantee => ({
  mu,
  slack: Math.min(1, slack),
  neighbours,
  allocation: null,
  watched: null,
});

/** Of (epsilon, delta) in each of some rounds. */
export const pureGuarantee = (epsilon: number, delta: number, rounds: number): Guarantee => ({
  ...gaussianGuarantee(0, delta * rounds),
  pure: { epsilon, rounds },
});

/** Of taking part in several rounds of this kind. */
export const repeated = (one: Guarantee, rounds: number): Guarantee =>
  gaussianGuarantee(one.mu * Math.sqrt(rounds) * (rounds > 1 ? ROUND_UP : 1), one.slack * rounds, one.neighbours);

/** No better than any of these, each user being in one of them. Lots are shared by all phases, so that there is no worst of several. */
export function worstOf(every: readonly Guarantee[]): Guarantee {
  if (every.length === 1) return every[0];
  if (every.some((one) => one.allocation !== null || one.watched !== null)) throw new Error("secret lots have one guarantee");
  return {
    ...gaussianGuarantee(Math.max(...every.map((one) => one.mu)), Math.max(...every.map((one) => one.slack)), every[0].neighbours),
    ...(every.some((one) => one.pure) && {
      pure: {
        epsilon: Math.max(...every.map((one) => one.pure?.epsilon ?? 0)),
        rounds: Math.max(...every.map((one) => one.pure?.rounds ?? 0)),
      },
    }),
  };
}

/** The smallest delta that is proved at this epsilon, rounded up. */
export function deltaOf(guarantee: Guarantee, epsilon: number): number {
  const own =
    guarantee.allocation === null
      ? withResponses(epsilon, guarantee.mu, guarantee.pure)
      : allocationDelta(guarantee.allocation, epsilon, guarantee.neighbours);
  return Math.min(1, guarantee.slack + own);
}

/** deltaG beside k randomized responses: their loss is (k - 2 j) epsilon with binomial probabilities (optimal composition). */
function withResponses(epsilon: number, mu: number, pure: Guarantee["pure"]): number {
  if (pure === undefined || pure.epsilon === 0) return gaussianDelta(epsilon, mu);
  const { rounds } = pure;
  if (rounds > MOST_PURE_ROUNDS) throw new NoCertificateError(`${rounds} rounds by the paper's theorems are more than this client adds up`);
  let sum = 0;
  for (let wrong = 0; wrong <= rounds; wrong += 1) {
    const own = gaussianDelta(epsilon - (rounds - 2 * wrong) * pure.epsilon, mu);
    if (own > 0) sum += own * binomialWeight(wrong, rounds, 1 / (1 + Math.exp(pure.epsilon)));
  }
  return sum * ROUND_UP;
}

/** The mu of the Gaussian pair that randomized response is a post-processing of, rounded up: 2 Phi^-1(e^eps / (1 + e^eps)). */
export function responseMu(epsilon: number): number {
  const score = epsilon < 1 ? centralScore(Math.tanh(epsilon / 2) / 2) : tailScore(-(epsilon + Math.log1p(Math.exp(-epsilon))));
  return 2 * score * (1 + 1e-12);
}

/** The smallest epsilon that is proved at this delta, rounded up; infinite where there is none. */
export function epsilonOf(guarantee: Guarantee, delta: number): number {
  if (!(delta > guarantee.slack)) return Infinity;
  if (deltaOf(guarantee, 0) <= delta) return 0;
  let low = 0;
  let high = 1;
  while (deltaOf(guarantee, high) > delta) {
    [low, high] = [high, 2 * high];
    if (high > 1e9) return Infinity;
  }
  if (guarantee.allocation !== null) return narrowed((epsilon) => Math.log(Math.max(deltaOf(guarantee, epsilon), 1e-300) / delta), low, high);
  while (high - low > 1e-12 * high) {
    const middle = (low + high) / 2;
    if (middle === low || middle === high) break;
    if (deltaOf(guarantee, middle) <= delta) high = middle;
    else low = middle;
  }
  return high;
}

/** An x at which f, above 0 at `low`, is at most 0, found by chords (Illinois): with secret lots each f takes a transform. */
function narrowed(f: (x: number) => number, low: number, high: number): number {
  let [atLow, atHigh] = [f(low), f(high)];
  for (let step = 0; step < 60 && high - low > 1e-7 * high; step += 1) {
    const chord = high - (atHigh * (high - low)) / (atHigh - atLow);
    const x = Math.min(high - 4e-8 * high, Math.max(low + 4e-8 * high, chord));
    const found = f(x);
    if (found > 0) {
      [low, atLow] = [x, found];
      atHigh /= 2;
    } else {
      [high, atHigh] = [x, found];
      atLow /= 2;
    }
  }
  return high;
}

/** A Gaussian and a slack that bound a guarantee at every epsilon: what adds up over tasks. */
export function gaussianBound(guarantee: Guarantee): { mu: number; slack: number } {
  if (guarantee.allocation === null) {
    const { mu, slack, pure } = guarantee;
    const responses = pure === undefined ? 0 : Math.sqrt(pure.rounds) * responseMu(pure.epsilon);
    return { mu: responses > 0 ? Math.hypot(mu, responses) * (1 + 1e-12) : mu, slack };
  }
  const more = Math.max(0.5 * guarantee.slack, 1e-14);
  const mu = allocationGaussian(guarantee.allocation, guarantee.neighbours, more);
  return { mu: Math.min(mu, knownMu(guarantee.allocation, guarantee.neighbours)), slack: Math.min(1, guarantee.slack + more) };
}

export { SLACKS };
