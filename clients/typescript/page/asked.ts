/** What rounds about rows ask, in words. */
import type { Phase, Problem, Task } from "../src/index.ts";

const ASKED: Record<string, string> = {
  mean: " about your record's numbers",
  spread: " about your record's numbers and their squares",
  moments: " about products of your record's numbers",
  line: " about how much further the model should go",
};

/** What the rounds of a phase ask about rows, where they do. */
export const askedWords = ({ algorithm }: Pick<Phase, "algorithm">): string => ASKED[algorithm] ?? "";

/** What each of so many numbers is about: of a gradient, or of what a round asks about rows. */
export function numberNames({ problem, records }: Pick<Task, "problem" | "records">, { algorithm, share }: Pick<Phase, "algorithm" | "share">, size: number): string[] {
  const { loss, features } = problem as Problem;
  const columns = records === null ? [] : [...records.features, "constant", "target"];
  const column = (place: number): string => columns[place] ?? `${place + 1}`;
  if (algorithm === "moments") {
    const width = features + (loss.targetBound === undefined ? 0 : 1);
    return Array.from({ length: width }, (_, one) => Array.from({ length: width - one }, (_other, more) => `${column(one)} times ${column(one + more)}`)).flat();
  }
  if (algorithm === "mean") return Array.from({ length: size }, (_, place) => column(place));
  if (algorithm === "spread") return Array.from({ length: size }, (_, place) => (place < features ? column(place) : `${column(place - features)} squared`));
  const classes = records !== null && "classes" in records.target ? records.target.classes : [];
  return Array.from({ length: size }, (_, place) => {
    const one = place % features;
    const name = share === null ? (columns[one] ?? `${place + 1}`) : `direction ${one + 1}`; // a coordinate is no column
    return loss.outputs > 1 ? `${classes[Math.floor(place / features)] ?? ""}: ${name}` : name;
  });
}
