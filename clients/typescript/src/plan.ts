/** The plan of a round: read from its words, and proved anew. No figure in it is believed. */
import { certify } from "./certificate.ts";
import { flag, names, object, oneOf, real, text, whole } from "./checks.ts";
import { NoCertificateError, WireError } from "./errors.ts";
import { deltaOf, type Guarantee, gaussianGuarantee, repeated } from "./guarantee.ts";
import { type Json, type JsonObject } from "./json.ts";
import { paperGuarantee } from "./paper.ts";
import { blockNorm, coordinatesOf, paddedLength } from "./rotation.ts";

export const TAIL_SHARE = 0.01;
/** Of that, what a round may give up for Theorem E. */
const SPARE_PART = 0.1;
// What another processor's last digits may differ by in a claim, which is thrown away for the figure proved here.
const TOLERANCE = 1e-6;

// A report says its bits a coordinate in 4 bytes.
const MOST_MESSAGES = 2 ** 32 - 1;

const REQUEST = [
  "epsilon",
  "delta",
  "users",
  "dim",
  "norm",
  "honest",
  "rounds",
  "neighbours",
  "calibration",
  "max_inflation",
  "max_bits",
  "scalar",
] as const;
const OWN = [...REQUEST, "levels", "noise_bits", "noise_probability", "mu", "slack", "pure_epsilon", "theorem"];
// Figures that follow from the others: not looked at, least of all `honest_users`.
const DERIVED = [
  "honest_users",
  "bits_per_coordinate",
  "bits_per_user",
  "noise_std",
  "central_noise_std",
  "inflation",
  "certified_delta",
  "padded",
  "coordinates",
  "bias_bound",
  "bias_rms",
];

export interface SumPlan {
  epsilon: number;
  delta: number;
  users: number;
  dim: number;
  norm: number;
  honest: number;
  rounds: number;
  neighbours: "replace-one" | "zero-out";
  levels: number;
  noiseBits: number;
  noiseProbability: number;
  /** How far two users' vectors may be apart; null for twice the norm. Only a question's plan has one: its own code keeps it. */
  diameter: number | null;
  /** With a rotation, what coordinates are clipped to, in norms; null where vectors are encoded as they are. */
  range: number | null;
  /** With a rotation and secret lots, the blocks that a rotated vector is cut into, of which a user sends one; 1: the whole vector. */
  blocks: number;
  /** Proved here, for a user who takes part in all rounds. */
  guarantee: Guarantee;
}

export const messagesOf = (plan: SumPlan): number => plan.levels + plan.noiseBits;

/** Honest users that the proof counts on: ceil(honest * users). Computed, never read. */
export const honestUsers = (plan: { users: number; honest: number }): number =>
  Math.min(plan.users, Math.max(1, Math.ceil(plan.honest * plan.users * (1 - 1e-15))));

type Encoded = Pick<SumPlan, "levels" | "norm" | "diameter" | "dim" | "range" | "blocks">;

/** S of Theorem B: the l2 distance of neighbouring encodings; a rotation divides it by the range, and blocks multiply it by their norm. */
export function encodedShift(plan: Encoded, neighbours: SumPlan["neighbours"]): number {
  const norms = neighbours === "zero-out" ? 1 : (plan.diameter ?? 2 * plan.norm) / plan.norm;
  return norms * blockNorm(plan) * (plan.levels / (2 * (plan.range ?? 1)));
}

/** K: their distance in one coordinate, which moves no further than the whole vector; the part in a million covers what that is off by. */
export const encodedReach = (plan: Encoded, neighbours: SumPlan["neighbours"]): number =>
  neighbours === "zero-out" ? Math.floor((plan.levels + 1) / 2) : Math.min(plan.levels, Math.ceil(encodedShift(plan, neighbours) * (1 + 1e-6)));

/** Coordinates up to which clipping moves no two vectors apart by more than the margin of S covers (accounting, section 6). */
const MOST_COORDINATES = 1e6;

function readDiameter(value: Json | undefined, norm: number, dim: number): number | null {
  if ((value ?? null) === null) return null;
  if (dim > MOST_COORDINATES) throw new WireError("a plan with a diameter and too many coordinates for it");
  return real("diameter", value, { atLeast: norm, atMost: 2 * norm });
}

const MOST_RANGE = 1e6;

function readRange(value: Json | undefined, dim: number): number | null {
  if ((value ?? null) === null) return null;
  if (dim > MOST_COORDINATES) throw new WireError("a plan with a rotation and too many coordinates for it");
  return real("range", value, { above: 0, atMost: MOST_RANGE });
}

function readBlocks(value: Json | undefined, dim: number, range: number | null, diameter: number | null): number {
  if (value === undefined) return 1;
  const blocks = whole("blocks", value, { atLeast: 2, atMost: paddedLength(dim) });
  if (range === null || diameter !== null || !Number.isInteger(Math.log2(blocks))) throw new WireError("a plan with blocks that no rotated vector is cut into");
  return blocks;
}

