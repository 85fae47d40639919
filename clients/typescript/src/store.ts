/** What a device remembers: which slots it has answered, and a report until the shuffler has it. */
import type { BudgetLimit } from "./budget.ts";
import type { Bytes } from "./bytes.ts";
import type { Counted } from "./question.ts";

/** One answer, counted before it leaves: it may have been taken, whatever is heard of it. */
export interface Entry {
  slot: string;
  task: string;
  round: number;
  phase: number;
  /** What the whole task may reveal, for adding up over tasks: mu and slack of a Gaussian that bounds it. */
  mu: number;
  slack: number;
  /** The same to an observer of arrival times, who knows everybody's lot; entries of earlier versions do not say. */
  watched?: { mu: number; slack: number };
  /** What the analyzer calls the task, and the analyzer's key. */
  name?: string;
  analyzer?: string;
  /** When it was written down, and when it was last sent, in seconds since 1970; without them it counts in every period. */
  first?: number;
  last?: number;
  /** A report that says nothing, in a round that is not this user's lot: no answer. */
  cover?: boolean;
  /** In a question over several rounds, what counts from this answer on. */
  counted?: Counted;
  /** The slot of the token that its report carries, in a task with an enroller; `keep` strikes it out. */
  token?: number;
}

/** One token that is asked for: what the enroller gets to see is `request` alone. All in hex. */
export interface TokenRequest {
  prefix: string;
  request: string;
  inverse: string;
}

/** A task's tokens, one a slot, in hex, "" where it is in a report; or, until they are here, what was asked for. */
export type Wallet = { tokens: string[]; requests?: undefined } | { tokens?: undefined; requests: TokenRequest[] };

/** The wallet without the token of a slot, which is in a report; null where it is not there to be used. */
export function withoutToken(wallet: Wallet | undefined, slot: number): Wallet | null {
  return wallet?.tokens?.[slot - 1] ? { tokens: wallet.tokens.map((token, place) => (place === slot - 1 ? "" : token)) } : null;
}

export interface Store {
  entries(): Promise<Entry[]>;
  /**
   * Write an answer and its report down, both or neither; false, and nothing written, where the slot has an answer already, or
   * `allowed` refuses the entries that are there, or the token that the report carries was used before.
   */
  keep(entry: Entry, report: Bytes, allowed: (entries: Entry[]) => boolean): Promise<boolean>;
  /** Write down that the answer of a slot is sent again at this time; false, and nothing written, where `allowed` refuses. */
  again(slot: string, moment: number, allowed: (entries: Entry[]) => boolean): Promise<boolean>;
  /** Keep what the owner allows all tasks together to learn. */
  keepLimit(limit: BudgetLimit): Promise<void>;
  /** The limit that is kept; null where none is. */
  limit(): Promise<BudgetLimit | null>;
  /** A report of the task that the shuffler is not known to have. */
  waiting(task: string): Promise<{ slot: string; report: Bytes } | null>;
  /** Forget a report; its answer stays counted. */
  sent(slot: string): Promise<void>;
  /** Keep a secret lot, null for none, unless one is kept: its round, or in a task with blocks its place among all lots. What is kept. */
  keepLot(task: string, round: number | null): Promise<number | null>;
  /** The lot that is kept; undefined where none is. */
  lot(task: string): Promise<number | null | undefined>;
  /** The tokens of a task with an enroller; undefined where nothing was asked for yet. */
  wallet(task: string): Promise<Wallet | undefined>;
  /** Keep what is asked for before it is sent, unless something was; what is kept, null where the tokens are here. */
  keepRequests(task: string, requests: TokenRequest[]): Promise<TokenRequest[] | null>;
  /** Keep the tokens in the place of the requests, which could link them to whoever asked; nothing changes where tokens are here. */
  keepTokens(task: string, tokens: string[]): Promise<void>;
  /** Keep the token that this device claims an invitation with, unless one is kept; what is kept. */
  keepClaim(code: string, token: string): Promise<string>;
  /** The token that is kept for an invitation; undefined where none is. */
  claim(code: string): Promise<string | undefined>;
  /** Run alone: null where another tab or process of this user is at it. */
  alone<Result>(work: () => Promise<Result>): Promise<Result | null>;
}

/** The entry as it is when its report is sent at this time. */
export const sentAt = (entry: Entry, moment: number): Entry =>
  entry.last === undefined ? entry : { ...entry, last: Math.max(entry.last, moment) };

/** For tests and synthetic people: forgets everything with the page. */
export class MemoryStore implements Store {
  readonly #entries = new Map<string, Entry>();
  readonly #reports = new Map<string, { task: string; report: Bytes }>();
  readonly #lots = new Map<string, number | null>();
  readonly #wallets = new Map<string, Wallet>();
  readonly #claims = new Map<string, string>();
  #limit: BudgetLimit | null = null;
  #busy = false;

