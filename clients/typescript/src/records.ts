/** A record's way to a row and a target, by the public facts of a task and that record alone. */
import { flag, list, names, object, oneOf, real, text, whole } from "./checks.ts";
import { dot } from "./encoding.ts";
import { RecordError, WireError } from "./errors.ts";
import { readFeatures, type Step } from "./features.ts";
import { byCodePoints, type Json, JsonNumber, type JsonObject } from "./json.ts";
import type { Problem, Row } from "./problem.ts";

const LIMIT = 1e30;
// float32 is right to 6e-8 of every entry: rows divided by this much more than their length are at most 1 long once rounded.
const ROOM = 1 + 1e-7;
const NULLS = new Set([
  ..." |#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|N/A|NA|NULL|NaN|n/a|nan|null".split("|"),
  "",
]);
const SPACE = "[\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const SPACES = new RegExp(`^${SPACE}+|${SPACE}+$`, "g");
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;
const ENDLESS = /^[+-]?inf(?:inity)?$/i;
export interface NumericColumn {
  name: string;
  low: number;
  high: number;
  missing: boolean;
  scale: "linear" | "log";
}

export interface CategoryColumn {
  name: string;
  levels: string[];
  unknown: "zero" | "refuse";
  /** A level without an entry of its own, against which the others are counted. */
  reference?: string;
}

/** A grey picture: its pixels line by line, from black (`low`) to white. */
export interface ImageColumn {
  name: string;
  shape: [number, number];
  low: number;
  high: number;
}

export type Column = NumericColumn | CategoryColumn | ImageColumn;

export type Target = { column: string; classes: string[] } | { column: string; range: [number, number] };

/** What a person says of itself: one value per column, as text (a CSV cell, a form's field), a number or a truth value; or pixels. */
export type RecordValue = string | number | boolean | ArrayLike<number> | null | undefined;
export type RecordValues = Readonly<Record<string, RecordValue>>;

export interface RecordsReader {
  task: string;
  columns: Column[];
  target: Target;
  features: string[];
  blanks: boolean;
  /** The row and target of one record. One that is not valid is refused, or, where the task blanks, counts as a blank. */
  row(record: RecordValues): Row;
}

export const isCategory = (column: Column): column is CategoryColumn => "levels" in column;
export const isImage = (column: Column): column is ImageColumn => "shape" in column;

type Label = { text: string; rank: string | number };

function labels(name: string, value: Json | undefined, atLeast: number): Label[] {
  const made = list(name, value).map((label): Label => {
    if (typeof label === "string") return { text: trimmed(label), rank: trimmed(label) };
    if (typeof label === "boolean") return { text: String(label), rank: Number(label) };
    if (label instanceof JsonNumber && label.integer !== null) return { text: label.integer.toString(), rank: whole(name, label) };
    throw new WireError(`a task that says something impossible: ${name} must be texts, whole numbers or truth values`);
  });
  const kinds = new Set(list(name, value).map((label) => (label instanceof JsonNumber ? "number" : typeof label)));
  if (kinds.size !== 1 || made.length < atLeast || new Set(made.map((label) => label.text)).size !== made.length) {
    throw new WireError(`a task that says something impossible: ${name} must be all of one kind, each once`);
  }
  return made;
}

function range(name: string, low: Json | undefined, high: Json | undefined): [number, number] {
  const ends: [number, number] = [real(name, low, { above: -LIMIT, below: LIMIT }), real(name, high, { above: -LIMIT, below: LIMIT })];
  if (!(ends[0] < ends[1] && Number.isFinite(2 / (ends[1] - ends[0])))) throw new WireError(`${name} of a task without low < high`);
  return ends;
}

