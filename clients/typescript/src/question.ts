/** What a question is, and the public facts about the records that it is about. */
import { isCategory, isImage, type RecordValues, type Schema, textOf } from "./records.ts";

/** One value that a question wants of a record, for forms. */
export type Field =
  | {
      name: string;
      /** A picture: its height and width, and the values of black and of white. */
      shape: readonly [number, number];
      low: number;
      high: number;
    }
  | {
      name: string;
      levels: readonly string[];
      /** Whether another level counts, too, and whether nothing does. */
      others: boolean;
      nothing: boolean;
    }
  | {
      name: string;
      /** A text, or a date like 2030-01-31, or nothing. */
      text: "text" | "date";
    }
  | {
      name: string;
      low: number;
      high: number;
      /** Whether it may be left out. */
      optional: boolean;
      /** What becomes of a number outside: it is taken for the nearer end, or counted as below or above. */
      outside: "nearest" | "counted";
      /** How many bins it is counted in, where it is. */
      bins?: number;
    };

/** What a device remembers of a question over several rounds: the days that count, and up to which day that is settled. */
export interface Counted {
  until: number;
  days: number[];
}

export interface Question {
  kind: "describe" | "histogram" | "regression" | "evaluate" | "words" | "table" | "stream";
  dim: number;
  /** Numbers in a round's theta, which mean nothing. */
  parameters: number;
  /** No vector is longer. */
  norm: number;
  /** No two vectors are further apart, zero among them. */
  diameter: number;
  fields: Field[];
  /** What is asked, in a sentence. */
  words: string;
  /** How a picture of the vector is to be read, where that needs saying. */
  note: string;
  /** The vector of one record. */
  vector(record: RecordValues): Float64Array;
  /** The vector of all records of a person, where it is not the mean of theirs; there may be none. */
  together?(records: readonly RecordValues[]): Float64Array;
  /**
   * A question over several rounds, each of which sends one coordinate of one vector: which days count from a round on, those of
   * earlier rounds unchanged, and what is sent of them in it.
   */
  stream?: {
    rounds: number;
    counted(records: readonly RecordValues[], round: number, before: Counted | null): Counted;
    sent(days: readonly number[], round: number): number;
  };
  /** What a record says in the question's terms, part by part. */
  says(record: RecordValues): { part: string; counts: string }[];
  /** What a coordinate of the vector stands for: to which part of the question it belongs, and what it counts there. */
  coordinate(place: number): { part: string; counts: string };
}

/** Of bins that are sent by the root of prefix sums. */
export const FADING = "A record counts in its own bin and, less and less, in all bins after it: that keeps the noise of sums over bins small.";

/** Names in a sentence. */
export const listed = (names: readonly string[]): string =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;

/** What a question about rows and targets wants of a record. */
export const fieldsOf = ({ columns, target }: Pick<Schema, "columns" | "target">): Field[] => [
  ...columns.map(
    (column): Field =>
      isImage(column)
        ? { name: column.name, shape: column.shape, low: column.low, high: column.high }
        : isCategory(column)
        ? { name: column.name, levels: column.levels, others: column.unknown === "zero", nothing: false }
        : { name: column.name, low: column.low, high: column.high, optional: true, outside: "nearest" },
  ),
  "classes" in target
    ? { name: target.column, levels: target.classes, others: false, nothing: false }
    : { name: target.column, low: target.range[0], high: target.range[1], optional: false, outside: "nearest" },
];

/** What a record says of its columns, as it stands there. */
export const saysOf = (columns: readonly string[], record: RecordValues): { part: string; counts: string }[] =>
  columns.map((column) => ({ part: column, counts: typeof record[column] === "object" && record[column] !== null ? "a picture" : textOf(record, column) || "nothing" }));
