/** The losses of tasks, by the names and parameters of the Python package. All are functions of scores z = <theta, x>. */
import { list, names, object, oneOf, real, text, whole } from "./checks.ts";
import { WireError } from "./errors.ts";
import { type Json, JsonNumber } from "./json.ts";

/** A convex loss of a linear model with `outputs` scores a row; `target` is what `targets` makes of a label. */
export interface Loss {
  kind: string;
  outputs: number;
  /** The targets of a label as the other functions take it, one a score; null where the loss does not take the label. */
  targets(label: number): number[] | null;
  /** The derivative in the scores. */
  slope(scores: number[], targets: number[]): number[];
  /** The derivative of the Moreau envelope, q = |x|^2 / beta > 0. */
  proxSlope(scores: number[], targets: number[], q: number): number[];
  /** The derivative, shortened to `limit`; of a loss of classes by one factor for every label. */
  cappedSlope(scores: number[], targets: number[], limit: number): number[];
  /** A bound on the norm of the slope, where the norm of the scores is at most this. */
  slopeBound(scoreBound: number): number;
  /** What targets are clipped to, where second moments of rows have them beside the rows. */
  targetBound?: number;
  /** Whether the score is the log-odds of two classes. */
  logOdds?: boolean;
}

const NEWTON_STEPS = 60;
export const expit = (x: number): number => 1 / (1 + Math.exp(-x));

/** How much somebody counts of whom the model has these log-odds: 1 at even odds, 1 - focus far from them. */
export function focused(score: number, focus: number): number {
  const rare = expit(-Math.abs(score));
  const even = 4 * rare * (1 - rare);
  return 1 - focus * (1 - even * even);
}
const clip = (x: number, low: number, high: number): number => Math.min(Math.max(x, low), high);

/** The w > 0 with w + log w = x. */
export function wrightOmega(x: number): number {
  if (x < -40) return Math.exp(x);
  let w = x > 1 ? x - Math.log(x) : x < -1 ? Math.exp(x) : 0.567 + 0.36 * x;
  for (let step = 0; step < NEWTON_STEPS; step += 1) {
    const moved = Math.max((w * (1 + x - Math.log(w))) / (1 + w), w / 10);
    if (Math.abs(moved - w) <= 2e-16 * w) return moved;
    w = moved;
  }
  return w;
}

const length = (slopes: number[]): number => Math.sqrt(slopes.reduce((sum, slope) => sum + slope * slope, 0));
/** The least normal number: what a length is divided by at least. */
export const TINY = 2.2250738585072014e-308;

/** Of a loss without classes: what is too long is shortened. */
const shortened = (slope: (scores: number[], targets: number[]) => number[]): Loss["cappedSlope"] => (scores, targets, limit) => {
  const slopes = slope(scores, targets);
  const factor = Math.min(1, limit / Math.max(length(slopes), TINY));
  return slopes.map((one) => one * factor);
};

type Single = (z: number, y: number) => number;
type SingleProx = (z: number, y: number, q: number) => number;

const margin = (kind: string, slope: Single, prox: SingleProx, bound: (b: number) => number): Loss => ({
  kind,
  outputs: 1,
  targets: (label) => (label === 1 ? [1] : label === 0 || label === -1 ? [-1] : null),
  slope: ([z], [y]) => [slope(z, y)],
  logOdds: kind.endsWith("Logistic"),
  // the slopes of the two labels are as long as s and 1 - s: the longer one decides for both
  cappedSlope: kind.endsWith("Logistic")
    ? ([z], [y], limit) => [-y * expit(-y * z) * Math.min(1, limit / expit(Math.abs(z)))]
    : shortened(([z], [y]) => [slope(z, y)]),
  proxSlope: ([z], [y], q) => [prox(z, y, q)],
  slopeBound: bound,
});

