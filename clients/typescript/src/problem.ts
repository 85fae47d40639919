/** What a task minimises, and the gradient of a user's rows: what is clipped and randomized. */
import { names, object, real } from "./checks.ts";
import { dot } from "./encoding.ts";
import { RecordError, WireError } from "./errors.ts";
import type { Json } from "./json.ts";
import { type Loss, readDomain, readLoss } from "./losses.ts";

export interface Problem {
  loss: Loss;
  dim: number;
  /** Columns of a row, the constant included. */
  features: number;
  featureNorm: number;
  l2: number;
}

export function readProblem(value: Json | undefined): Problem {
  const words = object("problem", value);
  names("problem", words, ["loss", "domain", "feature_norm", "l2"]);
  const loss = readLoss(words.get("loss"));
  const domain = readDomain(words.get("domain"));
  const featureNorm = real("feature_norm", words.get("feature_norm"), { above: 0, atMost: 1e100 });
  const l2 = real("l2", words.get("l2"), { atLeast: 0 });
  if (domain.dim % loss.outputs !== 0) throw new WireError("a domain whose dimension is no multiple of the loss's outputs");
  const lipschitz = loss.slopeBound(featureNorm * domain.normBound) * featureNorm + (l2 > 0 ? l2 * domain.normBound : 0);
  if (!Number.isFinite(lipschitz)) throw new WireError("a problem whose gradients have no public bound");
  return { loss, dim: domain.dim, features: domain.dim / loss.outputs, featureNorm, l2 };
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

/**
 * The mean of the rows' gradients. With `blanks` a row that is not valid has the gradient of a blank (0, and the regulariser's);
 * without, it is refused.
 */
export function meanGradient(
  problem: Problem,
  theta: Float64Array,
  rows: readonly Row[],
  smoothing: number | null,
  blanks: boolean,
): Float64Array {
  if (rows.length === 0) throw new RecordError("at least one record is needed");
  const sum = new Float64Array(problem.dim);
  for (const row of rows) {
    const one = gradient(problem, theta, row, smoothing);
    if (one === null && !blanks) throw new RecordError("a record whose numbers or target the task does not take; nothing was sent");
    const made = one ?? blankGradient(problem, theta, smoothing);
    for (let place = 0; place < sum.length; place += 1) sum[place] += made[place];
  }
  return sum.map((entry) => entry / rows.length);
}

function blankGradient(problem: Problem, theta: Float64Array, smoothing: number | null): Float64Array {
  if (problem.l2 === 0) return new Float64Array(problem.dim);
  const part = smoothing === null ? 1 : smoothing / (smoothing + problem.l2);
  return theta.map((entry) => problem.l2 * (entry * part));
}
