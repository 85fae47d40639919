/** What a client demands of a task before it answers: promises that it computes itself, work that it can do, the right enroller. */
import { requirePrivateWay } from "./addresses.ts";
import { RefusedTaskError } from "./errors.ts";
import { epsilonOf } from "./guarantee.ts";
import { reportBytes } from "./report.ts";
import { exact, roundUp } from "./rounding.ts";
import type { Task } from "./task.ts";
import { TOKEN_BYTES } from "./tokens.ts";

/** The weakest promises that are accepted for everything a task will ask, and what else a task has to be. */
export interface Demands {
  /** The largest epsilon that the user accepts for the whole task; default: 1 at delta 1e-6. */
  maxEpsilon?: number;
  maxDelta?: number;
  /** With secret lots: the largest epsilon to an attacker who also knows when each user answered; default: 10, Infinity: any. */
  maxEpsilonIfWatched?: number;
  /** The longest report to send; default: 4 000 000 bytes. */
  maxReportBytes?: number;
  /** The enroller's address, known from elsewhere than the task: a task that names another, or none, is refused. */
  enroller?: string;
}

/** Refuse demands that are none. */
export function checkDemands({ maxEpsilon = 1, maxDelta = 1e-6, maxEpsilonIfWatched = 10, maxReportBytes = 1, enroller }: Demands): void {
  if (!(maxEpsilon > 0 && maxEpsilon < Infinity)) throw new RangeError("maxEpsilon: the weakest promise that you accept, above 0");
  if (!(maxDelta > 0 && maxDelta < 1)) throw new RangeError("maxDelta: of the weakest promise that you accept, above 0 and below 1");
  if (!(maxEpsilonIfWatched > 0)) throw new RangeError("maxEpsilonIfWatched: above 0, or Infinity");
  if (!(Number.isInteger(maxReportBytes) && maxReportBytes >= 1)) throw new RangeError("maxReportBytes: a whole number, at least 1");
  if (enroller !== undefined) requirePrivateWay(enroller, "enroller");
}

/** Refuse a task that promises less, asks for longer reports, or has another enroller. */
export function requireDemands(task: Task, demands: Demands): void {
  const { maxEpsilon = 1, maxDelta = 1e-6, maxEpsilonIfWatched = 10, maxReportBytes = 4_000_000, enroller } = demands;
  const trimmed = (address: string): string => address.replace(/\/+$/, "");
  const named = task.enroller?.address;
  if (enroller !== undefined && (named === undefined || trimmed(named) !== trimmed(enroller))) {
    const said = named === undefined ? "has no enroller" : `names the enroller ${named}`;
    throw new RefusedTaskError(`the task ${said}; ${enroller} is demanded. Nothing was sent.`);
  }
  const token = task.enroller === null ? 0 : TOKEN_BYTES;
  const longest = Math.max(...task.phases.map(({ plan }) => reportBytes(task.transport, plan))) + token;
  if (longest > maxReportBytes) {
    throw new RefusedTaskError(
      `the task asks for reports of ${longest.toLocaleString("en")} bytes by ${task.transport}, more than the ` +
        `${maxReportBytes.toLocaleString("en")} that are allowed here. Nothing was sent.`,
    );
  }
  if (task.guarantee.neighbours !== "replace-one") throw new RefusedTaskError("the task promises for other neighbours than replace-one. Nothing was sent.");
  const { watched } = task.guarantee;
  const ifWatched = watched === null ? 0 : epsilonOf(watched, maxDelta);
  if (!(ifWatched <= maxEpsilonIfWatched)) {
    throw new RefusedTaskError(
      `to an attacker who also knows when each person answered, the task reveals epsilon = ${roundUp(ifWatched)} at delta = ${exact(maxDelta)}, ` +
        `more than the ${maxEpsilonIfWatched} that is allowed here. Nothing was sent.`,
    );
  }
  const epsilon = epsilonOf(task.guarantee, maxDelta);
  if (!(epsilon <= maxEpsilon)) {
    throw new RefusedTaskError(
      `the task reveals epsilon = ${roundUp(epsilon)} at delta = ${exact(maxDelta)}, more than the ${maxEpsilon} that is allowed here. Nothing was sent.`,
    );
  }
}
