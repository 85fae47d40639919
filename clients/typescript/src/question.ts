/** What a question is, and the public facts about the records that it is about. */
import { flag, names, object, real, text, whole } from "./checks.ts";
import { WireError } from "./errors.ts";
import type { Json, JsonObject } from "./json.ts";
import { columnsOf, isCategory, type RecordValues, readSchema, type Schema } from "./records.ts";

/** One value that a question wants of a record, for forms. */
export type Field =
  | { name: string; levels: readonly string[]; others: boolean }
  | { name: string; low: number; high: number; optional: boolean; whole: boolean };

export interface Question {
  kind: "describe" | "histogram" | "regression" | "evaluate";
  dim: number;
  /** No vector is longer. */
  norm: number;
  /** No two vectors are further apart, zero among them. */
  diameter: number;
  fields: Field[];
  /** What is asked, in a sentence. */
  words: string;
  /** The vector of one record. */
  vector(record: RecordValues): Float64Array;
  /** What a coordinate of the vector stands for: to which part of the question it belongs, and what it counts there. */
  coordinate(place: number): { part: string; counts: string };
}

/** What a question about rows and targets wants of a record. */
export const fieldsOf = ({ columns, target }: Schema): Field[] => [
  ...columns.map((column) =>
    isCategory(column)
      ? { name: column.name, levels: column.levels, others: column.unknown === "zero" }
      : { name: column.name, low: column.low, high: column.high, optional: true, whole: false },
  ),
  "classes" in target
    ? { name: target.column, levels: target.classes, others: false }
    : { name: target.column, low: target.range[0], high: target.range[1], optional: false, whole: false },
];

/** The schema of a question, which may say who is whose and where its ranges come from: a client makes nothing of either. */
export function readFacts(value: Json | undefined): Schema {
  const words = object("schema", value);
  const schema = readSchema(value, ["user", "described"]);
  if (words.has("user") && [...columnsOf(schema), ""].includes(text("user", words.get("user")))) {
    throw new WireError("a schema whose user column has another role, too");
  }
  if (words.has("described")) readDescribed(object("described", words.get("described")), words.has("user"));
  return schema;
}

/** Where a schema's ranges come from. */
function readDescribed(words: JsonObject, byUser: boolean): void {
  names("described", words, ["epsilon", "delta", "users"], ["private", "share", "seed", "rows"]);
  real("described.epsilon", words.get("epsilon"), { above: 0 });
  real("described.delta", words.get("delta"), { above: 0, below: 1 });
  whole("described.users", words.get("users"), { atLeast: 2 });
  if (words.has("private")) flag("described.private", words.get("private"));
  if (["share", "seed", "rows"].some((word) => words.has(word))) throw new WireError(`a schema for which people were set aside${byUser ? ", by name" : ""}`);
}