export function readPlan(value: Json | undefined): SumPlan {
  const words: JsonObject = object("plan", value);
  names("plan", words, OWN, ["diameter", "range", "blocks", "answers", ...DERIVED]);
  const requested = {
    epsilon: real("epsilon", words.get("epsilon"), { above: 0 }),
    delta: real("delta", words.get("delta"), { above: 0, below: 1 }),
    users: whole("users", words.get("users"), { atLeast: 1, atMost: 1e12 }),
    dim: whole("dim", words.get("dim"), { atLeast: 1, atMost: 2 ** 22 }),
    norm: real("norm", words.get("norm"), { above: 1e-100, below: 1e100 }),
    honest: real("honest", words.get("honest"), { above: 0, atMost: 1 }),
    rounds: whole("rounds", words.get("rounds"), { atLeast: 1, atMost: 1e9 }),
    neighbours: oneOf("neighbours", words.get("neighbours"), ["replace-one", "zero-out"] as const),
    levels: whole("levels", words.get("levels"), { atLeast: 1, atMost: 2 ** 31 }),
    noiseBits: whole("noise_bits", words.get("noise_bits"), { atLeast: 1, atMost: 1e12 }),
    noiseProbability: real("noise_probability", words.get("noise_probability"), { above: 0, below: 1 }),
  };
  const diameter = readDiameter(words.get("diameter"), requested.norm, requested.dim);
  const range = readRange(words.get("range"), requested.dim);
  const facts = { ...requested, diameter, range, blocks: readBlocks(words.get("blocks"), requested.dim, range, diameter) };
  if ((words.get("answers") ?? null) !== null) whole("answers", words.get("answers"), { atLeast: 1, atMost: facts.dim });
  real("max_inflation", words.get("max_inflation"), { above: 1 });
  const maxBits = (words.get("max_bits") ?? null) === null ? null : whole("max_bits", words.get("max_bits"), { atLeast: 2, atMost: 2 ** 31 });
  const scalar = flag("scalar", words.get("scalar"));
  if (scalar && facts.dim !== 1) throw new WireError("a scalar plan of several coordinates");
  const calibration = oneOf("calibration", words.get("calibration"), ["tight", "paper", "paper-scaled"] as const);
  if (calibration !== "tight" && facts.diameter !== null) throw new WireError("a plan by the paper's calibration with a diameter");
  if ((calibration !== "tight" || scalar) && facts.range !== null) throw new WireError("a plan of numbers, or by the paper's calibration, with a rotation");
  if (facts.range !== null && facts.noiseProbability !== 0.5) throw new WireError("a plan with a rotation whose noise bits are not fair");
  text("theorem", words.get("theorem"));
  const claimed = [
    (words.get("mu") ?? null) === null ? 0 : real("mu", words.get("mu"), { above: 0 }),
    real("slack", words.get("slack"), { atLeast: 0, below: 1 }),
    real("pure_epsilon", words.get("pure_epsilon"), { atLeast: 0 }),
  ];
  const guarantee = withoutProof(() => (calibration === "tight" ? proved(facts) : paperGuarantee({ ...facts, calibration, scalar, maxBits })));
  const plan = { ...facts, guarantee };
  const figures = [guarantee.mu, guarantee.slack, guarantee.pure?.epsilon ?? 0];
  if (!figures.every((figure, place) => claimed[place] >= figure * (1 - TOLERANCE))) {
    throw new WireError("a plan that claims more than is proved of its parameters");
  }
  if (deltaOf(plan.guarantee, plan.epsilon) > plan.delta) throw new WireError("a plan whose delta is not proved");
  if (messagesOf(plan) > MOST_MESSAGES) throw new WireError(`a plan with ${messagesOf(plan)} bits a coordinate, more than a report can say`);
  return plan;
}

function withoutProof<Result>(prove: () => Result): Result {
  try {
    return prove();
  } catch (problem) {
    if (problem instanceof NoCertificateError) throw new WireError(`a plan without a proof: ${problem.message}`);
    throw problem;
  }
}

function proved(facts: Omit<SumPlan, "guarantee">): Guarantee {
  const { neighbours, rounds } = facts;
  const dim = coordinatesOf(facts);
  const certificate = certify(
    {
      trials: facts.noiseBits * honestUsers(facts),
      probability: facts.noiseProbability,
      shift: encodedShift(facts, neighbours),
      reach: encodedReach(facts, neighbours),
      dim,
    },
    (TAIL_SHARE * facts.delta) / (dim * rounds),
    (SPARE_PART * TAIL_SHARE * facts.delta) / rounds,
  );
  return repeated(gaussianGuarantee(certificate.mu, dim * certificate.tau + certificate.residue, neighbours), rounds);
}