function readColumn(value: Json): Column {
  const words = object("column", value);
  const name = text("column.name", words.get("name"));
  if (words.has("levels")) {
    names("column", words, ["name", "levels"], ["unknown", "reference"]);
    const unknown = words.has("unknown") ? oneOf("unknown", words.get("unknown"), ["zero", "refuse"] as const) : "zero";
    const levels = labels("levels", words.get("levels"), words.has("reference") ? 2 : 1).map((label) => label.text);
    return words.has("reference") ? { name, levels, unknown, reference: oneOf("reference", trimmed(text("reference", words.get("reference"))), levels) } : { name, levels, unknown };
  }
  if (words.has("shape")) {
    names("column", words, ["name", "shape"], ["low", "high"]);
    const sides = list("shape", words.get("shape")).map((side) => whole("shape", side, { atLeast: 1, atMost: 1024 }));
    if (sides.length !== 2) throw new WireError("a picture whose shape is not [height, width]");
    const end = (word: string, usual: number): number => (words.has(word) ? real(name, words.get(word), { above: -LIMIT, below: LIMIT }) : usual);
    const [black, white] = [end("low", 0), end("high", 255)];
    if (!(black < white && Number.isFinite(2 / (white - black)))) throw new WireError(`${name} of a task without low < high`);
    return { name, shape: [sides[0], sides[1]], low: black, high: white };
  }
  names("column", words, ["name", "low", "high"], ["missing", "scale"]);
  const [low, high] = range(name, words.get("low"), words.get("high"));
  const scale = words.has("scale") ? oneOf("scale", words.get("scale"), ["linear", "log"] as const) : "linear";
  return { name, low, high, missing: words.has("missing") ? flag("missing", words.get("missing")) : false, scale };
}

/** The classes in ascending order of their labels: their places are their codes. */
function readTarget(words: JsonObject): Target {
  const column = text("target.column", words.get("column"));
  if (words.has("classes") === words.has("range")) throw new WireError("a target without either classes or a range");
  names("target", words, ["column"], ["classes", "range"]);
  if (words.has("classes")) {
    const classes = labels("classes", words.get("classes"), 2);
    const truths = new Set(classes.map((label) => label.text.toLowerCase()));
    if (classes.length > 2 && truths.size === 2 && truths.has("true") && truths.has("false")) {
      throw new WireError("a target with a truth value twice, in letters of another case"); // no record tells them apart
    }
    classes.sort((one, other) =>
      typeof one.rank === "string" ? byCodePoints(one.rank, other.rank as string) : one.rank - (other.rank as number),
    );
    return { column, classes: classes.map((label) => label.text) };
  }
  const ends = list("range", words.get("range"));
  if (ends.length !== 2) throw new WireError("a range that is not [low, high]");
  return { column, range: range("range", ends[0], ends[1]) };
}

/** The public facts about a table: how a record becomes a row and a target. */
export interface Schema {
  columns: Column[];
  target: Target;
  rows: "unit" | "as-is";
  /** Names of a row's numbers, in their order, without the constant. */
  features: string[];
  /** The length that no row exceeds before it is brought to 1. */
  norm: number;
  /** A public map of the columns' entries, whose rows are at most 1 long; null where rows are these entries. */
  map: Step | null;
}

/** Where a schema's ranges come from. Nobody was set aside for it: no client knows whether it was. */
function readDescribed(words: JsonObject): void {
  names("described", words, ["epsilon", "delta", "users"], ["private"]);
  real("described.epsilon", words.get("epsilon"), { above: 0 });
  real("described.delta", words.get("delta"), { above: 0, below: 1 });
  whole("described.users", words.get("users"), { atLeast: 2 });
  if (words.has("private")) flag("described.private", words.get("private"));
}

/** A schema may say who is whose and where its ranges come from: a client, whose rows are all its own, makes nothing of either. */
export function readSchema(value: Json | undefined): Schema {
  const schema = object("schema", value);
  names("schema", schema, ["target", "columns"], ["version", "rows", "user", "described", "features"]);
  if (schema.has("described")) readDescribed(object("described", schema.get("described")));
  if (schema.has("version") && whole("version", schema.get("version")) !== 1) throw new WireError("a schema of another version");
  const rows = schema.has("rows") ? oneOf("rows", schema.get("rows"), ["unit", "as-is"] as const) : "unit";
  const columns = list("columns", schema.get("columns")).map(readColumn);
  const target = readTarget(object("target", schema.get("target")));
  const used = [...columns.map((column) => column.name), target.column];
  if (schema.has("user") && [...used, ""].includes(text("user", schema.get("user")))) throw new WireError("a user column with another role, too");
  if (columns.length === 0 || target.column === "" || new Set(used).size !== used.length) {
    throw new WireError("a schema with a column twice, or without any");
  }
  const entries = columns.flatMap((column) =>
    isImage(column)
      ? Array.from({ length: column.shape[0] * column.shape[1] }, (_, place) => `${column.name}[${Math.floor(place / column.shape[1])},${place % column.shape[1]}]`)
      : isCategory(column)
      ? column.levels.filter((level) => level !== column.reference).map((level) => `${column.name}=${level}`)
      : column.missing
        ? [column.name, `${column.name} missing`]
        : [column.name],
  );
  const most = columns.reduce((sum, column) => sum + (isImage(column) ? column.shape[0] * column.shape[1] : 1), 0);
  const norm = rows === "unit" ? 1 : Math.sqrt(most);
  if (!schema.has("features")) return { columns, target, rows, features: entries, norm, map: null };
  if (rows !== "unit") throw new WireError("a map whose rows are left as they are");
  const map = readFeatures(schema.get("features"), entries.length);
  return { columns, target, rows, features: Array.from({ length: map.outputs }, (_, place) => `${map.kind}[${place}]`), norm, map };
}

