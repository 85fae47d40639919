/** Wavelet scattering of grey pictures (docs/protocol.md#feature-maps). Pictures are small: transforms are sums, not fast ones. */
import { list, names, whole } from "./checks.ts";
import { WireError } from "./errors.ts";
import type { Step } from "./features.ts";
import type { JsonObject } from "./json.ts";

const [ANGLES, STEP, SLANT, CHANNELS] = [8, 4, 0.5, 81];

/** Complex numbers on a grid, row by row. */
interface Grid {
  rows: number;
  columns: number;
  re: Float64Array;
  im: Float64Array;
}

const grid = (rows: number, columns: number): Grid => ({ rows, columns, re: new Float64Array(rows * columns), im: new Float64Array(rows * columns) });

/** The discrete Fourier transform (sign -1), or its inverse without its factor (sign 1). */
function transformed(field: Grid, sign: 1 | -1): Grid {
  const { rows, columns } = field;
  const [across, made] = [grid(rows, columns), grid(rows, columns)];
  sums(field, across, columns, 1, rows, columns, sign);
  sums(across, made, rows, columns, columns, 1, sign);
  return made;
}

/** One-dimensional transforms of so many lines: `size` entries, `step` apart; lines begin `next` apart. */
function sums(from: Grid, to: Grid, size: number, step: number, lines: number, next: number, sign: 1 | -1): void {
  const cosines = Float64Array.from({ length: size }, (_, k) => Math.cos((2 * Math.PI * k) / size));
  const sines = Float64Array.from({ length: size }, (_, k) => sign * Math.sin((2 * Math.PI * k) / size));
  for (let line = 0; line < lines; line += 1) {
    for (let k = 0; k < size; k += 1) {
      let [re, im, turn] = [0, 0, 0];
      for (let place = 0, at = line * next; place < size; place += 1, at += step) {
        re += from.re[at] * cosines[turn] - from.im[at] * sines[turn];
        im += from.re[at] * sines[turn] + from.im[at] * cosines[turn];
        turn += k;
        if (turn >= size) turn -= size;
      }
      to.re[line * next + k * step] = re;
      to.im[line * next + k * step] = im;
    }
  }
}

/** A wave under an elliptic bell on a torus. */
function gabor(rows: number, columns: number, scale: number, angle: number, frequency: number): Grid {
  const made = grid(rows, columns);
  const sigma = 0.8 * 2 ** scale;
  const factor = SLANT / (2 * Math.PI * sigma ** 2);
  for (let x = -2 * rows; x < 3 * rows; x += 1) {
    for (let y = -2 * columns; y < 3 * columns; y += 1) {
      const along = x * Math.cos(angle) + y * Math.sin(angle);
      const across = y * Math.cos(angle) - x * Math.sin(angle);
      const height = factor * Math.exp(-(along ** 2 + (SLANT * across) ** 2) / (2 * sigma ** 2));
      const place = ((x + 2 * rows) % rows) * columns + ((y + 2 * columns) % columns);
      made.re[place] += height * Math.cos(frequency * along);
      made.im[place] += height * Math.sin(frequency * along);
    }
  }
  return made;
}

const total = (numbers: Float64Array): number => numbers.reduce((sum, entry) => sum + entry, 0);

/** The transform, which is real, of a wave of mean 0. */
function morlet(rows: number, columns: number, scale: number, index: number): Float64Array {
  const angle = ((ANGLES / 2 - 1 - index) * Math.PI) / ANGLES;
  const wave = gabor(rows, columns, scale, angle, (0.75 * Math.PI) / 2 ** scale);
  const bell = gabor(rows, columns, scale, angle, 0);
  const [re, im] = [total(wave.re) / total(bell.re), total(wave.im) / total(bell.re)];
  bell.re.forEach((height, place) => {
    wave.re[place] -= re * height;
    wave.im[place] -= im * height;
  });
  return transformed(wave, -1).re;
}

/** A Gaussian blur along one side of a padded picture of which every 2^level-th pixel is left: a row of numbers for each pixel of the output. */
function blur(side: number, level: number): Float64Array[] {
  const bell = grid(1, side);
  for (let u = -2 * side; u < 3 * side; u += 1) bell.re[(u + 2 * side) % side] += Math.exp(-(u ** 2) / (2 * 1.6 ** 2)) / (Math.sqrt(2 * Math.PI) * 1.6);
  const whole_ = transformed(bell, -1).re;
  const kept = level === 0 ? [...whole_] : [...whole_.subarray(0, side / 4), ...whole_.subarray(side - side / 4)];
  const size = kept.length;
  const response = transformed({ rows: 1, columns: size, re: Float64Array.from(kept), im: new Float64Array(size) }, 1).re.map((entry) => entry / size);
  return Array.from({ length: side / STEP - 2 }, (_, pixel) =>
    Float64Array.from({ length: size }, (_value, u) => response[((pixel + 1) * (STEP >> level) - u + size) % size]),
  );
}

