/**
 * What a task may ask besides gradients: a description, a histogram, moments for a regression, a model's scores, texts that many
 * people hold, a table, counts over days. Each
 * question makes of a record a vector whose norm and distance from every other are bounded by its own code; the task's plan must
 * count on no less. Orders, weights and bounds are those of docs/protocol.md.
 */
import { exactly, NumberBins, readEdges, shown, unitRoot, writeRoot } from "./bins.ts";
import { readStream, readTable } from "./counts.ts";
import { flag, list, names, object, oneOf, text, whole } from "./checks.ts";
import { dot } from "./encoding.ts";
import { RecordError, WireError } from "./errors.ts";
import { readEvaluate } from "./evaluation.ts";
import { type Json, JsonNumber, type JsonObject } from "./json.ts";
import { FADING, fieldsOf, listed, type Question, saysOf } from "./question.ts";
import { readWords } from "./words.ts";
import type { Pieces } from "./pieces.ts";
import { columnsOf, encodedRow, levelOf, numberOf, type RecordValues, readSchema, requireColumns, targetOf, textOf } from "./records.ts";

/** The range of a mean is that of its vectors. What is not in it is not sent, whatever went wrong. */
export function* meanVector(question: Question, records: readonly RecordValues[]): Pieces<Float64Array> {
  if (records.length === 0 && question.together === undefined) throw new RecordError("at least one record is needed");
  const sum = new Float64Array(question.dim);
  for (const record of question.together === undefined ? records : []) {
    question.vector(record).forEach((entry, place) => (sum[place] += entry));
    yield;
  }
  const mean = question.together?.(records) ?? sum.map((entry) => entry / records.length);
  if (!(Math.sqrt(dot(mean, mean)) <= question.norm * (1 + 1e-9))) throw new RecordError("a vector out of the question's range; nothing was sent");
  return mean;
}

export function readQuestion(value: Json | undefined): Question {
  const words = object("query", value);
  const kind = oneOf("query", words.get("kind"), ["describe", "histogram", "regression", "evaluate", "words", "table", "stream"] as const);
  const one = { describe: readDescribe, histogram: readHistogram, regression: readRegression, evaluate: readEvaluate, words: readWords, stream: readStream };
  return kind === "table" ? readTable(words, numberOrNothing) : one[kind](words);
}

/** A column that is counted, where nothing is refused: NaN for what is no number. */
function numberOrNothing(record: RecordValues, name: string): number {
  if (typeof record[name] === "boolean") return NaN;
  try {
    return numberOf(record, name);
  } catch (problem) {
    if (problem instanceof RecordError) return NaN;
    throw problem;
  }
}

const MOST_COLUMNS = 1_000;
const MOST_LEVELS = 1_000;

type Counted = { name: string; bins: NumberBins; root: Float64Array } | { name: string; levels: string[] };
const sizeOf = (column: Counted): number => ("bins" in column ? column.bins.size : column.levels.length + 2);

function readCounted(value: Json): Counted {
  const words = object("column", value);
  const name = text("column.name", words.get("name"));
  if (words.has("levels")) {
    names("column", words, ["name", "levels"]);
    const levels = list("levels", words.get("levels")).map((level) => {
      if (typeof level === "string" || typeof level === "boolean") return String(level);
      if (level instanceof JsonNumber && level.integer !== null) return level.integer.toString();
      throw new WireError("a task that says something impossible: levels must be texts, whole numbers or truth values");
    });
    if (levels.length < 1 || levels.length > MOST_LEVELS || new Set(levels).size !== levels.length) {
      throw new WireError("a task that says something impossible: levels must be 1 to 1000 different ones");
    }
    return { name, levels };
  }
  names("column", words, ["name", "edges"], ["low", "high", "whole", "bins"]);
  const low = words.has("low") ? exactly("low", words.get("low"), 1e30) : -1e9;
  const high = words.has("high") ? exactly("high", words.get("high"), 1e30) : 1e9;
  const isWhole = words.has("whole") ? flag("whole", words.get("whole")) : false;
  const most = words.has("bins") ? whole("bins", words.get("bins"), { atLeast: 8, atMost: 4096 }) : 128;
  const bins = new NumberBins(low, high, isWhole, most, readEdges(words.get("edges")));
  return { name, bins, root: unitRoot(bins.size) };
}