/** Refuse a record that has not all of these columns. */
export function requireColumns(record: RecordValues, columns: readonly string[]): void {
  for (const name of columns) if (!Object.hasOwn(record, name)) throw new RecordError(`column ${name}: a value is needed, or null where it is missing`);
}

export const columnsOf = (schema: Schema): string[] => [...schema.columns.map((column) => column.name), schema.target.column];

/** A record's numbers as Python stores them, in single precision: at most `schema.norm` long, without the constant. */
export function encodedRow(schema: Schema, record: RecordValues): Float64Array {
  const entries = Float64Array.from(
    schema.columns.flatMap((column) => (isImage(column) ? pixelsOf(column, record) : isCategory(column) ? oneHot(column, record) : scaled(column, record))),
  );
  if (schema.map !== null) return schema.map.apply(entries).map(Math.fround);
  const length = Math.sqrt(dot(entries, entries));
  const divisor = (length > 0 ? length : 1) * ROOM;
  return entries.map((entry) => Math.fround(schema.rows === "unit" ? entry / divisor : entry));
}

export function readRecords(value: Json | undefined, problem: Problem): RecordsReader {
  const words = object("records", value);
  names("records", words, ["schema", "features", "task", "parameters"]);
  const schema = readSchema(words.get("schema"));
  const { columns, target, features, norm } = schema;
  // The other parameters change neither rows nor targets: what they choose stands in `problem` and `schedule`.
  const parameters = object("parameters", words.get("parameters"));
  const blanks = parameters.has("invalid") && oneOf("invalid", parameters.get("invalid"), ["refuse", "blank"] as const) === "blank";
  const kinds = "classes" in target ? (["classify", "svm"] as const) : (["regress-mean", "regress-huber", "quantile"] as const);
  const task = oneOf<string>("records.task", words.get("task"), kinds);
  const stated = list("features", words.get("features"));
  if (stated.length !== features.length || !stated.every((name, place) => name === features[place])) {
    throw new WireError("a task whose features are in another order than its columns make them, or others");
  }
  if (problem.features !== features.length + 1) throw new WireError("a task whose rows have not one constant beside their features");
  const factor = Math.fround(1 / norm);

  const row = (record: RecordValues): Row => {
    try {
      requireColumns(record, columnsOf(schema));
      const entries = encodedRow(schema, record);
      const x = new Float64Array(entries.length + 1).fill(1); // the constant last
      x.set(norm === 1 ? entries : entries.map((entry) => Math.fround(entry * factor)));
      return { x, y: targetOf(target, record) };
    } catch (problem_) {
      if (blanks && problem_ instanceof RecordError) return { x: new Float64Array(features.length + 1), y: 0 };
      throw problem_;
    }
  };
  return { task, columns, target, features, blanks, row };
}

/** A number, NaN where there is none; refused where it is something else. */
export function numberOf(record: RecordValues, name: string): number {
  const value = record[name];
  if (value === null || value === undefined) return NaN;
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return Number(value);
  if (typeof value !== "string") throw new RecordError(`column ${name}: a number is needed`);
  if (NULLS.has(value)) return NaN;
  const inner = value.replace(/^[ \t]+|[ \t]+$/g, "");
  if (NUMBER.test(inner)) return Number(inner);
  if (ENDLESS.test(inner)) return inner.startsWith("-") ? -Infinity : Infinity;
  if (/^[+-]?nan(?:\(\w*\))?$/i.test(inner)) return NaN;
  throw new RecordError(`column ${name}: a number is needed`);
}

/** A text without spaces around it, by what Python and Arrow take for spaces: controls that separate, too, and no byte order mark. */
export const trimmed = (text: string): string => text.replace(SPACES, "");

export function textOf(record: RecordValues, name: string): string {
  const value = record[name];
  return value === null || value === undefined || (typeof value === "number" && Number.isNaN(value)) ? "" : trimmed(String(value));
}