interface Filters {
  fine: Float64Array[];
  coarse: Float64Array[];
  /** By level: of rows, of columns. */
  blurs: [Float64Array[], Float64Array[]][];
}

function filtersOf(rows: number, columns: number): Filters {
  const waves = (scale: number): Float64Array[] => Array.from({ length: ANGLES }, (_, index) => morlet(rows, columns, scale, index));
  return { fine: waves(0), coarse: waves(1), blurs: [0, 1].map((level) => [blur(rows, level), blur(columns, level)]) };
}

/** The moduli of a wavelet's answers, from the transform of what it is asked about. */
function moduli(spectrum: Grid, filter: Float64Array): Float64Array {
  const { rows, columns } = spectrum;
  const answer = transformed({ rows, columns, re: spectrum.re.map((entry, k) => entry * filter[k]), im: spectrum.im.map((entry, k) => entry * filter[k]) }, 1);
  return answer.re.map((entry, place) => Math.hypot(entry, answer.im[place]) / (rows * columns));
}

/** The same at every second pixel: frequencies that meet there are added up. */
function halvedModuli(spectrum: Grid, filter: Float64Array): Float64Array {
  const [rows, columns] = [spectrum.rows / 2, spectrum.columns / 2];
  const folded = grid(rows, columns);
  for (let place = 0; place < filter.length; place += 1) {
    const to = (Math.floor(place / spectrum.columns) % rows) * columns + ((place % spectrum.columns) % columns);
    folded.re[to] += (spectrum.re[place] * filter[place]) / 4;
    folded.im[to] += (spectrum.im[place] * filter[place]) / 4;
  }
  const answer = transformed(folded, 1);
  return answer.re.map((entry, place) => Math.hypot(entry, answer.im[place]) / (rows * columns));
}

function blurred(pixels: Float64Array, [byRow, byColumn]: [Float64Array[], Float64Array[]]): number[] {
  const columns = byColumn[0].length;
  return byRow.flatMap((weights) => {
    const line = Float64Array.from({ length: columns }, (_, column) => weights.reduce((sum, weight, row) => sum + weight * pixels[row * columns + column], 0));
    return byColumn.map((others) => others.reduce((sum, weight, column) => sum + weight * line[column], 0));
  });
}

const reflected = (place: number, size: number): number => (place < 0 ? -place : place >= size ? 2 * size - 2 - place : place);

/** The 81 channels of a picture, one after the other. */
function scattered(x: Float64Array, height: number, width: number, { fine, coarse, blurs }: Filters): Float64Array {
  const padded = grid(height + 2 * STEP, width + 2 * STEP);
  const { rows, columns } = padded;
  padded.re.forEach((_, place) => {
    const [row, column] = [Math.floor(place / columns) - STEP, (place % columns) - STEP];
    padded.re[place] = x[reflected(row, height) * width + reflected(column, width)];
  });
  const spectrum = transformed(padded, -1);
  const layers = fine.map((filter) => moduli(spectrum, filter));
  const spectra = [spectrum, ...layers.map((re) => transformed({ rows, columns, re, im: new Float64Array(re.length) }, -1))];
  const channels = [padded.re, ...layers].map((pixels) => blurred(pixels, blurs[0]));
  for (const one of spectra) for (const filter of coarse) channels.push(blurred(halvedModuli(one, filter), blurs[1]));
  return Float64Array.from(channels.flat());
}

/** The step of a map that scatters pictures of a shape. */
export function readScattering(words: JsonObject, inputs: number): Step {
  names("features", words, ["kind", "shape"]);
  const sides = list("features.shape", words.get("shape"));
  const [height, width] = sides.map((side) => whole("features.shape", side, { atLeast: 2 * STEP, atMost: 1024 }));
  if (sides.length !== 2 || height % STEP !== 0 || width % STEP !== 0 || height * width !== inputs) {
    throw new WireError("a task whose pictures have not the sides that it says, multiples of 4");
  }
  let filters: Filters | null = null;
  const apply = (x: Float64Array): Float64Array => scattered(x, height, width, (filters ??= filtersOf(height + 2 * STEP, width + 2 * STEP)));
  return { kind: "scattering", outputs: CHANNELS * (height / STEP) * (width / STEP), apply };
}