type Levels = { name: string; levels: string[] };

/** Which bin a level has: its own, that of all others, or that of nothing. */
function levelPlace({ name, levels }: Levels, record: RecordValues): number {
  if (textOf(record, name) === "") return levels.length + 1;
  const level = levelOf(levels, record, name);
  return level < 0 ? levels.length : level;
}

const levelWords = ({ levels }: Levels, place: number): string => levels[place] ?? (place === levels.length ? "something else" : "nothing");

/** The sum of so many ones and so many times 0.4, rounded once, as Python's fsum has it. */
const weightOf = (numbers: number, levels: number): number =>
  Number(BigInt(numbers) * 2n ** 53n + BigInt(levels) * BigInt(0.4 * 2 ** 53)) / 2 ** 53;

function readDescribe(words: JsonObject): Question {
  names("query", words, ["kind", "columns"]);
  const columns = list("columns", words.get("columns")).map(readCounted);
  const every = columns.map((column) => column.name);
  if (columns.length < 1 || columns.length > MOST_COLUMNS || new Set(every).size !== every.length) {
    throw new WireError("a task that says something impossible: columns must be 1 to 1000 different ones");
  }
  const numbers = columns.filter((column) => "bins" in column).length;
  const total = weightOf(numbers, columns.length - numbers);
  const firsts: number[] = [];
  let dim = 0;
  for (const column of columns) {
    firsts.push(dim);
    dim += sizeOf(column);
  }
  return {
    kind: "describe",
    dim,
    parameters: dim,
    norm: 1,
    diameter: Math.SQRT2,
    fields: columns.map((column) =>
      "bins" in column
        ? { name: column.name, low: column.bins.low, high: column.bins.high, optional: true, outside: "counted", bins: column.bins.size }
        : { name: column.name, levels: column.levels, others: true, nothing: true },
    ),
    words: `how ${listed(every)} ${every.length > 1 ? "are" : "is"} spread among people: averages, medians and shares, and what is missing`,
    note: numbers > 0 ? `${FADING} Levels count in their own alone.` : "",
    says: (record) =>
      columns.map((column) => ({
        part: column.name,
        counts: "bins" in column ? column.bins.words(column.bins.place(numberOrNothing(record, column.name))) : levelWords(column, levelPlace(column, record)),
      })),
    vector: (record) => {
      requireColumns(record, every);
      const vector = new Float64Array(dim);
      columns.forEach((column, index) => {
        if ("bins" in column) {
          const weight = Math.sqrt(1 / total);
          writeRoot(vector, firsts[index], column.bins.place(numberOrNothing(record, column.name)), column.root, weight);
        } else {
          vector[firsts[index] + levelPlace(column, record)] = Math.sqrt(0.4 / total);
        }
      });
      return vector;
    },
    coordinate: (place) => {
      const index = firsts.findLastIndex((first) => first <= place);
      const column = columns[index];
      const at = place - firsts[index];
      return {
        part: column.name,
        get counts() {
          return "bins" in column ? column.bins.upTo(at) : levelWords(column, at);
        },
      };
    },
  };
}

function readHistogram(words: JsonObject): Question {
  names("query", words, ["kind", "column", "low", "high", "bins"]);
  const column = text("column", words.get("column"));
  const [low, high] = [exactly("low", words.get("low"), 1e100), exactly("high", words.get("high"), 1e100)];
  if (!(low < high)) throw new WireError("a task that says something impossible: low must be less than high");
  const bins = whole("bins", words.get("bins"), { atLeast: 1, atMost: 100_000 });
  const edge = (place: number): string => shown(low + ((high - low) * place) / bins);
  const placeOf = (record: RecordValues): number => {
    const place = Math.floor(((numberOrNothing(record, column) - low) / (high - low)) * bins);
    return Math.min(Math.max(place, 0), bins - 1); // NaN stays NaN
  };
  return {
    kind: "histogram",
    dim: bins,
    parameters: bins,
    norm: 1,
    diameter: Math.SQRT2,
    fields: [{ name: column, low, high, optional: true, outside: "nearest", bins }],
    words: `how ${column} is spread among people: how many there are in each of ${shown(bins)} equal steps from ${shown(low)} to ${shown(high)}`,
    note: "",
    says: (record) => {
      const place = placeOf(record);
      return [{ part: column, counts: Number.isNaN(place) ? "nothing" : `${edge(place)} to ${edge(place + 1)}` }];
    },
    vector: (record) => {
      requireColumns(record, [column]);
      const vector = new Float64Array(bins);
      const place = placeOf(record);
      if (!Number.isNaN(place)) vector[place] = 1;
      return vector;
    },
    coordinate: (place) => ({
      part: column,
      get counts() {
        return `${edge(place)} to ${edge(place + 1)}`; // of many bins most are never shown
      },
    }),
  };
}

