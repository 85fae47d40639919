/** Secret lots of a task: their promise over all rounds, proved anew (accounting, Theorem L). */
import { givenUp, MAX_ROUNDS } from "./allocation.ts";
import { certify } from "./certificate.ts";
import { list, names, object, oneOf, real, whole } from "./checks.ts";
import { atLeast, atMost } from "./crowd.ts";
import { NoCertificateError, WireError } from "./errors.ts";
import { deltaOf, type Guarantee, gaussianGuarantee } from "./guarantee.ts";
import { canonical, type Json } from "./json.ts";
import { encodedReach, encodedShift, honestUsers, readPlan, type SumPlan, TAIL_SHARE } from "./plan.ts";
import { coordinatesOf } from "./rotation.ts";

const CHEATS_SHARE = 0.01;
const BATCH_SHARE = 0.01;
// What Theorem E may give up, before it is carried through the lots.
const SPARE_SHARE = 1e-4;
const OWN = ["epsilon", "delta", "users", "rounds", "honest", "neighbours", "one_round"];
const DERIVED = ["opening", "turnout", "blanks", "size", "users_in_round", "overflow", "noise_std", "open_noise_std", "bits_per_user", "certified_delta", "guarantee"];

export interface LotsPlan {
  epsilon: number;
  delta: number;
  users: number;
  rounds: number;
  honest: number;
  neighbours: "replace-one" | "zero-out";
  /** The fraction of users that comes whichever round it draws; what holds to a watcher counts on it. */
  turnout: number;
  /** The most blanks in a round, where an enroller counts them; null where nobody does. */
  blanks: number | null;
  /** All rounds in their order, by what they ask: those of the openings, and the others. */
  stages: Stage[];
  guarantee: Guarantee;
}

export interface Stage {
  rounds: number;
  plan: SumPlan;
}

/** Read secret lots whose rounds have these plans, as they stand in the phases beside them. */
export function readLots(value: Json | undefined, phasePlans: readonly (Json | undefined)[]): LotsPlan {
  const words = object("lots", value);
  names("lots", words, OWN, DERIVED);
  const facts = {
    epsilon: real("lots.epsilon", words.get("epsilon"), { above: 0 }),
    delta: real("lots.delta", words.get("delta"), { above: 0, below: 1 }),
    users: whole("lots.users", words.get("users"), { atLeast: 1, atMost: 1e12 }),
    rounds: whole("lots.rounds", words.get("rounds"), { atLeast: 1, atMost: MAX_ROUNDS }),
    honest: real("lots.honest", words.get("honest"), { above: 0, atMost: 1 }),
    neighbours: oneOf("lots.neighbours", words.get("neighbours"), ["replace-one", "zero-out"] as const),
    turnout: words.has("turnout") ? real("lots.turnout", words.get("turnout"), { above: 0, atMost: 1 }) : 1,
    blanks: words.has("blanks") ? whole("lots.blanks", words.get("blanks"), { atLeast: 1, atMost: 1e6 }) : null,
  };
  const opening = (words.has("opening") ? list("lots.opening", words.get("opening")) : []).map((stage) => object("lots.opening", stage));
  for (const stage of opening) names("lots.opening", stage, ["rounds", "plan"]);
  const counts = opening.map((stage) => whole("lots.opening.rounds", stage.get("rounds"), { atLeast: 1 }));
  const last = facts.rounds - counts.reduce((sum, rounds) => sum + rounds, 0);
  if (last < 1) throw new WireError("secret lots whose openings have all of their rounds");
  const plans = [...opening.map((stage) => stage.get("plan")), words.get("one_round")];
  const same = plans.length === phasePlans.length && plans.every((plan, place) => phasePlans[place] !== undefined && canonical(plan as Json) === canonical(phasePlans[place] as Json));
  if (!same) throw new WireError("secret lots whose rounds have another plan than the phase");
  const stages = plans.map((plan, place) => ({ rounds: counts[place] ?? last, plan: readPlan(plan) }));
  const size = stages[stages.length - 1].plan.users;
  for (const { plan } of stages) {
    if (plan.neighbours !== "zero-out" || plan.rounds !== 1 || plan.diameter !== null) throw new WireError("secret lots whose rounds are not about a blank");
    if (plan.users !== size) throw new WireError("secret lots whose rounds have different sizes, which would tell about them");
  }
  if (facts.blanks !== null && facts.blanks >= size) throw new WireError("secret lots whose rounds may be all blanks");
  try {
    const plan = { ...facts, stages, guarantee: promised(facts, stages) };
    if (deltaOf(plan.guarantee, plan.epsilon) > plan.delta) throw new WireError("secret lots whose delta is not proved");
    return plan;
  } catch (problem) {
    if (problem instanceof NoCertificateError) throw new WireError(`secret lots without a proof: ${problem.message}`);
    throw problem;
  }
}

/** Where rounds have blocks, a lot is a round and a block. */
export const lotsOf = (stages: readonly { rounds: number; plan: Pick<SumPlan, "blocks"> }[]): number => stages.reduce((sum, { rounds, plan }) => sum + rounds * plan.blocks, 0);

