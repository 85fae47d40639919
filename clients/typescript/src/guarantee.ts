/** What is promised: upper bounds on what the analyzer's view reveals about one user. */
import { type Allocation, allocationDelta, allocationGaussian, knownMu, SLACKS } from "./allocation.ts";
import { NoCertificateError } from "./errors.ts";
import { gaussianDelta, gaussianMu } from "./normal.ts";

const ROUND_UP = 1 + 1e-9;

/** At most as telling as N(mu, 1) against N(0, 1), or as one report in one of secret rounds, but for `slack`. */
export interface Guarantee {
  mu: number;
  slack: number;
  neighbours: "replace-one" | "zero-out";
  /** With secret lots: the rounds among which the lot was drawn, and one round's mu. */
  allocation: Allocation | null;
  /** With secret lots: what holds to somebody who also knows when each user answered. */
  watched: Guarantee | null;
}

export const gaussianGuarantee = (mu: number, slack: number, neighbours: Guarantee["neighbours"] = "replace-one"): Guarantee => ({
  mu,
  slack: Math.min(1, slack),
  neighbours,
  allocation: null,
  watched: null,
});

/** Of taking part in several rounds of this kind. */
export const repeated = (one: Guarantee, rounds: number): Guarantee =>
  gaussianGuarantee(one.mu * Math.sqrt(rounds) * (rounds > 1 ? ROUND_UP : 1), one.slack * rounds, one.neighbours);

/** No better than any of these, each user being in one of them. */
export const worstOf = (every: readonly Guarantee[]): Guarantee =>
  every.length === 1
    ? every[0]
    : gaussianGuarantee(Math.max(...every.map((one) => one.mu)), Math.max(...every.map((one) => one.slack)), every[0].neighbours);

/** The smallest delta that is proved at this epsilon, rounded up. */
export function deltaOf(guarantee: Guarantee, epsilon: number): number {
  const own =
    guarantee.allocation === null
      ? gaussianDelta(epsilon, guarantee.mu)
      : allocationDelta(guarantee.allocation, epsilon, guarantee.neighbours);
  return Math.min(1, guarantee.slack + own);
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
  while (high - low > 1e-12 * high) {
    const middle = (low + high) / 2;
    if (middle === low || middle === high) break;
    if (deltaOf(guarantee, middle) <= delta) high = middle;
    else low = middle;
  }
  return high;
}

/** A Gaussian and a slack that bound a guarantee at every epsilon: what adds up over tasks. */
export function gaussianBound(guarantee: Guarantee): { mu: number; slack: number } {
  if (guarantee.allocation === null) return { mu: guarantee.mu, slack: guarantee.slack };
  const more = Math.max(0.5 * guarantee.slack, 1e-14);
  const mu = allocationGaussian(guarantee.allocation, guarantee.neighbours, more);
  return { mu: Math.min(mu, knownMu(guarantee.allocation, guarantee.neighbours)), slack: Math.min(1, guarantee.slack + more) };
}

const SLACK_SHARE = 0.25;

/** Caps on the squares of mu and on slacks that keep (epsilon, delta) for tasks chosen one after the other (accounting, Theorem F). */
export class Budget {
  readonly epsilon: number;
  readonly delta: number;
  readonly #mu: number;
  readonly #slack: number;

  constructor(epsilon: number, delta: number) {
    if (!(epsilon > 0 && delta > 0 && delta < 1)) throw new RangeError("a budget has an epsilon above 0 and a delta between 0 and 1");
    this.epsilon = epsilon;
    this.delta = delta;
    this.#mu = gaussianMu(epsilon, (1 - SLACK_SHARE) * (1 - 1e-12) * delta);
    this.#slack = SLACK_SHARE * delta;
  }

  /** Which part of the caps some tasks use up, rounded up; above 1 is too much. */
  use(bounds: readonly { mu: number; slack: number }[]): number {
    const squares = bounds.reduce((sum, bound) => sum + bound.mu * bound.mu, 0) / (this.#mu * this.#mu);
    const slacks = bounds.reduce((sum, bound) => sum + bound.slack, 0) / this.#slack;
    const used = Math.max(squares, slacks) * (1 + 1e-12);
    if (Number.isNaN(used)) throw new NoCertificateError("a task without figures that can be added up");
    return used;
  }
}

export { SLACKS };
