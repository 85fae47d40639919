/** What a task minimises, and what a user's rows say in a round: a gradient, or in first rounds something of the rows themselves. */
import { fromHex } from "./bytes.ts";
import { names, object, real, text } from "./checks.ts";
import { dot } from "./encoding.ts";
import { RecordError, WireError } from "./errors.ts";
import type { Json } from "./json.ts";
import { focused, type Loss, readDomain, readLoss, TINY } from "./losses.ts";
import type { Pieces } from "./pieces.ts";

export interface Problem {
  loss: Loss;
  dim: number;
  /** Columns of a row, the constant included. */
  features: number;
  featureNorm: number;
  l2: number;
  /** The last entry of every row, where rounds ask about rows; 0 where that is not said. */
  constant: number;
}

export function readProblem(value: Json | undefined): Problem {
  const words = object("problem", value);
  names("problem", words, ["loss", "domain", "feature_norm", "l2"], ["constant"]);
  const loss = readLoss(words.get("loss"));
  const domain = readDomain(words.get("domain"));
  const featureNorm = real("feature_norm", words.get("feature_norm"), { above: 0, atMost: 1e100 });
  const l2 = real("l2", words.get("l2"), { atLeast: 0 });
  const constant = words.has("constant") ? real("constant", words.get("constant"), { above: 1e-100, below: featureNorm }) : 0;
  if (domain.dim % loss.outputs !== 0) throw new WireError("a domain whose dimension is no multiple of the loss's outputs");
  const lipschitz = loss.slopeBound(featureNorm * domain.normBound) * featureNorm + (l2 > 0 ? l2 * domain.normBound : 0);
  if (!Number.isFinite(lipschitz)) throw new WireError("a problem whose gradients have no public bound");
  return { loss, dim: domain.dim, features: domain.dim / loss.outputs, featureNorm, l2, constant };
}

/** One row of features as the problem has them (the constant included), and its label or target. */
export interface Row {
  x: Float64Array;
  y: number;
}

/** The row, scaled down to the norm where it is longer by more than a part in a million. */
export function scaledDown(x: Float64Array, norm: number): Float64Array {
  if (Math.sqrt(dot(x, x)) <= norm * (1 + 1e-6)) return x;
  const peak = x.reduce((most, entry) => Math.max(most, Math.abs(entry)), 0);
  const inverse = 1 / peak;
  const shrunk = x.map((entry) => entry * inverse); // squares of huge numbers overflow
  const factor = norm / Math.sqrt(dot(shrunk, shrunk));
  return shrunk.map((entry) => entry * factor);
}

/** The gradient of one row's loss at theta, or of its envelope of this smoothing; null where the row or label is not valid. */
export function gradient(problem: Problem, theta: Float64Array, { x, y }: Row, smoothing: number | null): Float64Array | null {
  const { loss, features, l2 } = problem;
  const targets = loss.targets(y);
  if (x.length !== features) throw new RecordError(`a row of ${x.length} numbers where the task has ${features}`);
  if (targets === null || !x.every(Number.isFinite)) return null;
  const row = scaledDown(x, problem.featureNorm);
  const total = (smoothing ?? 0) + l2;
  const point = smoothing === null ? theta : theta.map((entry) => entry * (smoothing / total));
  const scores = Array.from({ length: loss.outputs }, (_, k) => dot(row, point.subarray(k * features, (k + 1) * features)));
  let slopes: number[];
  if (smoothing === null) {
    slopes = loss.slope(scores, targets);
  } else {
    const q = Math.max(dot(row, row) / total, 2.2250738585072014e-308);
    slopes = loss.proxSlope(scores, targets, q).map((slope) => (smoothing / total) * slope);
  }
  const made = new Float64Array(problem.dim);
  slopes.forEach((slope, k) => {
    for (let place = 0; place < features; place += 1) made[k * features + place] = slope * row[place];
  });
  return l2 > 0 ? made.map((entry, place) => entry + l2 * point[place]) : made;
}

/** A linear map of rows that earlier rounds have found: x = turn (u - centre u_last / constant), a factor for each column or a matrix, whose missing rows are 0. */
export interface Coordinates {
  turn: Float64Array;
  centre: Float64Array | null;
  /** Of two classes, how much less people count whose odds are far from even. */
  focus: number;
}

