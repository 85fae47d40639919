/** What runs on a device: check the promise, answer once, and let nothing but sealed noise leave. */
import { type Bytes, fromHex, joined } from "./bytes.ts";
import { names, object, real, whole } from "./checks.ts";
import { randomBytes } from "./crypto.ts";
import { checkDemands, type Demands, requireDemands } from "./demands.ts";
import { type Randomized, randomized } from "./encoding.ts";
import { RecordError, RefusedTaskError, ServerError, WireError } from "./errors.ts";
import { type BudgetLimit, beyondBudget, budgetUse, type LedgerEntry, ledgerOf, limitOf, momentOf, spent } from "./budget.ts";
import { gaussianBound } from "./guarantee.ts";
import { claimName, claimToken } from "./invitation.ts";
import { parseJson } from "./json.ts";
import { inPieces, type Pieces } from "./pieces.ts";
import { meanGradient, meanStage, type Problem, type Row } from "./problem.ts";
import type { Counted } from "./question.ts";
import { meanVector } from "./questions.ts";
import { type RandomSource, secureRandom } from "./random.ts";
import type { RecordValues } from "./records.ts";
import { requirePrivateWay } from "./addresses.ts";
import { sealedReport } from "./report.ts";
import type { Entry, Store } from "./store.ts";
import { boundTo, type End, hasBlocks, lotsIn, mostAnswers, phaseOf, readEnd, readRound, readTask, roundsOf, slotOf, type Task, type TaskRound } from "./task.ts";
import { collectTokens, tokenOf, tokenSlot } from "./tokens.ts";

const TOO_LATE = 410;
const LATER = [null, 409, 429, 500, 502, 503, 504];
const MOST_ANSWER_BYTES = 1 << 26;
const PAUSE = 0.5;

export interface ClientOptions extends Demands {
  /** The shuffler's address. */
  shuffler: string;
  /** What the user was enrolled with; or the code of an invitation, which this device claims when it first needs a token. */
  token?: string;
  code?: string;
  /** 64 hex digits, known from elsewhere than the shuffler. */
  analyzerKey: string;
  /** What the task's enroller knows the user by, where the task has one. */
  invitation?: string;
  /** What the device remembers. */
  store: Store;
  /**
   * What all tasks of all analyzers together may reveal within any period ("365d", "12h", "4w", or seconds; for ever where there is
   * none), of those that this store remembers. The store keeps the limit for every later client; where none is given its own counts.
   */
  budget?: { epsilon: number; delta: number; period?: string | number };
  /** Answer as soon as the gradient is ready: for synthetic people only, since the time of an answer then depends on records. */
  atOnce?: boolean;
  /** Seconds after which the shuffler is out of reach. */
  timeout?: number;
  /** For tests; the clock in seconds since 1970. */
  random?: RandomSource;
  clock?: () => number;
  fetch?: typeof fetch;
}

/** What came of taking part: a round's number, and whether the answer was blank. */
export interface Sent {
  round: number;
  /** False where a report that had waited was sent again. */
  firstTime: boolean;
  /** Whether the gradient was not ready in time, or the records cannot be read and the task blanks. */
  blank: boolean;
  /** Whether it was no answer but cover: a report that says nothing, in a round that is not this user's lot. */
  cover: boolean;
}

/** What is about to leave, for whoever wants to show it. */
export interface Leaving {
  round: number;
  cover: boolean;
  report: Bytes;
  randomized: Randomized;
}

/** A secret lot, as the shuffler tells its user alone: the round, null where it is asked in none, seconds until that can begin, and in a task with blocks which one it sends there. */
export interface Lot {
  round: number | null;
  wait: number;
  block?: number;
}

/** What is made of records, at once or in pieces; it may give up where it is late. */
type Make<Made> = (given: Records, isLate: () => boolean) => Made | null | Promise<Made | null>;
/** A user's records, or where they come from: rows as the problem has them, or values by the task's columns. */
export type Records = readonly Row[] | readonly RecordValues[];
export type RecordsSource = Records | Promise<Records> | (() => Records | Promise<Records>);