const residual = (kind: string, slope: Single, prox: SingleProx, bound: (b: number) => number, most = Infinity): Loss => ({
  kind,
  outputs: 1,
  targets: (label) => (Number.isFinite(label) ? [clip(label, -most, most)] : null),
  slope: ([z], [y]) => [slope(z, y)],
  cappedSlope: shortened(([z], [y]) => [slope(z, y)]),
  ...(kind === "Squared" && { targetBound: most }),
  proxSlope: ([z], [y], q) => [prox(z, y, q)],
  slopeBound: bound,
});

function logisticProx(z: number, y: number, q: number): number {
  // the margin w at the prox solves w = m + q s(-w), s the sigmoid
  const m = y * z;
  let low = m;
  let high = m + Math.min(q, wrightOmega(Math.log(q) - m));
  let w = high;
  for (let step = 0; step < NEWTON_STEPS; step += 1) {
    const excess = w - m - q * expit(-w);
    if (excess < 0) low = w;
    else high = w;
    const newton = w - excess / (1 + q * expit(w) * expit(-w));
    const moved = newton >= low && newton <= high ? newton : (low + high) / 2;
    if (Math.abs(moved - w) <= 1e-15 * (1 + Math.abs(w))) break;
    w = moved;
  }
  return -y * expit(-w);
}

function softmax(scores: number[]): number[] {
  const most = Math.max(...scores);
  const parts = scores.map((z) => Math.exp(z - most));
  const sum = parts.reduce((a, b) => a + b, 0);
  return parts.map((part) => part / sum);
}

/** The length of p - e_k, for the class k for which it is longest. */
function longest(p: number[]): number {
  const squares = p.reduce((sum, part) => sum + part * part, 0);
  return Math.sqrt(Math.max(squares - 2 * Math.min(...p) + 1, 0));
}

function multinomial(classes: number): Loss {
  return {
    kind: "Multinomial",
    outputs: classes,
    targets: (label) =>
      Number.isInteger(label) && label >= 0 && label < classes ? Array.from({ length: classes }, (_, k) => Number(k === label)) : null,
    slope: (scores, targets) => softmax(scores).map((p, k) => p - targets[k]),
    cappedSlope(scores, targets, limit) {
      const p = softmax(scores);
      const factor = Math.min(1, limit / longest(p));
      return p.map((part, k) => (part - targets[k]) * factor);
    },
    proxSlope(raw, targets, q) {
      // q p_j = omega(z_j + k), for the label's class omega(z_y + q + k); one k makes the p_j add up
      const most = Math.max(...raw);
      const scores = raw.map((z) => z - most);
      let k = Math.log(q) - Math.max(...scores.map((z, j) => (targets[j] > 0 ? z : z - q)));
      for (let step = 0; step < NEWTON_STEPS; step += 1) {
        let surplus = 0;
        let slope = 0;
        scores.forEach((z, j) => {
          const right = targets[j] > 0;
          const omega = wrightOmega((right ? z + q : z) + k);
          surplus += right ? (omega < 1 ? omega - q : z + k - Math.log(omega)) : omega;
          slope += omega / (1 + omega);
        });
        const move = surplus / slope;
        if (Math.abs(move) <= 1e-15 * (1 + Math.abs(k))) break;
        k -= move;
      }
      const wrong = scores.map((z, j) => (targets[j] > 0 ? 0 : wrightOmega(z + k) / q));
      const sum = wrong.reduce((a, b) => a + b, 0);
      return wrong.map((p, j) => p - targets[j] * sum);
    },
    slopeBound(scoreBound) {
      const apart = Math.SQRT2 * scoreBound;
      const others = Math.log(classes - 1);
      const off = expit(apart + others);
      return Math.sqrt(off * (off + Math.min(off, expit(apart - others))));
    },
  };
}

