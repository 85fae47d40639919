/** How good a model is on a record that it was not trained on: the cells of its answers, or its errors. */
import { countBelow, shown, unitRoot, writeRoot } from "./bins.ts";
import { names, object } from "./checks.ts";
import type { JsonObject } from "./json.ts";
import { FADING, fieldsOf, listed, type Question, saysOf } from "./question.ts";
import { columnsOf, encodedRow, finiteOf, readSchema, requireColumns, type Schema, targetOf } from "./records.ts";
import { readScorer, type Scorer } from "./scoring.ts";

// Weights of right or wrong for two classes and for more, bins of a score, squared weights of the classes' ranks, of the log-loss and
// of its square, and its cap.
const [RIGHT_OF_TWO, RIGHT_OF_SEVERAL] = [Math.sqrt(0.2), Math.sqrt(0.15)];
const SCORE_BINS = 40;
const [RANKS, LOSS, SQUARE] = [0.55, 0.13, 0.01];
const CAP = 7;
// Weights of a regressor's six numbers and of a quantile regressor's cells, with the lengths that follow.
const WEIGHTS = [0.5, 1, 0.25, 0.5, 0.5, 0.3];
const [QUANTILE_BINS, CELL] = [10, 0.5];
const ERRORS_NORM = 1.3793114224133722;
const [QUANTILE_NORM, QUANTILE_DIAMETER] = [1.467140075112121, 1.55];

const SCORE_EDGES = Array.from({ length: SCORE_BINS + 1 }, (_, place) =>
  place === SCORE_BINS / 2 ? 0.5 : place === SCORE_BINS ? 1 : Math.sin(place * (Math.PI / 2 / SCORE_BINS)) ** 2,
);
const scoreBin = (probability: number): number => Math.min(Math.max(countBelow(SCORE_EDGES, probability, false) - 1, 0), SCORE_BINS - 1);
const percent = (probability: number): string => `${Number((100 * probability).toPrecision(2))} %`;
const between = (bin: number): string => `up to a probability of ${percent(SCORE_EDGES[bin + 1])}`;

export function readEvaluate(words: JsonObject): Question {
  names("query", words, ["kind", "model"]);
  const model = object("model", words.get("model"));
  const schema = readSchema(model.get("schema"));
  const scorer = readScorer(model, schema);
  const { target } = schema;
  return "classes" in target ? evaluatedClasses(schema, scorer, target.classes) : evaluatedNumbers(schema, scorer, target.range);
}