const now = (): number => performance.now() / 1000;
const until = (moment: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, Math.max(0, (moment - now()) * 1000)));

/** One user. Its store is its memory: which rounds it has answered, and a report until the shuffler has it. */
export class Client {
  readonly #options: ClientOptions;
  readonly #key: Bytes;
  readonly #url: string;
  #limitIsKept = false;
  #token: string | undefined;
  #proved: Task | undefined;
  #task: Task | undefined;

  constructor(options: ClientOptions) {
    const secret = options.token ?? options.code ?? "";
    if (!/^[!-~]+$/.test(secret.trim())) throw new RangeError("token: letters, digits and signs, as it was printed");
    requirePrivateWay(options.shuffler, "shuffler");
    this.#key = fromHex(options.analyzerKey, 32);
    this.#url = options.shuffler.replace(/\/+$/, "");
    this.#options = options;
    checkDemands(options);
    if (options.budget !== undefined) limitOf(options.budget); // refuses what is none before anything is asked
  }

  /** The task, its signature and its promise checked here, not believed. */
  async task(): Promise<Task> {
    if (this.#task === undefined) {
      const task = await this.#provedTask();
      const refusal = this.#beyondBudget(task, await this.#options.store.entries(), await this.#ownersLimit());
      if (refusal !== null) throw new RefusedTaskError(refusal);
      this.#task = task;
    }
    return this.#task;
  }

  async #provedTask(): Promise<Task> {
    if (this.#proved === undefined) {
      const task = await readTask(await this.#send("/v1/task"), this.#key);
      requireDemands(task, this.#options);
      this.#proved = task;
    }
    return this.#proved;
  }

  /** The limit that was given, which the store keeps from now on, or the one that it keeps. */
  async #ownersLimit(): Promise<BudgetLimit | null> {
    const { budget, store } = this.#options;
    if (budget !== undefined && !this.#limitIsKept) await store.keepLimit(limitOf(budget));
    this.#limitIsKept = true;
    return store.limit();
  }

  /** Why all tasks together would reveal too much with this one; null where they would not. */
  #beyondBudget(task: Task, entries: readonly Entry[], limit: BudgetLimit | null): string | null {
    return limit === null ? null : beyondBudget(limit, ledgerOf(entries), task, this.#clock());
  }

  #clock(): number {
    return this.#options.clock?.() ?? Date.now() / 1000;
  }

