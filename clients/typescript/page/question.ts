/** A question on the page: what is asked in plain words, and a record's answer beside the noise that was sent in its place. */
import { cleaned, type Field, type Question, type Randomized, type RecordValues } from "../src/index.ts";

const SVG = "http://www.w3.org/2000/svg";
const MOST_STRIPS = 12;
const MOST_ROWS = 400;
const FEWEST_BARS = 4;
const MOST_NAMES = 6;
const MOST_BARS = 200;

/** An element with a text, which may be somebody else's: it is shown without characters that nobody sees. */
export function made(name: string, text = "", more: Record<string, string> = {}): HTMLElement {
  const element = document.createElement(name);
  element.textContent = cleaned(text);
  for (const [attribute, value] of Object.entries(more)) element.setAttribute(attribute, value);
  return element;
}

export const count = (number: number): string => number.toLocaleString("en");

/** What is asked of each column, as terms and their explanations. */
export function columnWords({ fields }: Question): HTMLElement[] {
  return fields.flatMap((field) => {
    if ("levels" in field) {
      const more = field.others ? `; anything else counts as ${field.nothing ? "something else" : "none of them"}` : "";
      const levels = `${field.levels.slice(0, 12).join(", ")}${field.levels.length > 12 ? ", …" : ""}`;
      return [made("dt", field.name), made("dd", `one of ${levels}${more}`)];
    }
    if ("text" in field) return [made("dt", field.name), made("dd", field.text === "date" ? "a date like 2030-01-31, or nothing" : "a text, or nothing")];
    if ("shape" in field) return [made("dt", field.name), made("dd", `a picture of ${field.shape.join(" x ")} pixels`)];
    const bins = field.bins === undefined ? "" : `, counted in ${count(field.bins)} ${field.bins === 1 ? "bin" : "bins"}`;
    const words = `a number, ${field.outside === "counted" ? "expected" : "taken to be"} between ${count(field.low)} and ${count(field.high)}${bins}`;
    return [made("dt", field.name), made("dd", words)];
  });
}

/** A form with one input for each field. It is no `form` element: there a column called "append" would hide what is called so. */
export function fillForm(form: HTMLElement, fields: readonly Field[]): void {
  fields.forEach((field, place) => {
    const id = `field-${place}`;
    const label = made("label", field.name, { for: id });
    let input: HTMLElement;
    if ("levels" in field) {
      input = made("select", "", { id, name: field.name });
      input.append(made("option", "choose …", { value: "" }));
      for (const level of field.levels) input.append(made("option", level, { value: level }));
      if (field.others) input.append(made("option", "something else", { value: "\u0000 something else" }));
      if (field.nothing) input.append(made("option", "no answer", { value: "" }));
    } else if ("text" in field) {
      label.append(made("small", `${field.text === "date" ? "a date" : "a text"}, or leave it empty`));
      input = made("input", "", { id, name: field.name, type: field.text, autocomplete: "off" });
    } else if ("shape" in field) {
      label.append(made("small", `a picture; it becomes grey, and ${field.shape.join(" x ")} pixels, on this device`));
      input = made("input", "", { id, name: field.name, type: "file", accept: "image/*" });
    } else {
      const outside = field.outside === "counted" ? "expected" : "counted as if";
      const optional = field.optional ? ", or leave it empty" : "";
      label.append(made("small", `a number; ${outside} between ${field.low} and ${field.high}${optional}`));
      input = made("input", "", { id, name: field.name, inputmode: "decimal", autocomplete: "off" });
    }
    form.append(label, input);
  });
}

/** The pixels of a picture that a person has chosen, grey and of the size that the task wants; null where none was chosen. */
export async function pixelsOf(input: HTMLInputElement, field: Field): Promise<number[] | null> {
  const [file] = input.files ?? [];
  if (file === undefined || !("shape" in field)) return null;
  const [height, width] = field.shape;
  const canvas = document.createElement("canvas");
  [canvas.height, canvas.width] = [height, width];
  const drawing = canvas.getContext("2d", { willReadFrequently: true }) as CanvasRenderingContext2D;
  drawing.drawImage(await createImageBitmap(file), 0, 0, width, height);
  const { data } = drawing.getImageData(0, 0, width, height);
  const grey = (place: number): number => (19595 * data[4 * place] + 38470 * data[4 * place + 1] + 7471 * data[4 * place + 2] + 32768) >> 16;
  return Array.from({ length: height * width }, (_, place) => field.low + (grey(place) / 255) * (field.high - field.low));
}