/** Numbers in single precision, little endian, as hex digits; finite ones. */
function readSingles(name: string, value: Json | undefined): Float64Array {
  const bytes = fromHex(text(name, value));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length % 4 !== 0) throw new WireError(`a round whose ${name} is not made of numbers`);
  const numbers = Float64Array.from({ length: bytes.length / 4 }, (_, place) => view.getFloat32(4 * place, true));
  if (!numbers.every(Number.isFinite)) throw new WireError(`a round whose ${name} is not finite`);
  return numbers;
}

export function readCoordinates(value: Json | undefined, { features, constant }: Problem): Coordinates {
  const words = object("coordinates", value);
  names("coordinates", words, ["turn"], ["centre", "focus"]);
  const turn = readSingles("coordinates.turn", words.get("turn"));
  const centre = words.has("centre") ? readSingles("coordinates.centre", words.get("centre")) : null;
  const fits = turn.length > 0 && turn.length % features === 0 && turn.length <= features ** 2;
  if (!fits || (centre !== null && (centre.length !== features || constant === 0))) throw new WireError(`a round with coordinates of other rows than the task's, which have ${features} columns`);
  const focus = words.has("focus") ? real("focus", words.get("focus"), { above: 0, atMost: 1 }) : 0;
  return { turn, centre, focus };
}

function seenIn({ turn, centre }: Pick<Coordinates, "turn" | "centre">, constant: number, row: Float64Array): Float64Array {
  const along = centre === null ? 0 : row[row.length - 1] / constant;
  const moved = centre === null ? row : row.map((entry, place) => entry - along * centre[place]);
  if (turn.length === row.length) return moved.map((entry, place) => entry * turn[place]);
  return row.map((_, place) => (place * row.length < turn.length ? dot(moved, turn.subarray(place * row.length, (place + 1) * row.length)) : 0));
}

/** What the rounds of a phase ask, where phases ask different questions. */
export interface Stage {
  /** Of rows ("mean", "spread", "moments"), or of gradients. */
  algorithm: string;
  /** The part of a row's squared length that the constant has. */
  share: number;
  /** What gradients are shortened to. */
  norm: number;
}

/** The part of a row's squared length that the target has beside it; and of its own that a row has beside its squares. */
const TARGET_SHARE = 0.3;
const MEAN_SHARE = 0.3;

/** Coordinates of a vector of such a round. */
export function stageDim({ loss, features, constant, dim }: Problem, { algorithm }: Pick<Stage, "algorithm">): number {
  if (algorithm === "mean") return features - (constant > 0 ? 1 : 0);
  if (algorithm === "spread") return 2 * features;
  const columns = features + (loss.targetBound === undefined ? 0 : 1);
  return algorithm === "moments" ? (columns * (columns + 1)) / 2 : dim;
}

const length = (numbers: number[]): number => Math.sqrt(numbers.reduce((sum, one) => sum + one * one, 0));

