/** Questions that count people: in all combinations of some columns, and day by day. As src/croupier/statistics has them. */
import { countBelow, readEdges, shown, unitRoot, writeRoot } from "./bins.ts";
import { list, names, object, real, text, whole } from "./checks.ts";
import { WireError } from "./errors.ts";
import type { Json, JsonObject } from "./json.ts";
import { type Counted, listed, type Question } from "./question.ts";
import { levelOf, type RecordValues, requireColumns, textOf } from "./records.ts";

const MOST_LEVELS = 1_000;
const MOST_CELLS = 1_000_000;
const OTHER = "other";

/** What is no number is NaN; nothing is refused. */
export type NumberOrNothing = (record: RecordValues, name: string) => number;

interface Axis {
  name: string;
  labels: string[];
  levels: string[] | null;
  edges: number[];
}

function readAxis(value: Json): Axis {
  const words = object("column", value);
  const name = text("column.name", words.get("name"));
  if (words.has("levels")) {
    names("column", words, ["name", "levels"]);
    const levels = list("levels", words.get("levels")).map((level) => text("levels", level));
    if (levels.length < 1 || levels.length > MOST_LEVELS || new Set(levels).size !== levels.length) {
      throw new WireError("a task that says something impossible: levels must be 1 to 1000 different ones");
    }
    return { name, labels: [...levels, OTHER], levels, edges: [] };
  }
  names("column", words, ["name", "edges"]);
  const edges = readEdges(words.get("edges"));
  if (edges.length < 2 || !edges.every((edge, place) => place === 0 || edges[place - 1] < edge)) {
    throw new WireError("a task that says something impossible: edges must be two or more that ascend");
  }
  return { name, labels: [...edges.slice(1).map((edge, place) => `${shown(edges[place])} to ${shown(edge)}`), OTHER], levels: null, edges };
}

export function readTable(words: JsonObject, numberOrNothing: NumberOrNothing): Question {
  names("query", words, ["kind", "columns", "by", "marginals"]);
  const axes = list("columns", words.get("columns")).map(readAxis);
  const every = axes.map(({ name }) => name);
  if (axes.length < 1 || axes.length > 3 || new Set(every).size !== every.length) {
    throw new WireError("a task that says something impossible: columns must be one to three different ones");
  }
  const by = whole("by", words.get("by"), { atLeast: 0, atMost: 2 });
  const marginals = real("marginals", words.get("marginals"), { atLeast: 0, below: 1 });
  const both = marginals > 0 && axes.length > 1;
  if (by > 0 && (by !== axes.length - 1 || axes[by].levels !== null || marginals > 0)) {
    throw new WireError("a task that says something impossible: by must be of groups before one column of numbers, without marginals");
  }
  const shape = axes.map(({ labels }) => labels.length);
  const cells = shape.reduce((product, length) => product * length, 1);
  if (cells > MOST_CELLS) throw new WireError("a task that says something impossible: a table of too many cells");
  const dim = cells + (both ? shape.reduce((sum, length) => sum + length, 0) : 0);
  const [last] = shape.slice(-1);
  const root = by > 0 ? unitRoot(last) : new Float64Array(0);
  const placeOf = ({ name, labels, levels, edges }: Axis, record: RecordValues): number => {
    if (levels !== null) {
      const level = textOf(record, name) === "" ? -1 : levelOf(levels, record, name);
      return level < 0 ? labels.length - 1 : level;
    }
    const value = numberOrNothing(record, name);
    return Number.isNaN(value) ? labels.length - 1 : Math.min(Math.max(countBelow(edges, value, true) - 1, 0), labels.length - 2);
  };
  const cellOf = (places: readonly number[]): number => places.reduce((cell, place, axis) => cell * shape[axis] + place, 0);
  const labelsOf = (cell: number): string[] => {
    const labels: string[] = [];
    for (let axis = axes.length - 1, left = cell; axis >= 0; left = Math.floor(left / shape[axis]), axis -= 1) labels.unshift(axes[axis].labels[left % shape[axis]]);
    return labels;
  };
  return {
    kind: "table",
    dim,
    parameters: 1,
    norm: 1,
    diameter: Math.SQRT2,
    fields: axes.map(({ name, levels, edges }) =>
      levels !== null
        ? { name, levels, others: true, nothing: true }
        : { name, low: edges[0], high: edges[edges.length - 1], optional: true, outside: "nearest", bins: edges.length - 1 },
    ),
    words:
      by > 0
        ? `how ${every[by]} is spread among people of the same ${listed(every.slice(0, by))}`
        : `how many people there are with each ${axes.length > 1 ? "combination of " : ""}${listed(every)}`,
    note: by > 0 ? "A record counts in its own bin and, less and less, in all bins of its group after it: that keeps the noise of sums over bins small." : "",
    says: (record) => axes.map((axis) => ({ part: axis.name, counts: axis.labels[placeOf(axis, record)] })),
    vector: (record) => {
      requireColumns(record, every);
      const places = axes.map((axis) => placeOf(axis, record));
      const vector = new Float64Array(dim);
      if (by > 0) {
        writeRoot(vector, cellOf([...places.slice(0, -1), 0]), places[by], root, 1);
        return vector;
      }
      vector[cellOf(places)] = both ? Math.sqrt(1 - marginals) : 1;
      let first = cells;
      for (const [axis, place] of both ? places.entries() : []) {
        vector[first + place] = Math.sqrt(marginals / axes.length);
        first += shape[axis];
      }
      return vector;
    },
    coordinate: (place) => {
      if (place < cells) return { part: listed(every), counts: labelsOf(place).join(", ") };
      let [axis, left] = [0, place - cells];
      for (; left >= shape[axis]; axis += 1) left -= shape[axis];
      return { part: every[axis], counts: axes[axis].labels[left] };
    },
  };
}