  async entries(): Promise<Entry[]> {
    return [...this.#entries.values()];
  }

  async keep(entry: Entry, report: Bytes, allowed: (entries: Entry[]) => boolean): Promise<boolean> {
    if (this.#entries.has(entry.slot) || !allowed([...this.#entries.values()])) return false;
    if (entry.token !== undefined) {
      const left = withoutToken(this.#wallets.get(entry.task), entry.token);
      if (left === null) return false;
      this.#wallets.set(entry.task, left);
    }
    this.#entries.set(entry.slot, entry);
    this.#reports.set(entry.slot, { task: entry.task, report });
    return true;
  }

  async again(slot: string, moment: number, allowed: (entries: Entry[]) => boolean): Promise<boolean> {
    if (!allowed([...this.#entries.values()])) return false;
    const entry = this.#entries.get(slot);
    if (entry !== undefined) this.#entries.set(slot, sentAt(entry, moment));
    return true;
  }

  async keepLimit(limit: BudgetLimit): Promise<void> {
    this.#limit = limit;
  }

  async limit(): Promise<BudgetLimit | null> {
    return this.#limit;
  }

  async waiting(task: string): Promise<{ slot: string; report: Bytes } | null> {
    for (const [slot, kept] of this.#reports) if (kept.task === task) return { slot, report: kept.report };
    return null;
  }

  async sent(slot: string): Promise<void> {
    this.#reports.delete(slot);
  }

  async keepLot(task: string, round: number | null): Promise<number | null> {
    if (!this.#lots.has(task)) this.#lots.set(task, round);
    return this.#lots.get(task) ?? null;
  }

  async lot(task: string): Promise<number | null | undefined> {
    return this.#lots.get(task);
  }

  async wallet(task: string): Promise<Wallet | undefined> {
    return this.#wallets.get(task);
  }

  async keepRequests(task: string, requests: TokenRequest[]): Promise<TokenRequest[] | null> {
    if (!this.#wallets.has(task)) this.#wallets.set(task, { requests });
    return this.#wallets.get(task)?.requests ?? null;
  }

  async keepTokens(task: string, tokens: string[]): Promise<void> {
    if (this.#wallets.get(task)?.tokens === undefined) this.#wallets.set(task, { tokens });
  }

  async keepClaim(code: string, token: string): Promise<string> {
    if (!this.#claims.has(code)) this.#claims.set(code, token);
    return this.#claims.get(code) ?? token;
  }

  async claim(code: string): Promise<string | undefined> {
    return this.#claims.get(code);
  }

  async alone<Result>(work: () => Promise<Result>): Promise<Result | null> {
    if (this.#busy) return null;
    this.#busy = true;
    try {
      return await work();
    } finally {
      this.#busy = false;
    }
  }
}

/** A browser's: IndexedDB, answers and reports in one transaction; tabs of one origin take turns by a lock. */
export class BrowserStore implements Store {
  readonly #name: string;
  #opened: Promise<IDBDatabase> | undefined;

  /** @param user tells apart several people on one device */
  constructor(user = "") {
    this.#name = `croupier ${user}`.trim();
  }

  #database(): Promise<IDBDatabase> {
    this.#opened ??= new Promise((resolve, reject) => {
      const asked = indexedDB.open(this.#name, 4);
      asked.onupgradeneeded = () => {
        for (const [table, keyPath] of [["entries", "slot"], ["reports", "slot"], ["lots", "task"], ["wallets", "task"], ["limits", "owner"], ["claims", "code"]]) {
          if (!asked.result.objectStoreNames.contains(table)) asked.result.createObjectStore(table, { keyPath });
        }
      };
      asked.onsuccess = () => {
        asked.result.onversionchange = () => asked.result.close(); // a later version's tab does not wait for this one
        resolve(asked.result);
      };
      asked.onerror = () => reject(asked.error);
    });
    return this.#opened;
  }

  async #all<Kind>(table: "entries" | "reports" | "lots" | "wallets" | "limits" | "claims"): Promise<Kind[]> {
    const database = await this.#database();
    return new Promise((resolve, reject) => {
      const asked = database.transaction(table).objectStore(table).getAll();
      asked.onsuccess = () => resolve(asked.result as Kind[]);
      asked.onerror = () => reject(asked.error);
    });
  }

  entries(): Promise<Entry[]> {
    return this.#all<Entry>("entries");
  }

  async keep(entry: Entry, report: Bytes, allowed: (entries: Entry[]) => boolean): Promise<boolean> {
    const database = await this.#database();
    return new Promise((resolve, reject) => {
      // strict: on the disk, not only in the system's memory, before anything is sent
      const change = database.transaction(["entries", "reports", "wallets"], "readwrite", { durability: "strict" });
      let refused = false;
      const refuse = (): void => {
        refused = true;
        change.abort();
      };
      const entries = change.objectStore("entries");
      const before = entries.getAll();
      before.onsuccess = () => {
        const known = before.result as Entry[];
        if (known.some((one) => one.slot === entry.slot) || !allowed(known)) {
          refuse();
          return;
        }
        entries.add(entry);
        change.objectStore("reports").put({ slot: entry.slot, task: entry.task, report });
        if (entry.token === undefined) return;
        const [slot, wallets] = [entry.token, change.objectStore("wallets")];
        const wallet = wallets.get(entry.task);
        wallet.onsuccess = () => {
          const left = withoutToken(wallet.result as Wallet | undefined, slot);
          if (left === null) refuse();
          else wallets.put({ task: entry.task, ...left });
        };
      };
      change.oncomplete = () => resolve(true);
      change.onabort = () => (refused ? resolve(false) : reject(change.error));
    });
  }

  async again(slot: string, moment: number, allowed: (entries: Entry[]) => boolean): Promise<boolean> {
    const database = await this.#database();
    return new Promise((resolve, reject) => {
      const change = database.transaction("entries", "readwrite", { durability: "strict" });
      const entries = change.objectStore("entries");
      const before = entries.getAll();
      let may = false;
      before.onsuccess = () => {
        const known = before.result as Entry[];
        may = allowed(known);
        const entry = known.find((one) => one.slot === slot);
        if (may && entry !== undefined) entries.put(sentAt(entry, moment));
      };
      change.oncomplete = () => resolve(may);
      change.onabort = () => reject(change.error);
    });
  }

  async keepLimit(limit: BudgetLimit): Promise<void> {
    const database = await this.#database();
    await new Promise<void>((resolve, reject) => {
      const change = database.transaction("limits", "readwrite", { durability: "strict" });
      change.objectStore("limits").put({ owner: "", ...limit });
      change.oncomplete = () => resolve();
      change.onabort = () => reject(change.error);
    });
  }

  async limit(): Promise<BudgetLimit | null> {
    const [kept] = await this.#all<BudgetLimit>("limits");
    return kept === undefined ? null : { epsilon: kept.epsilon, delta: kept.delta, seconds: kept.seconds };
  }

  async waiting(task: string): Promise<{ slot: string; report: Bytes } | null> {
    const reports = await this.#all<{ slot: string; task: string; report: Bytes }>("reports");
    return reports.find((kept) => kept.task === task) ?? null;
  }

  async sent(slot: string): Promise<void> {
    const database = await this.#database();
    await new Promise<void>((resolve, reject) => {
      const change = database.transaction("reports", "readwrite", { durability: "strict" });
      change.objectStore("reports").delete(slot);
      change.oncomplete = () => resolve();
      change.onabort = () => reject(change.error);
    });
  }

  /** Adds a row under a name unless there is one; the row that is there after it. */
  async #keepFirst<Kind>(table: "lots" | "claims", name: string, row: Kind): Promise<Kind> {
    const database = await this.#database();
    return new Promise((resolve, reject) => {
      const change = database.transaction(table, "readwrite", { durability: "strict" });
      const rows = change.objectStore(table);
      const before = rows.get(name);
      let kept = row;
      before.onsuccess = () => {
        if (before.result === undefined) rows.add(row);
        else kept = before.result as Kind;
      };
      change.oncomplete = () => resolve(kept);
      change.onabort = () => reject(change.error);
    });
  }

  async keepLot(task: string, round: number | null): Promise<number | null> {
    return (await this.#keepFirst("lots", task, { task, round })).round;
  }

  async keepClaim(code: string, token: string): Promise<string> {
    return (await this.#keepFirst("claims", code, { code, token })).token;
  }

  async claim(code: string): Promise<string | undefined> {
    return (await this.#all<{ code: string; token: string }>("claims")).find((kept) => kept.code === code)?.token;
  }

  async lot(task: string): Promise<number | null | undefined> {
    return (await this.#all<{ task: string; round: number | null }>("lots")).find((kept) => kept.task === task)?.round;
  }

  async wallet(task: string): Promise<Wallet | undefined> {
    return (await this.#all<Wallet & { task: string }>("wallets")).find((kept) => kept.task === task);
  }

  /** Changes a wallet in one transaction; what is there after it. */
  async #changeWallet(task: string, changed: (wallet: Wallet | undefined) => Wallet): Promise<Wallet> {
    const database = await this.#database();
    return new Promise((resolve, reject) => {
      const change = database.transaction("wallets", "readwrite", { durability: "strict" });
      const wallets = change.objectStore("wallets");
      const before = wallets.get(task);
      let kept: Wallet;
      before.onsuccess = () => {
        kept = changed(before.result as Wallet | undefined);
        wallets.put({ task, tokens: kept.tokens, requests: kept.requests });
      };
      change.oncomplete = () => resolve(kept);
      change.onabort = () => reject(change.error);
    });
  }

  async keepRequests(task: string, requests: TokenRequest[]): Promise<TokenRequest[] | null> {
    return (await this.#changeWallet(task, (before) => before ?? { requests })).requests ?? null;
  }

  async keepTokens(task: string, tokens: string[]): Promise<void> {
    await this.#changeWallet(task, (before) => (before?.tokens === undefined ? { tokens } : before));
  }

  async alone<Result>(work: () => Promise<Result>): Promise<Result | null> {
    // Pages that did not come by https have no locks: there the database alone keeps a slot from being answered twice.
    if (navigator.locks === undefined) return work();
    return navigator.locks.request(this.#name, { ifAvailable: true }, (lock) => (lock === null ? null : work()));
  }
}
