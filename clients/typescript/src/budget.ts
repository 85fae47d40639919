/**
 * An owner's budget: what all tasks of all analyzers may learn within any period, counted before anything is sent. A filter decides
 * (accounting, section 4): caps on the squares of mu and on slacks, over a sliding window. The rules of src/croupier/service/client/budget.py.
 */
import { NoCertificateError } from "./errors.ts";
import { deltaOf, epsilonOf, type Guarantee, gaussianBound, gaussianGuarantee } from "./guarantee.ts";
import { gaussianMu } from "./normal.ts";
import { exact, roundUp } from "./rounding.ts";
import type { Entry } from "./store.ts";

const SLACK_SHARE = 0.25;
const GAUSSIAN_SHARE = (1 - SLACK_SHARE) * (1 - 1e-12);
const ROUND_UP = 1 + 1e-12;
const LEAST_MU = 1e-3;
const MOST_MU = 1e3;
const DAY = 86400;
const LAST_MOMENT = 253402300799; // the end of the year 9999
const SECONDS: Record<string, number> = { h: 3600, d: DAY, w: 7 * DAY };

/** What an owner allows all tasks together to learn that are begun within any period. */
export interface BudgetLimit {
  epsilon: number;
  delta: number;
  /** The length of a period in seconds; null for ever. */
  seconds: number | null;
}

/** One task on the ledger: what it may reveal, when its first and its last answer was written down, and how many there were. */
export interface LedgerEntry {
  task: string;
  name: string;
  analyzer: string;
  mu: number;
  slack: number;
  /** The same to an observer of arrival times; endless where an entry of an earlier version does not say. */
  watched: GaussianBound;
  first: number;
  last: number;
  answers: number;
}

/** At most as telling as N(mu, 1) against N(0, 1), but for `slack`. */
export interface GaussianBound {
  mu: number;
  slack: number;
}

/** Caps on the squares of mu and on slacks that keep (epsilon, delta) for tasks chosen one after the other (accounting, Theorem F). */
export class Budget {
  readonly epsilon: number;
  readonly delta: number;
  readonly #mu: number;
  readonly #slack: number;

  constructor(epsilon: number, delta: number) {
    if (!(epsilon > 0 && epsilon < Infinity && delta > 0 && delta < 1)) {
      throw new RangeError("budget: an epsilon above 0 and a delta between 0 and 1 are needed");
    }
    this.epsilon = epsilon;
    this.delta = delta;
    this.#mu = gaussianMu(epsilon, GAUSSIAN_SHARE * delta);
    this.#slack = SLACK_SHARE * delta;
  }