  /** The round that takes a report of this user now, if there is one; the shuffler keeps a place in it for a minute. */
  async round(): Promise<TaskRound | null> {
    const task = await this.task();
    const data = await this.#send("/v1/round", undefined, await this.#enrolled());
    return data.length === 0 ? null : readRound(data, task, this.#key);
  }

  /** The number of the round that takes reports now, whoever is asked in it, by the analyzer's signed word; null where none does. */
  async openRound(): Promise<number | null> {
    const task = await this.task();
    const data = await this.#send("/v1/round");
    return data.length === 0 ? null : (await readRound(data, task, this.#key)).number;
  }

  /** Whether the task has ended, by the analyzer's signed word; null while it runs, as far as the shuffler knows. */
  async ended(): Promise<End | null> {
    const task = await this.task();
    const data = await this.#send("/v1/end");
    return data.length === 0 ? null : readEnd(data, task, this.#key);
  }

  /** In a task with secret lots, the round that this user is asked in, as the shuffler tells it alone, and seconds until then. */
  async lot(): Promise<Lot> {
    const task = await this.task();
    const data = await this.#send("/v1/lot", undefined, await this.#enrolled());
    const told = readLot(data, task);
    const place = placeOf(task, told);
    if ((await this.#options.store.keepLot(task.id, place)) !== place) {
      throw new RefusedTaskError("the shuffler tells another lot than before: lots are drawn once. Nothing was sent.");
    }
    return told;
  }

  /**
   * Get this user's tokens from the task's enroller: all of them at once, at a time that does not depend on records. Nothing is sent
   * where the task has no enroller, or the tokens are here.
   */
  async collect(): Promise<void> {
    const { id, enroller } = await this.task();
    const { store, invitation } = this.#options;
    const send = (address: string, path: string, body: Bytes, secret: string) => this.#send(path, body, secret, address);
    if (enroller !== null) await collectTokens(store, id, enroller, invitation, send);
  }

  /** How many answers to the task are counted, whatever was heard of them; cover is none. */
  async answered(): Promise<number> {
    const task = await this.task();
    return (await this.#options.store.entries()).filter((entry) => entry.task === task.id && !entry.cover).length;
  }

  /** Whether a report is here that the shuffler is not known to have. */
  async waits(): Promise<boolean> {
    return (await this.#options.store.waiting((await this.task()).id)) !== null;
  }

  /** The part of the budget that all answered tasks, and this one, use up; null without a budget. */
  async budgetUse(): Promise<number | null> {
    const [task, limit] = [await this.#provedTask(), await this.#ownersLimit()];
    return limit === null ? null : budgetUse(limit, ledgerOf(await this.#options.store.entries()), task, this.#clock());
  }

  /**
   * All tasks that were ever answered, the owner's limit, and an epsilon for everything, which holds whenever one looks; at the limit's
   * delta, or 1e-6 where there is none. `epsilonIfWatched` holds to an observer of arrival times, too, who knows everybody's lot.
   */
  async ledger(): Promise<{ limit: BudgetLimit | null; tasks: LedgerEntry[]; epsilon: number; epsilonIfWatched: number; delta: number }> {
    const [limit, tasks] = [await this.#ownersLimit(), ledgerOf(await this.#options.store.entries())];
    const delta = limit?.delta ?? 1e-6;
    const epsilonIfWatched = spent(tasks.map(({ watched }) => watched), delta);
    return { limit, tasks, epsilon: spent(tasks, delta), epsilonIfWatched, delta };
  }

  /**
   * Answer the present round. The report is on disk, and counted, before it is sent; a retry sends the same bytes. Null where there
   * is nothing to answer, it was answered before, or another tab or process of this user is at it.
   */
  async answer(records: RecordsSource, options: AnswerOptions = {}): Promise<Sent | null> {
    const task = await this.task();
    return this.#options.store.alone(() => this.#answer(task, records, options));
  }

  async #answer(task: Task, records: RecordsSource, { watch, signal, again }: AnswerOptions): Promise<Sent | null> {
    const { store } = this.#options;
    const limit = await this.#ownersLimit();
    const within = (known: readonly Entry[]): boolean => this.#beyondBudget(task, known, limit) === null;
    let waiting = await store.waiting(task.id);
    let [firstTime, blank, due] = [false, false, 0];
    if (waiting === null) {
      if (again) return null;
      await this.collect();
      const lot = task.secret?.cover || hasBlocks(task) ? await this.#keptLot(task) : null;
      const round = await this.round();
      if (round === null) return null;
      const came = now();
      const { cover, block } = partOf(task, round, lot);
      const slot = cover ? `${task.id}-cover-${round.number}` : slotOf(task, round);
      const entries = await store.entries();
      if (entries.some((entry) => entry.slot === slot)) return null;
      let gradient: Float64Array | null = null; // of cover: nothing of the records, which would be a second release
      let counted: Counted | undefined;
      const before = latest(task, entries);
      if (!cover) {
        this.#requireRoom(task, round, entries, limit);
        const { stream } = task.question ?? {};
        if (stream) {
          // what is not ready in time does not count; what has counted before does
          counted = (await this.#inTime(task, records, came + task.pace / 2, (given) => stream.counted(given as readonly RecordValues[], round.number, before))) ?? stream.counted([], round.number, before);
          gradient = Float64Array.of(stream.sent(counted.days, round.number));
        } else gradient = await this.#gradient(task, round, records, came + task.pace / 2);
      }
      [firstTime, blank, due] = [true, gradient === null && !cover, came + task.pace];
      const { plan } = phaseOf(task, round);
      const random = cover ? secureRandom : (this.#options.random ?? secureRandom);
      const noisy = randomized(gradient ?? new Float64Array(plan.dim), plan, random, round.digest, block ?? 0);
      const [place, first] = task.secret === null ? [round.number, roundsOf(task, round.phase)[0]] : [lotsIn(task, round.number)[0] + (block ?? 0), 1];
      const tokenAt = task.enroller === null ? undefined : tokenSlot(task.interactivity, task.secret !== null, place, first);
      const token = tokenAt === undefined ? undefined : await tokenOf(store, task.id, tokenAt);
      const report = await sealedReport(task.transport, boundTo(round, block), noisy.counts, plan, round.key, token);
      const entry = this.#entry(slot, task, round.number, round.phase, entries);
      if (cover) entry.cover = true;
      if (tokenAt !== undefined) entry.token = tokenAt;
      if (counted !== undefined) entry.counted = counted;
      const same = (known: Entry[]): boolean => latest(task, known)?.until === before?.until; // no other tab has settled more days
      const room = (known: Entry[]): boolean => cover || (within(known) && this.#hasRoom(task, round, known) && same(known));
      if (!(await store.keep(entry, report, room))) return null; // another tab was quicker
      waiting = { slot, report };
      watch?.({ round: round.number, cover, report, randomized: noisy });
    } else if (!(await store.entries()).some(({ slot, cover }) => slot === waiting?.slot && cover) && !(await store.again(waiting.slot, momentOf(await store.entries(), this.#clock()), within))) {
      // it counts from when it is sent
      throw new RefusedTaskError(this.#beyondBudget(task, await store.entries(), limit) ?? "the store is in use. Nothing was sent.");
    }
    const counted = await store.entries();
    let entry = counted.find((known) => known.slot === waiting.slot);
    if (entry === undefined) {
      // somebody has lost the ledger: of the report it is known only that it may have been sent
      entry = this.#entry(waiting.slot, task, 0, 0, counted);
      await store.keep(entry, waiting.report, () => true);
    }
    if (!this.#options.atOnce) await until(due);
    if (signal?.aborted) {
      await store.sent(waiting.slot); // it stays counted, and is never made again
      return null;
    }
    try {
      await this.#send("/v1/report", waiting.report, await this.#enrolled());
    } catch (problem) {
      // counted all the same: that it was not used is only the shuffler's word
      if (problem instanceof ServerError && problem.status === TOO_LATE) await store.sent(waiting.slot);
      throw problem;
    }
    await store.sent(waiting.slot);
    return { round: entry.round, firstTime, blank, cover: entry.cover ?? false };
  }

  #entry(slot: string, task: Task, round: number, phase: number, entries: readonly Entry[]): Entry {
    const [now, analyzer] = [momentOf(entries, this.#clock()), this.#options.analyzerKey.toLowerCase()];
    return { slot, task: task.id, round, phase, ...gaussianBound(task.guarantee), watched: gaussianBound(task.guarantee.watched ?? task.guarantee), name: task.name, analyzer, first: now, last: now };
  }

  /** In a task with cover or blocks, this user's lot among all; asked for once. */
  async #keptLot(task: Task): Promise<number | null> {
    const known = await this.#options.store.lot(task.id);
    return known === undefined ? placeOf(task, await this.lot()) : known;
  }

  /** The mean of the records' gradients when it is due and no sooner; null where it is not ready by then, or blank. */
  #gradient(task: Task, round: TaskRound, records: RecordsSource, due: number): Promise<Float64Array | null> {
    return this.#inTime(task, records, due, async (given, isLate) => {
      const mean = await inPieces(vectorOf(task, round, given), isLate);
      return mean?.every(Number.isFinite) ? mean : null;
    });
  }

  /** What is made of the records, when it is due and no sooner; null where it is not ready by then, or blank. */
  async #inTime<Made>(task: Task, records: RecordsSource, due: number, make: Make<Made>): Promise<Made | null> {
    const isLate = (): boolean => !this.#options.atOnce && now() > due;
    const compute = async (): Promise<Made | null> => {
      try {
        const value = await make(await (typeof records === "function" ? records() : records), isLate);
        if (value !== null || task.blanks || isLate()) return value;
      } catch (problem) {
        if (task.blanks || isLate()) return null; // however that shows: nobody but the user is told
        if (problem instanceof RecordError) throw problem;
      }
      throw new RecordError("records that the task cannot take: finite numbers are needed; nothing was sent"); // quotes nothing of a record
    };
    if (this.#options.atOnce) return compute();
    const late = until(due).then(() => null);
    const computed = compute();
    computed.catch(() => undefined);
    const value = await Promise.race([computed, late]);
    if (isLate()) return null; // also where computing kept this thread from looking at its watch
    await late;
    return value;
  }

  /** Every round that wants an answer, until the task needs no more of this user or `wait` seconds are over. */
  async join(records: RecordsSource, options: JoinOptions = {}): Promise<number> {
    const { wait = 60, watch, said, ended, notYet, missed, signal, again } = options;
    const deadline = now() + wait;
    const task = await this.#patiently(() => this.task(), deadline, signal);
    await this.#patiently(() => this.#options.store.alone(() => this.collect()), deadline, signal);
    const lot = task.secret === null ? null : await this.#patiently(() => this.lot(), deadline, signal);
    if (lot !== null && !task.secret?.cover) {
      const tooLate = !this.#options.atOnce && now() + lot.wait >= deadline && (await this.answered()) === 0;
      if (lot.round === null || tooLate) {
        notYet?.(lot);
        return 0;
      }
    }
    const firstAsk = now() + task.pace + (lot === null || task.secret?.cover ? 0 : lot.wait);
    const reading = Promise.resolve(typeof records === "function" ? records() : records);
    reading.catch(() => undefined);
    // From here on every request is at a time that does not depend on what the records are. A device that slept may have stopped
    // its clock that counts seconds, but not the one that tells the time: it asks when either says so.
    const firstMoment = this.#clock() + (firstAsk - now());
    const early = (): boolean => now() < firstAsk && this.#clock() < firstMoment;
    while (!this.#options.atOnce && early() && !signal?.aborted) await until(Math.min(firstAsk, now() + PAUSE));
    let nextLook = now(); // whether this user's round is over: it costs a whole round document, so a few times per round
    const often = task.interactivity === "full" || task.secret?.cover === true;
    const rounds = task.phases.reduce((sum, phase) => sum + phase.rounds, 0);
    let answered = 0;
    const wanted = async (): Promise<boolean> => (!again && (often || (await this.answered()) === 0)) || this.waits();
    while (!signal?.aborted && answered < rounds && (await wanted())) {
      try {
        // days go by between the rounds of a stream: its records are asked for anew
        const given = task.question?.stream ? records : reading;
        const sent = await this.#patiently(() => this.answer(given, { watch, signal, again }), deadline, signal);
        if (sent !== null) {
          answered += 1;
          said?.(sent);
          if (sent.cover && sent.round === rounds) break;
          continue;
        }
      } catch (problem) {
        if (!(problem instanceof ServerError && problem.status === TOO_LATE)) throw problem;
        said?.(null);
        continue;
      }
      if (now() >= deadline) break;
      const end = await this.#patiently(() => this.ended(), deadline, signal);
      if (end !== null) {
        ended?.(end);
        break;
      }
      if (lot !== null && lot.round !== null && task.secret?.cover === false && now() >= nextLook) {
        nextLook = now() + task.secret.seconds / 4;
        const open = await this.#patiently(() => this.openRound(), deadline, signal);
        if (open !== null && open > lot.round && !(await this.waits())) {
          missed?.(lot);
          break;
        }
      }
      await until(now() + PAUSE);
    }
    return answered;
  }

  async #patiently<Result>(ask: () => Promise<Result>, deadline: number, signal?: AbortSignal): Promise<Result> {
    for (;;) {
      try {
        return await ask();
      } catch (problem) {
        const later = problem instanceof ServerError && LATER.includes(problem.status);
        if (!later || now() >= deadline) throw problem;
        if (signal?.aborted) {
          await this.#forget();
          throw problem;
        }
        await until(now() + PAUSE);
      }
    }
  }

  /** A user who leaves sends nothing more, including reports already prepared. */
  async #forget(): Promise<void> {
    const waiting = this.#task === undefined ? null : await this.#options.store.waiting(this.#task.id);
    if (waiting !== null) await this.#options.store.sent(waiting.slot);
  }

  /** Refuse a round beyond those that the phase's plan covers, or a task beyond the budget, whatever the analyzer says. */
  #requireRoom(task: Task, round: TaskRound, entries: readonly Entry[], limit: BudgetLimit | null): void {
    if (!this.#hasRoom(task, round, entries)) {
      throw new RefusedTaskError(`the task asks more often than its plan covers (${mostAnswers(task, phaseOf(task, round))} rounds). Nothing was sent.`);
    }
    const refusal = this.#beyondBudget(task, entries, limit);
    if (refusal !== null) throw new RefusedTaskError(refusal);
  }

  #hasRoom(task: Task, round: TaskRound, entries: readonly Entry[]): boolean {
    const answers = entries.filter((entry) => entry.task === task.id && !entry.cover);
    return answers.every((entry) => entry.phase === round.phase) && answers.length < mostAnswers(task, phaseOf(task, round));
  }

  async #enrolled(): Promise<string> {
    this.#token ??= this.#options.token?.trim() ?? (await this.#claim());
    return this.#token;
  }

  #claim(): Promise<string> {
    return claimToken(this.#options.store, (this.#options.code ?? "").trim(), (path, body, secret) => this.#send(path, body, secret));
  }

  /** Whether this device needs no claim: it has a token, or has begun to claim the code. */
  async isClaimed(): Promise<boolean> {
    const { token, code, store } = this.#options;
    return token !== undefined || (await store.claim(claimName((code ?? "").trim()))) !== undefined;
  }

  /** Claim the invitation's code for this device; no other can use it then. The same device may do so again. */
  async claim(): Promise<void> {
    await this.#enrolled();
  }

  async #send(path: string, body?: Bytes, secret?: string, address = this.#url): Promise<Bytes> {
    const headers: Record<string, string> = secret === undefined ? {} : { Authorization: `Bearer ${secret}` };
    if (body !== undefined) headers["Content-Type"] = "application/octet-stream";
    let response: Response;
    let data: Bytes;
    try {
      response = await (this.#options.fetch ?? fetch)(address + path, {
        method: body === undefined ? "GET" : "POST",
        headers,
        body,
        redirect: "error", // followed, it would bring the token to another server
        credentials: "omit",
        cache: "no-store",
        referrerPolicy: "no-referrer",
        signal: AbortSignal.timeout((this.#options.timeout ?? 30) * 1000),
      });
      data = await wholeBody(response);
    } catch (problem) {
      throw problem instanceof ServerError ? problem : new ServerError(null, `${new URL(address).host} cannot be reached`);
    }
    if (response.status !== 200) throw new ServerError(response.status, new TextDecoder().decode(data.subarray(0, 1000)).trim());
    return data;
  }
}

export interface AnswerOptions {
  /** Hears what is about to leave. */
  watch?: (leaving: Leaving) => void;
  /** Ends it: a report that was made and not sent is forgotten, and counted all the same. */
  signal?: AbortSignal;
  /** Only send again what waits: nothing is made of records, which may be none. */
  again?: boolean;
}

export interface JoinOptions extends AnswerOptions {
  /** Seconds to wait for rounds. */
  wait?: number;
  /** Hears of every answer; null of one that came too late, says the shuffler. */
  said?: (sent: Sent | null) => void;
  /** Hears that the task has ended. */
  ended?: (end: End) => void;
  /** Hears of a secret lot that is no round at all, or one that begins after `wait`: nothing is sent then. */
  notYet?: (lot: Lot) => void;
  /** Hears that the round of a secret lot is over, unanswered: a later one takes reports. */
  missed?: (lot: Lot) => void;
}

/** The body of an answer, up to the longest that there is. */
async function wholeBody({ body }: Response): Promise<Bytes> {
  const parts: Uint8Array[] = [];
  let length = 0;
  if (body === null) return new Uint8Array(0);
  const reader = body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    length += part.value.length;
    if (length > MOST_ANSWER_BYTES) {
      await reader.cancel();
      throw new ServerError(null, "an answer that does not end");
    }
  }
  return joined(...parts);
}

const LOT_BYTES = 64;
const LONGEST_WAIT = 1e13;

/** A lot as the shuffler tells it: a JSON object, filled up with spaces. */
function readLot(data: Bytes, task: Task): Lot {
  if (data.length !== LOT_BYTES) throw new WireError("a lot that is not one");
  const words = object("lot", parseJson(new TextDecoder("utf-8", { fatal: true }).decode(data)));
  const rounds = task.phases.reduce((sum, phase) => sum + phase.rounds, 0);
  const told = words.get("round") ?? null;
  const round = told === null ? null : whole("lot.round", told, { atLeast: 1, atMost: rounds });
  const blocks = round === null ? 1 : lotsIn(task, round)[1];
  const one = blocks > 1;
  names("lot", words, one ? ["round", "block", "wait"] : ["round", "wait"]);
  return {
    round,
    wait: real("lot.wait", words.get("wait"), { atLeast: 0, atMost: LONGEST_WAIT }),
    ...(one && { block: whole("lot.block", words.get("block"), { atLeast: 0, atMost: blocks - 1 }) }),
  };
}

/** The place of a lot among all of the task's, counted from 1: that of its round, where there are no blocks. */
const placeOf = (task: Task, { round, block = 0 }: Lot): number | null => (round === null ? null : lotsIn(task, round)[0] + block);

/** Whether a round is only covered, and the block that is sent in it: the lot's, or as cover one that is drawn afresh; null where there are no blocks. */
function partOf(task: Task, round: TaskRound, lot: number | null): { cover: boolean; block: number | null } {
  const [first, blocks] = lotsIn(task, round.number);
  const mine = lot !== null && lot >= first && lot < first + blocks;
  const cover = task.secret?.cover === true && !mine;
  if (blocks === 1) return { cover, block: null };
  if (mine) return { cover, block: lot - first };
  if (!cover) throw new WireError(`round ${round.number}, which is not this user's lot, wants an answer: lots are drawn once`);
  const [a, b, c] = randomBytes(3);
  return { cover, block: (a + 256 * b + 65536 * c) % blocks }; // a power of two, of at most 2^20
}

/** What has counted in a question over several rounds, by the answer that settled most days. */
function latest(task: Task, entries: readonly Entry[]): Counted | null {
  const kept = entries.flatMap(({ task: id, counted }) => (id === task.id && counted !== undefined ? [counted] : []));
  return kept.reduce<Counted | null>((most, one) => (most === null || one.until > most.until ? one : most), null);
}

/** What a user answers, not yet clipped or randomized: a question's vector, the mean gradient, or the mean of what a stage asks. */
function* vectorOf(task: Task, round: TaskRound, records: Records): Pieces<Float64Array> {
  if (task.question !== null) {
    if (records.some((record) => record.x instanceof Float64Array)) throw new RecordError("this task asks about columns: give values by their names");
    return yield* meanVector(task.question, records as readonly RecordValues[]);
  }
  const [problem, phase, rows] = [task.problem as Problem, phaseOf(task, round), rowsOf(task, records)];
  const { algorithm, share, smoothing, plan } = phase;
  const mean = yield* share === null
    ? meanGradient(problem, round.theta, rows, smoothing, task.blanks)
    : meanStage(problem, { algorithm, share, norm: plan.norm }, round.theta, round.coordinates, rows, task.blanks);
  // numbers of the analyzer that make it overflow: an answer is sent all the same, whatever the record is
  return mean.every(Number.isFinite) ? mean : new Float64Array(mean.length);
}

/** Rows of records one by one, by the task's own words where they are values of its columns. */
function* rowsOf(task: Task, records: Records): Generator<Row> {
  for (const record of records) {
    if (record.x instanceof Float64Array) yield record as Row;
    else if (task.records === null) throw new WireError("this task is not about tables: give rows of numbers");
    else yield task.records.row(record as RecordValues);
  }
}