/** The slopes scaled down to the length that they have at most at theta = 0, by one factor for every label. */
function cappedMultinomial(classes: number): Loss {
  const loss = multinomial(classes);
  const bound = Math.sqrt(1 - 1 / classes);
  const factor = (scores: number[]): number => bound / Math.max(bound, longest(softmax(scores)));
  return {
    ...loss,
    kind: "CappedMultinomial",
    slope: (scores, targets) => loss.slope(scores, targets).map((slope) => slope * factor(scores)),
    proxSlope: (scores, targets, q) => loss.proxSlope(scores, targets, q).map((slope) => slope * factor(scores)),
    slopeBound: () => bound,
  };
}

function weighted(loss: Loss, weights: number[]): Loss {
  const isMargin = ["Logistic", "CappedLogistic", "Hinge", "SmoothedHinge", "SquaredHinge"].includes(loss.kind);
  if (weights.length !== (loss.outputs > 1 ? loss.outputs : isMargin ? 2 : 0)) {
    throw new WireError("weights that are not one for each class of a loss that has classes");
  }
  const of = (targets: number[]): number =>
    loss.outputs > 1 ? targets.reduce((sum, target, k) => sum + target * weights[k], 0) : weights[targets[0] > 0 ? 1 : 0];
  return {
    kind: "Weighted",
    outputs: loss.outputs,
    logOdds: loss.logOdds,
    targets: loss.targets,
    slope: (scores, targets) => loss.slope(scores, targets).map((s) => s * of(targets)),
    proxSlope: (scores, targets, q) => loss.proxSlope(scores, targets, q * of(targets)).map((s) => s * of(targets)),
    // with the largest weight within the limit, and the factor the same for every label
    cappedSlope: (scores, targets, limit) => loss.cappedSlope(scores, targets, limit / Math.max(...weights)).map((s) => s * of(targets)),
    slopeBound: (b) => Math.max(...weights) * loss.slopeBound(b),
  };
}

const LOSS_WORDS: Record<string, string[]> = {
  SmoothedHinge: ["width"],
  Multinomial: ["classes"],
  CappedMultinomial: ["classes"],
  Squared: ["target_bound"],
  Huber: ["kappa"],
  Pinball: ["quantile"],
  EpsilonInsensitive: ["width"],
  Weighted: ["loss", "weights"],
};

const DOMAIN_WORDS = {
  Ball: ["radius", "center"],
  Box: ["lower", "upper"],
  Simplex: ["total"],
  L1Ball: ["radius"],
  WholeSpace: ["distance"],
} as const;