// Streams.

const MOST_DAYS = 4_096;
const DATE = /^([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])/;
/** More than the rounding of a vector's length and distance. */
const ROUNDING = 1 + 1e-9;

/** The date with which a text begins, in days since 1970; NaN where there is none. */
function dayOf(given: string): number {
  const found = DATE.exec(given);
  if (found === null || found[1] < "1000") return NaN;
  const [year, month, day] = found.slice(1).map(Number);
  const moment = new Date(Date.UTC(year, month - 1, day));
  return moment.getUTCMonth() === month - 1 && moment.getUTCDate() === day ? moment.getTime() / 86_400_000 : NaN;
}

/** 1, 1/2, 3/8, ...: what somebody who counts on a day adds on that day and on each day after it. */
function falling(days: number): Float64Array {
  const entries = new Float64Array(days).fill(1);
  for (let place = 1; place < days; place += 1) entries[place] = entries[place - 1] * ((2 * place - 1) / (2 * place));
  return entries;
}

/** The bounds of all vectors: of the first days together, and of any two days or nobody; above by more than rounding. */
function boundsOf(root: Float64Array, perPerson: number): { norm: number; diameter: number } {
  const days = root.length;
  const totals = new Float64Array(days);
  let [total, squares] = [0, 0];
  for (let place = 0; place < days; place += 1) {
    total += root[place];
    totals[place] = total;
    const sum = place < perPerson ? total : total - totals[place - perPerson];
    squares += sum * sum;
  }
  if (perPerson > 1) return { norm: Math.sqrt(squares) * ROUNDING, diameter: Math.SQRT2 * (Math.sqrt(squares) * ROUNDING) };
  const lengths = new Float64Array(days + 1); // of the first entries, squared
  for (let place = 0; place < days; place += 1) lengths[place + 1] = lengths[place] + root[place] * root[place];
  let most = squares;
  for (let apart = 1; apart < days; apart += 1) {
    let product = 0;
    for (let place = 0; place + apart < days; place += 1) {
      product += root[place] * root[place + apart];
      const left = place + 1; // days from the later of the two on
      most = Math.max(most, lengths[left + apart] + lengths[left] - 2 * product);
    }
  }
  return { norm: Math.sqrt(squares) * ROUNDING, diameter: Math.sqrt(most) * ROUNDING };
}

export function readStream(words: JsonObject): Question {
  names("query", words, ["kind", "column", "start", "days", "per_person"]);
  const column = text("column", words.get("column"));
  const begins = text("start", words.get("start"));
  const start = begins.length === 10 ? dayOf(begins) : NaN;
  if (!(start >= 0) || begins > "9000-12-31") throw new WireError("a task that says something impossible: start must be a date like 2030-01-31");
  const days = whole("days", words.get("days"), { atLeast: 1, atMost: MOST_DAYS });
  const perPerson = whole("per_person", words.get("per_person"), { atLeast: 1, atMost: days });
  const root = falling(days);
  const counted = (records: readonly RecordValues[], round: number, before: Counted | null): Counted => {
    // without an earlier round, days before this one do not count: a device that has forgotten may have told of them
    const { until, days: known } = before ?? { until: round - 1, days: [] };
    const here = new Set<number>();
    for (const record of records) {
      requireColumns(record, [column]);
      const day = dayOf(textOf(record, column)) - start + 1;
      if (day > until && day <= round) here.add(day);
    }
    return { until: Math.max(until, round), days: [...known, ...[...here].sort((one, other) => one - other)].slice(0, perPerson) };
  };
  const sent = (of: readonly number[], round: number): number => of.reduce((sum, day) => (day <= round ? sum + root[round - day] : sum), 0);
  const together = (records: readonly RecordValues[]): Float64Array => {
    const mine = counted(records, days, { until: 0, days: [] }).days;
    return Float64Array.from({ length: days }, (_, place) => sent(mine, place + 1));
  };
  return {
    kind: "stream",
    dim: days,
    parameters: 1,
    ...boundsOf(root, perPerson),
    fields: [{ name: column, text: "date" }],
    words: `on how many days there is a ${column}, day by day, for ${shown(days)} days from ${begins} on; of each person at most ${shown(perPerson)} ${perPerson > 1 ? "days count" : "day counts"}`,
    note: "A day counts when it has come and, less and less, on all days after it. What has counted stays counted, and is not told again.",
    says: (record) => [{ part: column, counts: Number.isNaN(dayOf(textOf(record, column))) ? "nothing" : textOf(record, column).slice(0, 10) }],
    vector: (record) => together([record]),
    together,
    stream: { rounds: days, counted, sent },
    coordinate: () => ({ part: column, counts: "the days so far, the latest the most" }),
  };
}