function evaluatedClasses(schema: Schema, scorer: Scorer, classes: readonly string[]): Question {
  const count = classes.length;
  const binary = count === 2;
  const cells = binary ? 2 * SCORE_BINS : count * count;
  const root = unitRoot(SCORE_BINS);
  const ranks = binary ? 0 : 2 * SCORE_BINS * count;
  const dim = cells + 1 + (binary ? 0 : ranks + 2);
  const right = binary ? RIGHT_OF_TWO : RIGHT_OF_SEVERAL;
  const cellWeight = Math.sqrt(1 - right * right - (binary ? 0 : RANKS + LOSS + SQUARE));
  // The class that is the label has (count - 1)^1.5 parts of the ranks' squared weight, every other class one.
  const rankShare = RANKS / (count - 1 + (count - 1) ** 1.5);
  const [otherWeight, ownWeight] = [Math.sqrt(rankShare), Math.sqrt((count - 1) ** 1.5 * rankShare)];
  const every = columnsOf(schema);
  const { column } = schema.target;
  return {
    kind: "evaluate",
    dim,
    parameters: dim,
    norm: 1,
    diameter: Math.sqrt(2 * (1 - right * right) + 4 * (right * right)),
    fields: fieldsOf(schema),
    words: `how often a model is right that guesses ${column} from ${listed(schema.columns.map((one) => one.name))}`,
    note: FADING,
    says: (record) => {
      const row = encodedRow(schema, record);
      const scores = scorer.scores(row);
      const chance = scorer.probabilities(row, scores);
      const guess = binary ? Number(chance[1] > 0.5) : scores.indexOf(Math.max(...scores));
      const sure = scorer.answers === "probabilities" ? `, with ${percent(chance[guess])}` : "";
      return [...saysOf(every, record), { part: "the model's guess", counts: `${classes[guess]}${sure}` }];
    },
    vector: (record) => {
      requireColumns(record, every);
      const vector = new Float64Array(dim);
      const label = targetOf(schema.target, record);
      const row = encodedRow(schema, record);
      const scores = scorer.scores(row);
      const probabilities = scorer.probabilities(row, scores);
      if (probabilities.some(Number.isNaN)) return vector; // an answer that is none says nothing
      if (binary) {
        const bin = scoreBin(probabilities[1]);
        writeRoot(vector, label * SCORE_BINS, bin, root, cellWeight);
        vector[cells] = Number(bin >= SCORE_BINS / 2) === label ? right : -right;
        return vector;
      }
      const answer = scores.indexOf(Math.max(...scores));
      vector[answer * count + label] = cellWeight;
      vector[cells] = answer === label ? right : -right;
      probabilities.forEach((probability, one) => {
        const [block, weight] = label === one ? [SCORE_BINS, ownWeight] : [0, otherWeight];
        writeRoot(vector, cells + 1 + 2 * SCORE_BINS * one + block, scoreBin(probability), root, weight);
      });
      const loss = Math.min(Math.max(-Math.log(Math.min(Math.max(probabilities[label], 0), 1)) / CAP, 0), 1);
      vector[dim - 2] = Math.sqrt(LOSS) * loss;
      vector[dim - 1] = Math.sqrt(SQUARE) * (loss * loss);
      return vector;
    },
    coordinate: (place) => {
      if (place === cells) return { part: "the model's answer", counts: "right, or wrong (negative)" };
      if (binary) return { part: `${column} is ${classes[Math.floor(place / SCORE_BINS)]}`, counts: `${between(place % SCORE_BINS)} of ${classes[1]}` };
      if (place < cells) return { part: `${column} is ${classes[place % count]}`, counts: `the model says ${classes[Math.floor(place / count)]}` };
      if (place >= dim - 2) return { part: "the model's surprise", counts: place === dim - 2 ? "how much" : "its square" };
      const [one, at] = [Math.floor((place - cells - 1) / (2 * SCORE_BINS)), (place - cells - 1) % (2 * SCORE_BINS)];
      return { part: `${column} is ${at < SCORE_BINS ? "not " : ""}${classes[one]}`, counts: between(at % SCORE_BINS) };
    },
  };
}

function evaluatedNumbers(schema: Schema, scorer: Scorer, [low, high]: [number, number]): Question {
  const every = columnsOf(schema);
  const { column } = schema.target;
  const binned = scorer.quantile !== null;
  const inside = (value: number): number => (Math.min(Math.max(value, low), high) - low) / (high - low);
  const dim = WEIGHTS.length + (binned ? 2 * QUANTILE_BINS : 0);
  const said = ["the error", "its square", "its fourth power", column, `the square of ${column}`, `${column} is at most the prediction`];
  return {
    kind: "evaluate",
    dim,
    parameters: dim,
    norm: binned ? QUANTILE_NORM : ERRORS_NORM,
    diameter: binned ? QUANTILE_DIAMETER : ERRORS_NORM,
    fields: fieldsOf(schema),
    words: `how far off a model is that guesses ${column} from ${listed(schema.columns.map((one) => one.name))}`,
    note: "The error is measured in parts of the whole range.",
    says: (record) => [
      ...saysOf(every, record),
      { part: "the model's guess", counts: shown(scorer.scores(encodedRow(schema, record))[0]) },
    ],
    vector: (record) => {
      requireColumns(record, every);
      const vector = new Float64Array(dim);
      const target = inside(finiteOf(record, column));
      const answer = inside(scorer.scores(encodedRow(schema, record))[0]);
      if (Number.isNaN(answer)) return vector;
      const error = Math.abs(target - answer);
      const below = target <= answer;
      const square = error * error;
      [error, square, square * square, target, target * target, Number(below)].forEach((entry, place) => (vector[place] = entry * WEIGHTS[place]));
      if (binned) {
        const bin = Math.min(Math.max(Math.trunc(answer * QUANTILE_BINS), 0), QUANTILE_BINS - 1);
        vector[WEIGHTS.length + bin + (below ? QUANTILE_BINS : 0)] = CELL;
      }
      return vector;
    },
    coordinate: (place) => {
      if (place < WEIGHTS.length) return { part: "the prediction", counts: said[place] };
      const at = place - WEIGHTS.length;
      const edge = (bin: number): string => shown(low + ((high - low) * bin) / QUANTILE_BINS);
      const bin = at % QUANTILE_BINS;
      return {
        part: `${column} is ${at < QUANTILE_BINS ? "above" : "at most"} the prediction`,
        counts: `predicted ${edge(bin)} to ${edge(bin + 1)}`,
      };
    },
  };
}