/** A loss by its name and parameters; another name is refused. */
export function readLoss(value: Json | undefined): Loss {
  const words = object("loss", value);
  const kind = text("loss.kind", words.get("kind"));
  names("loss", words, ["kind", ...(LOSS_WORDS[kind] ?? [])]);
  const positive = (name: string, limits = {}): number => real(name, words.get(name), { above: 0, ...limits });
  switch (kind) {
    case "Logistic":
      return margin("Logistic", (z, y) => -y * expit(-y * z), logisticProx, (b) => expit(b));
    case "CappedLogistic":
      return margin(
        "CappedLogistic",
        (z, y) => (-y * Math.exp(-Math.max(y * z, 0))) / 2,
        (z, y, q) => -y * Math.min(0.5, wrightOmega(Math.log(q / 2) - y * z) / q),
        () => 0.5,
      );
    case "Hinge":
      return margin("Hinge", (z, y) => (y * z < 1 ? -y : 0), (z, y, q) => (-y * clip(1 - y * z, 0, q)) / q, () => 1);
    case "SmoothedHinge": {
      const width = positive("width");
      return margin(
        "SmoothedHinge",
        (z, y) => -y * clip((1 - y * z) / width, 0, 1),
        (z, y, q) => -y * clip((1 - y * z) / (width + q), 0, 1),
        (b) => Math.min(1, (1 + b) / width),
      );
    }
    case "SquaredHinge":
      return margin(
        "SquaredHinge",
        (z, y) => -y * Math.max(0, 1 - y * z),
        (z, y, q) => (-y * Math.max(0, 1 - y * z)) / (1 + q),
        (b) => 1 + b,
      );
    case "Multinomial":
      return multinomial(whole("classes", words.get("classes"), { atLeast: 2, atMost: 1e6 }));
    case "CappedMultinomial":
      return cappedMultinomial(whole("classes", words.get("classes"), { atLeast: 2, atMost: 1e6 }));
    case "Squared": {
      const most = positive("target_bound");
      return residual("Squared", (z, y) => z - y, (z, y, q) => (z - y) / (1 + q), (b) => b + most, most);
    }
    case "Huber": {
      const kappa = positive("kappa");
      return residual(
        "Huber",
        (z, y) => clip(z - y, -kappa, kappa),
        (z, y, q) => clip((z - y) / (1 + q), -kappa, kappa),
        () => kappa,
      );
    }
    case "Pinball": {
      const quantile = positive("quantile", { below: 1 });
      return residual(
        "Pinball",
        (z, y) => (z > y ? 1 - quantile : -quantile),
        (z, y, q) => clip(z - y, -quantile * q, (1 - quantile) * q) / q,
        () => Math.max(quantile, 1 - quantile),
      );
    }
    case "Absolute":
      return residual("Absolute", (z, y) => Math.sign(z - y), (z, y, q) => clip(z - y, -q, q) / q, () => 1);
    case "EpsilonInsensitive": {
      const width = positive("width");
      return residual(
        "EpsilonInsensitive",
        (z, y) => (Math.abs(z - y) > width ? Math.sign(z - y) : 0),
        (z, y, q) => (Math.sign(z - y) * clip(Math.abs(z - y) - width, 0, q)) / q,
        () => 1,
      );
    }
    case "Weighted": {
      const weights = list("weights", words.get("weights")).map((weight) => real("weights", weight, { above: 0, atMost: 1e6 }));
      return weighted(readLoss(words.get("loss")), weights);
    }
    default:
      throw new WireError("a task with a loss that this client does not know");
  }
}

/** What a client needs of a domain: its dimension, and the largest norm of a point of it. */
export function readDomain(value: Json | undefined): { dim: number; normBound: number } {
  const words = object("domain", value);
  const dim = whole("domain.dim", words.get("dim"), { atLeast: 1, atMost: 2 ** 22 });
  const point = (name: string): number[] => {
    const given = words.get(name);
    if (given instanceof JsonNumber) return new Array<number>(dim).fill(real(name, given));
    const numbers = list(name, given).map((entry) => real(name, entry));
    if (numbers.length !== dim) throw new WireError(`${name} of a domain that has another dimension`);
    return numbers;
  };
  const norm = (numbers: number[]): number => Math.hypot(...numbers);
  const kind = oneOf("domain.kind", words.get("kind"), ["Ball", "Box", "Simplex", "L1Ball", "WholeSpace"] as const);
  names("domain", words, ["kind", "dim", ...DOMAIN_WORDS[kind]]);
  switch (kind) {
    case "Ball": {
      const radius = real("radius", words.get("radius"), { above: 0 });
      return { dim, normBound: radius + ((words.get("center") ?? null) === null ? 0 : norm(point("center"))) };
    }
    case "Box": {
      const lower = point("lower");
      const upper = point("upper");
      if (!lower.every((low, place) => low < upper[place])) throw new WireError("a box whose upper end is not above its lower one");
      return { dim, normBound: norm(lower.map((low, place) => Math.max(Math.abs(low), Math.abs(upper[place])))) };
    }
    case "Simplex":
      return { dim, normBound: real("total", words.get("total"), { above: 0 }) };
    case "L1Ball":
      return { dim, normBound: real("radius", words.get("radius"), { above: 0 }) };
    case "WholeSpace":
      real("distance", words.get("distance"), { above: 0 });
      return { dim, normBound: Infinity };
  }
}