/** At most so many bars: of neighbours the one that is furthest from nothing. */
function thinned(heights: readonly number[]): readonly number[] {
  const each = Math.ceil(heights.length / MOST_BARS);
  if (each <= 1) return heights;
  const further = (far: number, height: number): number => (Math.abs(height) > Math.abs(far) ? height : far);
  return Array.from({ length: Math.ceil(heights.length / each) }, (_, bar) => heights.slice(bar * each, (bar + 1) * each).reduce(further, 0));
}

/** A row of bars, each up or down from the middle by -1 to 1. */
function strip(heights: readonly number[], kind: string, label: string): Element {
  const picture = document.createElementNS(SVG, "svg");
  const width = Math.max(heights.length, FEWEST_BARS);
  const facts = { viewBox: `0 -10 ${width} 20`, preserveAspectRatio: "none", role: "img", class: `strip ${kind}`, "aria-label": label };
  for (const [name, value] of Object.entries(facts)) picture.setAttribute(name, value);
  [{ x: 0, width, y: -0.15, height: 0.3 }, ...heights.map((height, place) => {
    const tall = 10 * Math.min(Math.abs(height), 1);
    return { x: place + 0.08, width: 0.84, y: height > 0 ? -tall : 0, height: tall };
  })].forEach((box) => {
    const bar = document.createElementNS(SVG, "rect");
    for (const [name, value] of Object.entries(box)) bar.setAttribute(name, String(value));
    picture.append(bar);
  });
  return picture;
}

/** Coordinates of one part of the question. */
interface Part {
  name: string;
  first: number;
  last: number;
}

function partsOf(question: Question, sent: number): Part[] {
  const parts: Part[] = [];
  for (let place = 0; place < sent; place += 1) {
    const name = question.coordinate(place).part;
    const known = parts[parts.length - 1];
    if (known?.name === name) known.last = place;
    else parts.push({ name, first: place, last: place });
    if (parts.length > MOST_STRIPS) break;
  }
  return parts.slice(0, MOST_STRIPS);
}

/**
 * What the record says in the question's terms, and for each part of the question a picture of it above one of what was sent, both
 * on one scale: how far each number is from one that says nothing.
 */
export function pictures(question: Question, { said, sent }: Randomized, records: readonly RecordValues[]): HTMLElement[] {
  const most = said.reduce((far, number, place) => Math.max(far, Math.abs(number), Math.abs(sent[place])), 1);
  const own = made("dl");
  for (const { part, counts: words } of records.length === 1 ? question.says(records[0]) : []) own.append(made("dt", part), made("dd", words));
  const figures = partsOf(question, said.length).map(({ name, first, last }) => {
    const figure = made("figure");
    const places = Array.from({ length: last - first + 1 }, (_, index) => first + index);
    const named = places.length <= MOST_NAMES ? places : [first, last];
    const names = made("div", "", { class: places.length <= MOST_NAMES ? "names" : "ends" });
    names.append(...named.map((place) => made("span", question.coordinate(place).counts)));
    while (places.length <= MOST_NAMES && names.childElementCount < FEWEST_BARS) names.append(made("span"));
    figure.append(
      made("figcaption", name),
      made("span", "true, stays here", { class: "what" }),
      strip(thinned(places.map((place) => said[place] / most)), "true", `${name}: what your record says`),
      made("span", "sent, with noise", { class: "what" }),
      strip(thinned(places.map((place) => sent[place] / most)), "sent", `${name}: what was sent`),
      names,
    );
    return figure;
  });
  const words = `Bars show how far a number is from one that carries no data. ${question.note}`;
  return [...(records.length === 1 ? [own] : []), made("p", words), ...figures];
}

/** The table of true and noisy numbers: all of them, or the first of many. */
export function numberRows(question: Question, { said, sent }: Randomized): HTMLElement[] {
  const rows = Array.from(said.slice(0, MOST_ROWS), (number, place) => {
    const { part, counts: words } = question.coordinate(place);
    const row = made("tr");
    row.append(made("th", `${part}: ${words}`, { scope: "row" }), made("td", number.toFixed(3)), made("td", sent[place].toFixed(1)));
    return row;
  });
  if (said.length > MOST_ROWS) {
    const row = made("tr");
    row.append(made("th", `and ${count(said.length - MOST_ROWS)} more`, { scope: "row" }), made("td"), made("td"));
    rows.push(row);
  }
  return rows;
}
