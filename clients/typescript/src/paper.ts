/**
 * The paper's own calibration: Lemma 3.1, Theorem 3.2, Claim A.3 and Algorithm 5's split, as src/croupier/privacy/_paper.py has them.
 * What it promises holds for exactly the parameters that it prescribes; every other plan is refused. They pass through logarithms,
 * which are rounded to the nearest float here. Where Python's was rounded the other way (one plan in thousands) there is no proof.
 */
import { NoCertificateError } from "./errors.ts";
import { deltaOf, type Guarantee, pureGuarantee } from "./guarantee.ts";
import type { SumPlan } from "./plan.ts";

const MAX_ALPHA = 0.8585;
const MAX_EPSILON = 15;
const MIN_HONEST = 1 / 3;

export interface PaperFacts extends Omit<SumPlan, "diameter" | "guarantee"> {
  calibration: "paper" | "paper-scaled";
  scalar: boolean;
  maxBits: number | null;
}

/** What the paper proves of exactly these parameters, for a user who takes part in all rounds. */
export function paperGuarantee(facts: PaperFacts): Guarantee {
  const { levels, noiseBits, noiseProbability } = facts;
  const [epsilon, delta] = roundBudget(facts);
  const wanted = parameters(facts, epsilon, delta);
  if (levels !== wanted.levels || noiseBits !== wanted.noiseBits || noiseProbability !== wanted.noiseProbability) {
    throw new NoCertificateError("other parameters than the paper prescribes, as they are computed here");
  }
  return pureGuarantee(epsilon, delta, facts.rounds);
}

/** (g, b, p) as printed: b > 180 g^2 ln(2/delta) / (eps^2 n), and p half that bound over b. */
export function parameters(
  facts: Pick<PaperFacts, "users" | "dim" | "norm" | "honest" | "calibration" | "scalar">,
  roundEpsilon: number,
  roundDelta: number,
): Pick<PaperFacts, "levels" | "noiseBits" | "noiseProbability"> {
  let [epsilon, delta] = [roundEpsilon * facts.honest, roundDelta]; // Claim A.3
  const width = facts.calibration === "paper" ? 2 * facts.norm : 1;
  let levels: number;
  if (facts.scalar) {
    levels = Math.ceil(Math.max(width * Math.sqrt(facts.users), facts.honest === 1 ? 1 : 3));
  } else {
    levels = Math.ceil(Math.max(width * Math.sqrt(facts.users), Math.sqrt(facts.dim), 4));
    delta /= facts.dim + 1;
    epsilon /= 18 * Math.sqrt(log(1 / delta));
  }
  if (epsilon / (3 * facts.honest * levels) > MAX_ALPHA) throw new NoCertificateError("an epsilon that Lemma 3.1's proof does not cover");
  if (epsilon < 1e-9 * levels) throw new NoCertificateError("an epsilon for which the paper's noise is beyond counting");
  const strength = (levels * levels * log(2 / delta)) / (epsilon * epsilon * facts.users);
  const noiseBits = Math.floor(180 * strength) + 1;
  return { levels, noiseBits, noiseProbability: (90 * strength) / noiseBits };
}

/** (epsilon, delta) of one round, where the paper covers the request. */
function roundBudget(facts: PaperFacts): [number, number] {
  const { epsilon, delta, honest, rounds } = facts;
  if (facts.neighbours !== "replace-one") throw new NoCertificateError("neighbours that the paper does not treat");
  if (facts.maxBits !== null) throw new NoCertificateError("a limit on bits, which the paper's constants fix");
  if (epsilon > MAX_EPSILON || delta >= 0.5) throw new NoCertificateError("an epsilon or a delta that the paper does not cover");
  if (honest < 1 && (honest < MIN_HONEST || epsilon > 1 / honest)) throw new NoCertificateError("a share of honest users that Claim A.3 does not cover");
  if (rounds === 1) return [epsilon, delta];
  const one = epsilon / (2 * Math.sqrt(2 * rounds * log(1 / delta)));
  const part = delta / (rounds + 1);
  if (deltaOf(pureGuarantee(one, part, rounds), epsilon) > delta) throw new NoCertificateError("a delta for which Algorithm 5's split does not hold");
  return [one, part];
}

const BITS = 160n;

/** 2 atanh(above / below) 2^BITS, but for some units. */
function twiceAtanh(above: bigint, below: bigint): bigint {
  const z = (above << BITS) / below;
  const square = (z * z) >> BITS;
  let sum = 0n;
  for (let term = z, k = 1n; term !== 0n; term = (term * square) >> BITS, k += 2n) sum += term / k;
  return 2n * sum;
}

const LOG_2 = twiceAtanh(1n, 3n);

/** The natural logarithm of a float above 0 that is not subnormal, rounded to the nearest float: engines' own differ in last digits. */
export function log(x: number): number {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const one = 1n << 52n;
  const digits = (bits & (one - 1n)) | one;
  if (!(x >= 2 ** -1022 && x < Infinity)) throw new NoCertificateError("a number beyond those whose logarithms are known");
  return Number(((bits >> 52n) - 1023n) * LOG_2 + twiceAtanh(digits - one, digits + one)) / 2 ** Number(BITS);
}
