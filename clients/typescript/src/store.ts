/** What a device remembers: which slots it has answered, and a report until the shuffler has it. */
import type { Bytes } from "./bytes.ts";

/** One answer, counted before it leaves: it may have been taken, whatever is heard of it. */
export interface Entry {
  slot: string;
  task: string;
  round: number;
  phase: number;
  /** What the whole task may reveal, for adding up over tasks: mu and slack of a Gaussian that bounds it. */
  mu: number;
  slack: number;
  /** A report that says nothing, in a round that is not this user's lot: no answer. */
  cover?: boolean;
}

export interface Store {
  entries(): Promise<Entry[]>;
  /**
   * Write an answer and its report down, both or neither; false, and nothing written, where the slot has an answer already, or
   * `allowed` refuses the entries that are there.
   */
  keep(entry: Entry, report: Bytes, allowed: (entries: Entry[]) => boolean): Promise<boolean>;
  /** A report of the task that the shuffler is not known to have. */
  waiting(task: string): Promise<{ slot: string; report: Bytes } | null>;
  /** Forget a report; its answer stays counted. */
  sent(slot: string): Promise<void>;
  /** Keep the round of a secret lot, null for none, unless one is kept; what is kept. */
  keepLot(task: string, round: number | null): Promise<number | null>;
  /** The lot that is kept; undefined where none is. */
  lot(task: string): Promise<number | null | undefined>;
  /** Run alone: null where another tab or process of this user is at it. */
  alone<Result>(work: () => Promise<Result>): Promise<Result | null>;
}

/** For tests and made-up people: forgets everything with the page. */
export class MemoryStore implements Store {
  readonly #entries = new Map<string, Entry>();
  readonly #reports = new Map<string, { task: string; report: Bytes }>();
  readonly #lots = new Map<string, number | null>();
  #busy = false;

  async entries(): Promise<Entry[]> {
    return [...this.#entries.values()];
  }

  async keep(entry: Entry, report: Bytes, allowed: (entries: Entry[]) => boolean): Promise<boolean> {
    if (this.#entries.has(entry.slot) || !allowed([...this.#entries.values()])) return false;
    this.#entries.set(entry.slot, entry);
    this.#reports.set(entry.slot, { task: entry.task, report });
    return true;
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
      const asked = indexedDB.open(this.#name, 1);
      asked.onupgradeneeded = () => {
        asked.result.createObjectStore("entries", { keyPath: "slot" });
        asked.result.createObjectStore("reports", { keyPath: "slot" });
        asked.result.createObjectStore("lots", { keyPath: "task" });
      };
      asked.onsuccess = () => resolve(asked.result);
      asked.onerror = () => reject(asked.error);
    });
    return this.#opened;
  }

  async #all<Kind>(table: "entries" | "reports" | "lots"): Promise<Kind[]> {
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
      const change = database.transaction(["entries", "reports"], "readwrite", { durability: "strict" });
      let refused = false;
      const entries = change.objectStore("entries");
      const before = entries.getAll();
      before.onsuccess = () => {
        const known = before.result as Entry[];
        if (known.some((one) => one.slot === entry.slot) || !allowed(known)) {
          refused = true;
          change.abort();
          return;
        }
        entries.add(entry);
        change.objectStore("reports").put({ slot: entry.slot, task: entry.task, report });
      };
      change.oncomplete = () => resolve(true);
      change.onabort = () => (refused ? resolve(false) : reject(change.error));
    });
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

  async keepLot(task: string, round: number | null): Promise<number | null> {
    const database = await this.#database();
    return new Promise((resolve, reject) => {
      const change = database.transaction("lots", "readwrite", { durability: "strict" });
      const lots = change.objectStore("lots");
      const before = lots.get(task);
      let kept = round;
      before.onsuccess = () => {
        if (before.result === undefined) lots.add({ task, round });
        else kept = (before.result as { round: number | null }).round;
      };
      change.oncomplete = () => resolve(kept);
      change.onabort = () => reject(change.error);
    });
  }

  async lot(task: string): Promise<number | null | undefined> {
    return (await this.#all<{ task: string; round: number | null }>("lots")).find((kept) => kept.task === task)?.round;
  }

  async alone<Result>(work: () => Promise<Result>): Promise<Result | null> {
    // Pages that did not come by https have no locks: there the database alone keeps a slot from being answered twice.
    if (navigator.locks === undefined) return work();
    return navigator.locks.request(this.#name, { ifAvailable: true }, (lock) => (lock === null ? null : work()));
  }
}