/** A smaller shift is a post-processing of a larger one: the largest mu holds in every round, and the windows of all rounds add up. */
function promised({ rounds: _, ...asked }: Omit<LotsPlan, "stages" | "guarantee">, stages: readonly Stage[]): Guarantee {
  const lots = lotsOf(stages);
  if (lots > MAX_ROUNDS) throw new WireError("secret lots that are more than can be proved");
  const facts = { ...asked, lots };
  const { users, honest, neighbours, delta } = facts;
  const size = stages[0].plan.users;
  const all = honestUsers({ users, honest });
  const held = size - (all === users ? 0 : cheats(users - all, lots, CHEATS_SHARE * delta, size - 1));
  let [mu, residue, windows] = [0, 0, 0];
  for (const { rounds, plan } of stages) {
    const dim = coordinatesOf(plan);
    const certificate = certify(
      {
        trials: Math.min(honestUsers(plan), held) * plan.noiseBits,
        probability: plan.noiseProbability,
        shift: encodedShift(plan, "zero-out"),
        reach: encodedReach(plan, neighbours), // two reports and a blank have one window
        dim,
      },
      (TAIL_SHARE * delta) / (2 * lots * dim),
      SPARE_SHARE * delta,
    );
    [mu, residue] = [Math.max(mu, certificate.mu), Math.max(residue, certificate.residue)];
    windows += rounds * plan.blocks * dim * certificate.tau * (neighbours === "zero-out" ? 1 : 2);
  }
  const allocation = { mu, rounds: lots };
  const overflow = Math.min(1, lots * atLeast(size, users - 1, lots));
  const short = facts.blanks === null ? 0 : shortage(facts, size - facts.blanks);
  const slack = Math.min(1, (windows + overflow + short + (honest < 1 ? CHEATS_SHARE * delta : 0) + givenUp(allocation, residue, neighbours)) * (1 + 1e-12));
  const excluded = Math.max(0, held - Math.max(...stages.map(({ plan }) => honestUsers(plan))));
  const watched = ifWatched(facts, stages, overflow, excluded, size - held);
  return { mu: 0, slack, neighbours, allocation, watched };
}

type Facts = Omit<LotsPlan, "stages" | "guarantee" | "rounds"> & { lots: number };

/** What holds against an attacker who also knows when each user answered, and which block: one round with the noise of those of the same lot, the worst of all. */
function ifWatched(facts: Facts, stages: readonly Stage[], overflow: number, excluded: number, crowded: number): Guarantee {
  let chance = BATCH_SHARE * facts.delta;
  const { users, honest, turnout } = facts;
  // whoever stays away may be honest, and all cheats may come
  const all = Math.max(1, honestUsers({ users, honest }) + honestUsers({ users, honest: turnout }) - users);
  let few = -1;
  let many = all - 1;
  while (many - few > 1) {
    const middle = Math.floor((few + many) / 2);
    if (atMost(middle, all - 1, facts.lots) <= chance) few = middle;
    else many = middle;
  }
  let counted = few + 2;
  if (facts.blanks !== null) {
    // a shuffler that lets nobody in whom it can replace: all are people but the blanks, and few are cheats
    counted = Math.min(counted, stages[0].plan.users - facts.blanks - crowded);
    chance += honest < 1 ? CHEATS_SHARE * facts.delta : 0;
  }
  try {
    let [mu, windows, residue] = [0, 0, 0];
    for (const { plan } of stages) {
      const dim = coordinatesOf(plan);
      const certificate = certify(
        {
          trials: Math.max(1, counted - excluded) * plan.noiseBits, // so many honest reports may be left out
          probability: plan.noiseProbability,
          shift: encodedShift(plan, facts.neighbours),
          reach: encodedReach(plan, facts.neighbours),
          dim,
        },
        (TAIL_SHARE * facts.delta) / dim,
        SPARE_SHARE * facts.delta,
      );
      [mu, windows, residue] = [Math.max(mu, certificate.mu), Math.max(windows, dim * certificate.tau), Math.max(residue, certificate.residue)];
    }
    return gaussianGuarantee(mu, chance + windows + residue + (Math.min(honest, turnout) < 1 ? overflow : 0), facts.neighbours);
  } catch (problem) {
    if (problem instanceof NoCertificateError) return gaussianGuarantee(0, 1, facts.neighbours);
    throw problem;
  }
}

/** Upper bound on the probability that fewer than `least` of the others come to some round. */
function shortage({ users, turnout, lots }: Facts, least: number): number {
  return Math.min(1, lots * atMost(least - 1, honestUsers({ users, honest: turnout }) - 1, lots));
}

/** Cheats in any one round, at most, but for probability `chance`. */
function cheats(total: number, rounds: number, chance: number, most: number): number {
  let low = -1;
  let high = total;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (rounds * atLeast(middle + 1, total, rounds) <= chance) high = middle;
    else low = middle;
  }
  return Math.min(most, high);
}