// Weights of x x', x y and y^2 in the vector of a regression.
const [ROWS, PRODUCTS, SQUARES] = [0.68, 0.68, 0.27];
const MOMENTS_NORM = Math.sqrt(ROWS * ROWS + PRODUCTS * PRODUCTS + SQUARES * SQUARES);
const MOST_FEATURES = 1_400;

/** Rows longer than 1 by rounding are scaled down to it. */
function unitRow(row: Float64Array): Float64Array {
  if (dot(row, row) <= 1) return row;
  const peak = row.reduce((most, entry) => Math.max(most, Math.abs(entry)), 1);
  const shrunk = row.map((entry) => entry / peak);
  const length = Math.max(Math.sqrt(dot(shrunk, shrunk)), 1e-300);
  return shrunk.map((entry) => entry / length);
}

function readRegression(words: JsonObject): Question {
  names("query", words, ["kind", "schema"]);
  const schema = readSchema(words.get("schema"));
  const { target, features, norm } = schema;
  if (!("range" in target)) throw new WireError("a regression on classes");
  const width = features.length + 1;
  if (width > MOST_FEATURES) throw new WireError("a regression with too many columns");
  const pairs = (width * (width + 1)) / 2;
  const scale = 1 / (norm * Math.SQRT2);
  const every = columnsOf(schema);
  const [a, b, c] = [ROWS * ROWS, PRODUCTS * PRODUCTS, SQUARES * SQUARES];
  const called = [...features, "everybody"];
  return {
    kind: "regression",
    dim: pairs + width + 1,
    parameters: pairs + width + 1,
    norm: MOMENTS_NORM,
    diameter: Math.sqrt(Math.max(2 * a + 2 * b + (b * b) / (2 * a), 2 * a + b + c)),
    fields: fieldsOf(schema),
    words: `how ${target.column} depends on ${listed(schema.columns.map((column) => column.name))}: averages of products of these numbers, in pairs`,
    note: "Each column is brought to between -1 and 1 first; “everybody” is a number that is the same for all.",
    says: (record) => saysOf(every, record),
    vector: (record) => {
      requireColumns(record, every);
      const raw = new Float64Array(width).fill(1 / Math.SQRT2); // the constant, which is for everybody the same
      raw.set(encodedRow(schema, record).map((entry) => entry * scale));
      const row = unitRow(raw);
      const y = Math.min(Math.max(targetOf(target, record), -1), 1);
      const vector = new Float64Array(pairs + width + 1);
      let place = 0;
      for (let one = 0; one < width; one += 1) {
        for (let other = one; other < width; other += 1) {
          vector[place] = row[one] * row[other] * (one === other ? ROWS : ROWS * Math.SQRT2);
          place += 1;
        }
      }
      for (let one = 0; one < width; one += 1) vector[place + one] = PRODUCTS * (row[one] * y);
      vector[place + width] = SQUARES * (y * y);
      return vector;
    },
    coordinate: (place) => {
      if (place === pairs + width) return { part: target.column, counts: "its square" };
      if (place >= pairs) return { part: target.column, counts: `times ${called[place - pairs]}` };
      let [one, rest] = [0, place];
      while (rest >= width - one) {
        rest -= width - one;
        one += 1;
      }
      return { part: called[one], counts: rest === 0 ? "its square" : `times ${called[one + rest]}` };
    },
  };
}