  /** Which parts of the two caps some tasks use up, rounded up; above 1 is too much. */
  parts(bounds: readonly GaussianBound[]): [number, number] {
    const part = together(bounds) / this.#mu;
    const used: [number, number] = [part * part, (slacks(bounds) / this.#slack) * ROUND_UP];
    if (used.some(Number.isNaN)) throw new NoCertificateError("a task without figures that can be added up");
    return used;
  }

  /** The larger of both parts. */
  use(bounds: readonly GaussianBound[]): number {
    return Math.max(...this.parts(bounds));
  }
}

/** The root of the sum of squares, rounded up. */
const together = (bounds: readonly GaussianBound[]): number => Math.hypot(...bounds.map(({ mu }) => mu)) * ROUND_UP;
const slacks = (bounds: readonly GaussianBound[]): number => bounds.reduce((sum, { slack }) => sum + slack, 0);

/** A limit as an owner says it: a period such as "365d", "12h" or "4w", or seconds; for ever where there is none. */
export function limitOf(said: { epsilon: number; delta: number; period?: string | number }): BudgetLimit {
  new Budget(said.epsilon, said.delta); // refuses what is none
  const seconds = said.period === undefined ? null : typeof said.period === "string" ? periodOf(said.period) : said.period;
  if (seconds !== null && !(seconds > 0 && seconds < Infinity)) throw new RangeError("period: hours, days or weeks are needed, such as 365d");
  return { epsilon: said.epsilon, delta: said.delta, seconds };
}

/** The seconds of a period that a person wrote. */
export function periodOf(text: string): number {
  const found = /^(\d+(?:\.\d+)?)([hdw])$/.exec(text.trim());
  if (found === null || !(Number(found[1]) > 0)) throw new RangeError("period: a number and h, d or w are needed, above 0, such as 365d for a year");
  return Number(found[1]) * SECONDS[found[2]];
}

/** A period in days, or in hours where it is shorter than a day. */
export function periodText(seconds: number): string {
  const [number, unit] = seconds >= DAY ? [seconds / DAY, "days"] : [seconds / 3600, "hours"];
  return `${Number(number.toPrecision(6))} ${unit}`;
}

const UNKNOWN: GaussianBound = { mu: Infinity, slack: 1 };

/** The tasks that were answered, in the order of their first answers; cover is no answer. */
export function ledgerOf(entries: readonly Entry[]): LedgerEntry[] {
  const tasks = new Map<string, LedgerEntry>();
  for (const { task, name = "", analyzer = "", mu, slack, watched = UNKNOWN, first = Infinity, last = Infinity, cover } of entries) {
    if (cover) continue;
    // an answer without its time counts whenever one looks
    const known = tasks.get(task) ?? { task, name, analyzer, mu, slack, watched, first: Infinity, last: 0, answers: 0 };
    tasks.set(task, {
      ...known,
      mu: Math.max(known.mu, mu),
      slack: Math.max(known.slack, slack),
      watched: { mu: Math.max(known.watched.mu, watched.mu), slack: Math.max(known.watched.slack, watched.slack) },
      first: Math.min(known.first, first),
      last: Math.max(known.last, last),
      answers: known.answers + 1,
    });
  }
  return [...tasks.values()].sort((one, other) => one.first - other.first || 0);
}

/** When an answer is written down: never before an earlier one, since by a clock that was set back it would cease to count too soon. */
export const momentOf = (entries: readonly Entry[], now: number): number => entries.reduce((latest, { last }) => Math.max(latest, last ?? 0), now);

/** The tasks that count now: those with an answer within the last period, and later by the clock where it was set back. */
export const counted = (limit: BudgetLimit, ledger: readonly LedgerEntry[], now: number): LedgerEntry[] =>
  limit.seconds === null ? [...ledger] : ledger.filter(({ last }) => last > now - (limit.seconds as number));

/** Which part of the caps is used by all that counts now, and by this task. */
export function budgetUse(limit: BudgetLimit, ledger: readonly LedgerEntry[], task: { id: string; guarantee: Guarantee }, now: number): number {
  return new Budget(limit.epsilon, limit.delta).use(boundsWith(limit, ledger, task, now).bounds);
}

function boundsWith(limit: BudgetLimit, ledger: readonly LedgerEntry[], task: { id: string; guarantee: Guarantee }, now: number) {
  const others = counted(limit, ledger, now).filter((entry) => entry.task !== task.id);
  const before = ledger.find((entry) => entry.task === task.id) ?? gaussianBound(task.guarantee);
  return { others, bounds: [before, ...others] };
}

/** Why a task may not be answered now; null where it may. */
export function beyondBudget(
  limit: BudgetLimit,
  ledger: readonly LedgerEntry[],
  task: { id: string; guarantee: Guarantee },
  now: number,
): string | null {
  const budget = new Budget(limit.epsilon, limit.delta);
  const { others, bounds } = boundsWith(limit, ledger, task, now);
  const [squares, slack] = budget.parts(bounds);
  // A task that keeps the limit by itself is taken even beyond a cap, where nothing else counts; and then nothing after it.
  if (Math.max(squares, slack) <= 1 || (others.length === 0 && deltaOf(task.guarantee, limit.epsilon) <= limit.delta)) return null;
  const within = limit.seconds === null ? "together" : `within any ${periodText(limit.seconds)}`;
  return (
    `with this task, what ${others.length + 1} tasks may learn ${within} is beyond the owner's limit, epsilon = ${exact(limit.epsilon)} at ` +
    `delta = ${exact(limit.delta)}: their ${squares > 1 ? "squares of mu" : "slacks"} would be ${roundUp(Math.max(squares, slack))} times the ` +
    `cap on them. ${room(limit, budget, bounds[0], others)} Nothing was sent.`
  );
}

/** When there will be room, if nothing else is answered until then. */
function room(limit: BudgetLimit, budget: Budget, own: GaussianBound, others: readonly LedgerEntry[]): string {
  if (budget.use([own]) > 1) return "It is beyond the limit by itself.";
  const waiting = [...others].sort((one, other) => one.last - other.last || 0);
  const left = waiting.findIndex((_, place) => budget.use([own, ...waiting.slice(place + 1)]) <= 1);
  if (limit.seconds === null || !(waiting[left].last < Infinity)) return "The limit has no period after which there is room again.";
  const seconds = waiting[left].last + limit.seconds;
  if (!(seconds < LAST_MOMENT)) return "There is room for it after the year 9999.";
  const moment = new Date(seconds * 1000).toISOString();
  return `There is room for it after ${moment.slice(0, 10)} ${moment.slice(11, 16)} UTC.`;
}

/** An epsilon for everything that was ever answered, which holds whenever one looks (the odometer of section 4). */
export function spent(ledger: readonly GaussianBound[], delta: number): number {
  if (ledger.length === 0) return 0;
  const mu = together(ledger);
  if (!(mu <= MOST_MU) || slacks(ledger) > SLACK_SHARE * delta) return Infinity;
  const first = Math.max(LEAST_MU, ledger[0].mu);
  // a little more, so that four equal tasks have exactly twice the mu of one
  const cap = (place: number): number => first * (2 ** 0.25) ** place * (1 + 1e-9);
  let place = 0;
  while (cap(place) < mu) place += 1;
  return epsilonOf(gaussianGuarantee(cap(place), 0), (GAUSSIAN_SHARE * delta) / ((place + 1) * (place + 2)));
}
