/** A model in the words of a task that asks how good it is, and its answers: as in src/croupier/service/wire/queries.py. */
import { list, names, object, oneOf, real } from "./checks.ts";
import { dot } from "./encoding.ts";
import { WireError } from "./errors.ts";
import type { Json, JsonObject } from "./json.ts";
import { scaledDown } from "./problem.ts";
import type { Schema } from "./records.ts";

const LARGEST = 1e100;
const NEEDED = ["schema", "answers", "coef", "intercept", "feature_norm"];
const expit = (score: number): number => (score >= 0 ? 1 / (1 + Math.exp(-score)) : Math.exp(score) / (1 + Math.exp(score)));

function softmax(scores: readonly number[]): number[] {
  const most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

function matrix(name: string, value: Json | undefined, rows: number, columns: number): Float64Array[] {
  const lines = list(name, value).map((line) => list(name, line));
  if (lines.length !== rows || lines.some((line) => line.length !== columns)) throw new WireError(`a model whose ${name} does not fit its schema`);
  return lines.map((line) => Float64Array.from(line, (entry) => real(name, entry, { above: -LARGEST, below: LARGEST })));
}

export interface Scorer {
  answers: "probabilities" | "margins" | "numbers";
  /** Of a quantile regressor. */
  quantile: number | null;
  /** One score an output: one for numbers and two classes, one a class for more. */
  scores(row: Float64Array): number[];
  /** One probability a class; of two classes without probabilities, those that the margin has as log-odds. */
  probabilities(row: Float64Array, scores: readonly number[]): number[];
}

interface Clipped {
  norm: number;
  constant: number;
  weights: Float64Array;
}

function readClipped(words: JsonObject, classes: number): Clipped {
  names("model.clipped", words, ["norm", "constant", "weights"]);
  const [weights] = matrix("model.clipped.weights", [words.get("weights") ?? null], 1, classes);
  if (!weights.every((weight) => weight > 0 && weight <= 1)) throw new WireError("a model whose classes have weights that are none");
  return {
    norm: real("model.clipped.norm", words.get("norm"), { above: 1e-100, below: LARGEST }),
    constant: real("model.clipped.constant", words.get("constant"), { atLeast: 0, atMost: 1e6 }),
    weights,
  };
}

export function readScorer(words: JsonObject, { target, features }: Schema): Scorer {
  const answers = oneOf("model.answers", words.get("answers"), ["probabilities", "margins", "numbers"] as const);
  names("model", words, NEEDED, answers === "numbers" ? ["quantile"] : answers === "probabilities" ? ["clipped"] : []);
  const classes = "classes" in target ? target.classes.length : 0;
  const outputs = classes > 2 ? classes : 1;
  if ((classes === 0) !== (answers === "numbers") || (answers === "margins" && outputs > 1)) {
    throw new WireError("a model whose answers are not those of the schema's target");
  }
  const coef = matrix("model.coef", words.get("coef"), outputs, features.length);
  const [intercept] = matrix("model.intercept", [words.get("intercept") ?? null], 1, outputs);
  const featureNorm = real("model.feature_norm", words.get("feature_norm"), { above: 1e-100, atMost: LARGEST });
  const quantile = words.has("quantile") ? real("model.quantile", words.get("quantile"), { above: 0, below: 1 }) : null;
  const clipped = words.has("clipped") ? readClipped(object("model.clipped", words.get("clipped")), classes) : null;

  /** Log-odds: where gradients were clipped, what that did to scores is undone. */
  const logOdds = (row: Float64Array, scores: readonly number[]): number[] => {
    if (clipped === null) return [...scores];
    const short = scaledDown(row, featureNorm);
    const length = Math.hypot(Math.sqrt(dot(short, short)) / featureNorm, clipped.constant);
    const p = outputs > 1 ? softmax(scores) : [];
    const squares = p.reduce((sum, one) => sum + one * one, 0);
    const slopes = outputs === 1 ? [expit(scores[0]), expit(-scores[0])] : p.map((one) => Math.sqrt(Math.max(squares - 2 * one + 1, 0)));
    const shorter = slopes.map((slope, place) => Math.log(Math.max(1, (length * slope * clipped.weights[place]) / clipped.norm)));
    return outputs === 1 ? [scores[0] + shorter[1] - shorter[0]] : scores.map((score, place) => score + shorter[place]);
  };

  return {
    answers,
    quantile,
    scores: (row) => {
      const short = scaledDown(row, featureNorm);
      return coef.map((weights, place) => dot(short, weights) + intercept[place]);
    },
    probabilities: (row, scores) => {
      const odds = answers === "probabilities" ? logOdds(row, scores) : scores;
      return outputs > 1 ? softmax(odds) : [expit(-odds[0]), expit(odds[0])];
    },
  };
}
