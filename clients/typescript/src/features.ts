/** Public feature maps: what a linear model sees of a record, by a task's words and that record alone (docs/protocol.md#feature-maps). */
import { blake2b } from "@noble/hashes/blake2.js";
import { ascii } from "./bytes.ts";
import { list, names, object, oneOf, real, whole } from "./checks.ts";
import { WireError } from "./errors.ts";
import type { Json, JsonObject } from "./json.ts";
import { KeyedRandom } from "./random.ts";
import { readScattering } from "./scattering.ts";

const COINS = 256;
const WEIGHTS_AT_ONCE = 1 << 13;
const MOST = 2 ** 20;
const MOST_WEIGHTS = 2 ** 24;
const MOST_STEPS = 16;
const ROOM = 1 + 1e-7;

/** A step of a map: how many entries a row has after it, and these. Of a whole map, the kind is its last step's. */
export interface Step {
  kind: string;
  outputs: number;
  apply(x: Float64Array): Float64Array;
}

const ONES = Uint8Array.from({ length: 256 }, (_, byte) => byte.toString(2).replaceAll("0", "").length);

/** The public weights of a kind of step and a seed, each times a factor: the same bits as Python's. */
export function publicWeights(kind: string, seed: number, count: number, factor = 1): Float64Array {
  const source = new KeyedRandom(blake2b(ascii(`croupier features ${kind} ${seed}`), { dkLen: 32 }) as Uint8Array<ArrayBuffer>);
  const weights = new Float64Array(count);
  for (let start = 0; start < count; start += WEIGHTS_AT_ONCE) {
    const part = Math.min(WEIGHTS_AT_ONCE, count - start);
    const coins = source.draw((part * COINS) / 8);
    for (let place = 0; place < part; place += 1) {
      let ones = 0;
      for (let byte = 0; byte < COINS / 8; byte += 1) ones += ONES[coins[(place * COINS) / 8 + byte]];
      weights[start + place] = ((ones - COINS / 2) / 8) * factor;
    }
  }
  return weights;
}

/** x times a matrix that stands row by row. */
function times(x: Float64Array, matrix: Float64Array, columns: number): Float64Array {
  const sums = new Float64Array(columns);
  x.forEach((entry, row) => {
    for (let column = 0; column < columns; column += 1) sums[column] += entry * matrix[row * columns + column];
  });
  return sums;
}

/** Weights are drawn when the first row comes: a task that is only read costs nothing. */
function lazily(draw: () => Float64Array): () => Float64Array {
  let drawn: Float64Array | null = null;
  return () => (drawn ??= draw());
}

function sized(words: JsonObject, inputs: number, atLeast: number): [number, number] {
  const size = whole("features.size", words.get("size"), { atLeast, atMost: Math.min(MOST, Math.floor(MOST_WEIGHTS / inputs)) });
  return [size, whole("features.seed", words.get("seed"), { atLeast: 0, atMost: Number.MAX_SAFE_INTEGER })];
}

function readFourier(words: JsonObject, inputs: number): Step {
  names("features", words, ["kind", "scale", "seed", "size"]);
  const [outputs, seed] = sized(words, inputs, 2);
  const scale = real("features.scale", words.get("scale"), { above: 1e-9, atMost: 1e9 });
  if (outputs % 2 !== 0) throw new WireError("a task with an odd number of Fourier features");
  const half = outputs / 2;
  const weights = lazily(() => publicWeights("fourier", seed, inputs * half, 1 / scale));
  const factor = 1 / Math.sqrt(half);
  const apply = (x: Float64Array): Float64Array => {
    const angles = times(x, weights(), half);
    return Float64Array.from({ length: outputs }, (_, k) => (k < half ? Math.cos(angles[k]) : Math.sin(angles[k - half])) * factor);
  };
  return { kind: "fourier", outputs, apply };
}

function readProjection(words: JsonObject, inputs: number): Step {
  names("features", words, ["kind", "seed", "size"]);
  const [outputs, seed] = sized(words, inputs, 1);
  const weights = lazily(() => publicWeights("projection", seed, inputs * outputs, 1 / Math.sqrt(outputs)));
  return { kind: "projection", outputs, apply: (x) => times(x, weights(), outputs) };
}

function readGroupNorm(words: JsonObject, inputs: number): Step {
  names("features", words, ["kind", "groups", "epsilon"]);
  const groups = whole("features.groups", words.get("groups"), { atLeast: 1, atMost: MOST });
  const epsilon = real("features.epsilon", words.get("epsilon"), { above: 0, atMost: 1e9 });
  if (inputs % groups !== 0) throw new WireError("a task whose groups do not have equally many columns");
  const width = inputs / groups;
  const mean = (part: Float64Array, of: (entry: number) => number): number => part.reduce((sum, entry) => sum + of(entry), 0) / width;
  const apply = (x: Float64Array): Float64Array => {
    const made = new Float64Array(inputs);
    for (let start = 0; start < inputs; start += width) {
      const part = x.subarray(start, start + width);
      const middle = mean(part, (entry) => entry);
      const spread = Math.sqrt(mean(part, (entry) => (entry - middle) ** 2) + epsilon);
      for (let place = 0; place < width; place += 1) made[start + place] = (part[place] - middle) / spread;
    }
    return made;
  };
  return { kind: "group-norm", outputs: inputs, apply };
}

const KINDS = { fourier: readFourier, projection: readProjection, "group-norm": readGroupNorm, scattering: readScattering };

/** At most 1 long, whatever the map was. */
function unit(x: Float64Array): Float64Array {
  const largest = x.reduce((most, entry) => Math.max(most, Math.abs(entry)), 0);
  const even = x.map((entry) => entry / (largest > 0 ? largest : 1));
  const length = Math.sqrt(even.reduce((sum, entry) => sum + entry * entry, 0));
  const divisor = (length > 0 ? length : 1) * ROOM;
  return even.map((entry) => entry / divisor);
}

/** The map that a schema states, for rows of so many entries; what it gives is at most 1 long. */
export function readFeatures(value: Json | undefined, inputs: number): Step {
  const words = object("features", value);
  names("features", words, ["steps"]);
  const told = list("features.steps", words.get("steps"));
  if (told.length === 0 || told.length > MOST_STEPS) throw new WireError(`a task whose map has not 1 to ${MOST_STEPS} steps`);
  const steps: Step[] = [];
  for (const one of told) {
    const step = object("features.steps", one);
    const kind = oneOf("features.kind", step.get("kind"), Object.keys(KINDS) as (keyof typeof KINDS)[]);
    steps.push(KINDS[kind](step, steps.at(-1)?.outputs ?? inputs));
  }
  const { kind, outputs } = steps[steps.length - 1];
  return { kind, outputs, apply: (x) => unit(steps.reduce((row, step) => step.apply(row), x)) };
}