/** Which of some levels a record has; -1 for none. Truth values are told apart whatever their case is. */
export function levelOf(levels: readonly string[], record: RecordValues, name: string): number {
  const words = new Set(levels.map((level) => level.toLowerCase()));
  const truth = words.size === 2 && words.has("true") && words.has("false");
  const value = textOf(record, name);
  return truth ? levels.findIndex((level) => level.toLowerCase() === value.toLowerCase()) : levels.indexOf(value);
}

function scaled(column: NumericColumn, record: RecordValues): number[] {
  const value = numberOf(record, column.name);
  const missing = Number.isNaN(value);
  const inside = Math.min(Math.max(value, column.low), column.high);
  const width = column.high - column.low;
  const share = column.scale === "log" ? Math.log1p(inside - column.low) / Math.log1p(width) : (inside - column.low) / width;
  const entry = missing ? 0 : Math.min(Math.max(2 * share - 1, -1), 1);
  return column.missing ? [entry, Number(missing)] : [entry];
}

/** Pixels on [0, 1]; a picture that is missing is black. */
function pixelsOf(column: ImageColumn, record: RecordValues): number[] {
  const value = record[column.name];
  const size = column.shape[0] * column.shape[1];
  if (value === null || value === undefined) return new Array<number>(size).fill(0);
  const pixels = typeof value === "object" ? Array.from(value, Number) : [];
  if (pixels.length !== size || !pixels.every(Number.isFinite)) throw new RecordError(`column ${column.name}: ${size} pixels are needed`);
  return pixels.map((pixel) => Math.min(Math.max((pixel - column.low) / (column.high - column.low), 0), 1));
}

function oneHot(column: CategoryColumn, record: RecordValues): number[] {
  const place = levelOf(column.levels, record, column.name);
  if (place < 0 && column.unknown === "refuse") throw new RecordError(`column ${column.name}: one of the declared levels is needed`);
  return column.levels.flatMap((level, index) => (level === column.reference ? [] : [Number(index === place)]));
}

/** A target's number: a class's code, or a number on [-1, 1]. */
export function targetOf(target: Target, record: RecordValues): number {
  if ("classes" in target) {
    const place = levelOf(target.classes, record, target.column);
    if (place < 0) throw new RecordError(`column ${target.column}: one of the declared classes is needed`);
    return place;
  }
  const value = finiteOf(record, target.column);
  const [low, high] = target.range;
  return (Math.min(Math.max(value, low), high) - (low + high) / 2) / ((high - low) / 2);
}

export function finiteOf(record: RecordValues, name: string): number {
  const value = numberOf(record, name);
  if (!Number.isFinite(value)) throw new RecordError(`column ${name}: a finite number is needed`);
  return value;
}

/** The records of a CSV text: a header, values separated by commas (or another mark), quotation marks doubled within quotations. */
export function recordsOfCsv(csv: string, separator = ","): RecordValues[] {
  const lines: string[][] = [];
  let line: string[] = [];
  let cell = "";
  let quotedCell = false;
  let anything = false; // a line with two quotation marks alone is a record, an empty one is none
  const text_ = csv.startsWith("\ufeff") ? csv.slice(1) : csv;
  for (let place = 0; place <= text_.length; place += 1) {
    const letter = text_[place];
    if (quotedCell) {
      if (letter === undefined) throw new RecordError("a quotation in the file has no end");
      if (letter !== '"') cell += letter;
      else if (text_[place + 1] === '"') {
        cell += '"';
        place += 1;
      } else quotedCell = false;
    } else if (letter === '"' && cell === "") {
      quotedCell = true;
      anything = true;
    } else if (letter === separator) {
      line.push(cell);
      cell = "";
    } else if (letter === "\n" || letter === "\r" || letter === undefined) {
      if (letter === "\r" && text_[place + 1] === "\n") place += 1;
      if (line.length > 0 || cell !== "" || anything) lines.push([...line, cell]);
      line = [];
      anything = false;
      cell = "";
    } else cell += letter;
  }
  const [header, ...rest] = lines;
  if (header === undefined) throw new RecordError("a file with a header is needed");
  if (new Set(header).size !== header.length) throw new RecordError("a file with two columns of one name: rename one of them");
  return rest.map((values) => {
    if (values.length !== header.length) throw new RecordError("a line of the file has another number of values than its header");
    return Object.fromEntries(header.map((name, place) => [name, values[place]]));
  });
}