/** What one row says in a round of a stage; null where the row or label is not valid. */
export function stageVector(problem: Problem, stage: Stage, theta: Float64Array, coordinates: Coordinates | null, { x, y }: Row): Float64Array | null {
  const { loss, features, featureNorm, constant } = problem;
  const targets = loss.targets(y);
  if (x.length !== features) throw new RecordError(`a row of ${x.length} numbers where the task has ${features}`);
  if (targets === null || !x.every(Number.isFinite)) return null;
  const row = scaledDown(x, featureNorm);
  if (coordinates !== null) {
    const seen = seenIn(coordinates, constant, row);
    const limit = stage.norm / Math.sqrt(Math.max(dot(seen, seen), TINY));
    const scores = Array.from({ length: loss.outputs }, (_, k) => dot(row, theta.subarray(k * features, (k + 1) * features)));
    // one factor for all labels, or what is too long alone, except for the constant: so classes stay as likely as frequent
    const alike = stage.algorithm !== "acsa";
    const slopes = loss.cappedSlope(scores, targets, alike ? limit : Infinity);
    const odds = coordinates.focus > 0 ? focused(scores[0], coordinates.focus) : 1;
    const factor = alike ? odds : limit / Math.max(limit, length(slopes));
    if (!alike && coordinates.centre !== null) {
      const left = length(loss.cappedSlope(scores, targets, limit)) / Math.max(Math.min(limit, length(slopes)), TINY);
      seen[features - 1] *= Math.min(left, 1);
    }
    return Float64Array.from(slopes.flatMap((slope) => Array.from(seen, (entry) => slope * factor * entry)));
  }
  const reach = constant > 0 ? Math.sqrt(1 - stage.share) / Math.sqrt(featureNorm ** 2 - constant ** 2) : 1 / featureNorm;
  const scaled = scaledDown(row.map((entry, place) => entry * (constant > 0 && place === features - 1 ? Math.sqrt(stage.share) / constant : reach)), 1);
  if (stage.algorithm === "mean") {
    const back = Math.sqrt(1 - stage.share);
    return scaledDown(scaled.slice(0, stageDim(problem, stage)).map((entry) => entry / back), 1);
  }
  if (stage.algorithm === "spread") {
    return Float64Array.from({ length: 2 * features }, (_, place) => {
      const entry = scaled[place % features];
      return place < features ? Math.sqrt(MEAN_SHARE) * entry : Math.sqrt(1 - MEAN_SHARE) * entry * entry;
    });
  }
  let sent = scaled;
  if (loss.targetBound !== undefined) {
    const there = scaled.some((entry) => entry !== 0); // a row of zeros stands for a record that is not valid
    const target = there ? Math.min(Math.max(targets[0] / loss.targetBound, -1), 1) : 0;
    sent = Float64Array.of(...scaled.map((entry) => Math.sqrt(1 - TARGET_SHARE) * entry), Math.sqrt(TARGET_SHARE) * target);
  }
  const made = new Float64Array((sent.length * (sent.length + 1)) / 2);
  let place = 0;
  for (let first = 0; first < sent.length; first += 1) {
    for (let second = first; second < sent.length; second += 1) made[place++] = sent[first] * sent[second] * (first === second ? 1 : Math.SQRT2);
  }
  return made;
}

/** The mean of what rows say in a round of a stage; a row that is not valid says nothing, or is refused. */
export function* meanStage(problem: Problem, stage: Stage, theta: Float64Array, coordinates: Coordinates | null, rows: Iterable<Row>, blanks: boolean): Pieces<Float64Array> {
  const sum = new Float64Array(stageDim(problem, stage));
  let count = 0;
  for (const row of rows) {
    const one = stageVector(problem, stage, theta, coordinates, row);
    if (one === null && !blanks) throw new RecordError("a record whose numbers or target the task does not take; nothing was sent");
    for (let place = 0; one !== null && place < sum.length; place += 1) sum[place] += one[place];
    count += 1;
    yield;
  }
  if (count === 0) throw new RecordError("at least one record is needed");
  return sum.map((entry) => entry / count);
}

/**
 * The mean of the rows' gradients. With `blanks` a row that is not valid has the gradient of a blank (0, and the regulariser's);
 * without, it is refused.
 */
export function* meanGradient(
  problem: Problem,
  theta: Float64Array,
  rows: Iterable<Row>,
  smoothing: number | null,
  blanks: boolean,
): Pieces<Float64Array> {
  const sum = new Float64Array(problem.dim);
  let count = 0;
  for (const row of rows) {
    const one = gradient(problem, theta, row, smoothing);
    if (one === null && !blanks) throw new RecordError("a record whose numbers or target the task does not take; nothing was sent");
    const made = one ?? blankGradient(problem, theta, smoothing);
    for (let place = 0; place < sum.length; place += 1) sum[place] += made[place];
    count += 1;
    yield;
  }
  if (count === 0) throw new RecordError("at least one record is needed");
  return sum.map((entry) => entry / count);
}

function blankGradient(problem: Problem, theta: Float64Array, smoothing: number | null): Float64Array {
  if (problem.l2 === 0) return new Float64Array(problem.dim);
  const part = smoothing === null ? 1 : smoothing / (smoothing + problem.l2);
  return theta.map((entry) => problem.l2 * (entry * part));
}
