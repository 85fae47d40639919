/** Node's store: a folder, owned by one user and used by one process at a time. Import it as `croupier-client/node`. */
import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, readdirSync, readFileSync, renameSync, rmSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { Bytes } from "./bytes.ts";
import type { BudgetLimit } from "./budget.ts";
import { type Entry, sentAt, type Store, type TokenRequest, type Wallet, withoutToken } from "./store.ts";

let drafts = 0;
const exists = (problem: unknown): boolean => (problem as { code?: string }).code === "EEXIST";

/** Files `SLOT.entry` (an answer), `SLOT.report` (until it was sent), `TASK.requests` and then `TASK.tokens` (of an enroller), `TASK.lot`, `CODE.claim`, and `budget.limit`. The entry is linked into place whole, or not at all. */
export class FolderStore implements Store {
  readonly folder: string;
  readonly #folder: string;

  constructor(folder: string) {
    this.folder = folder;
    this.#folder = folder;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  }

  #write(name: string, data: Uint8Array): void {
    const file = openSync(join(this.#folder, name), "w", 0o600);
    try {
      writeSync(file, data);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
  }

  /** Puts what was written under its name, once: false where that name is taken. */
  #place(draft: string, name: string): boolean {
    try {
      linkSync(join(this.#folder, draft), join(this.#folder, name));
    } catch (problem) {
      if (exists(problem)) return false;
      throw problem;
    } finally {
      unlinkSync(join(this.#folder, draft));
    }
    this.#settle();
    return true;
  }

  /** Writes values in the place of a file, whole or not at all. */
  #replace(draft: string, name: string, values: unknown): void {
    this.#write(draft, new TextEncoder().encode(`${JSON.stringify(values)}\n`));
    renameSync(join(this.#folder, draft), join(this.#folder, name));
    this.#settle();
  }

  /** Names are on the disk, not only in the system's memory. */
  #settle(): void {
    const folder = openSync(this.#folder, "r");
    fsyncSync(folder);
    closeSync(folder);
  }

  async entries(): Promise<Entry[]> {
    const files = readdirSync(this.#folder).filter((name) => name.endsWith(".entry"));
    return files.map((name) => JSON.parse(readFileSync(join(this.#folder, name), "utf-8")) as Entry);
  }

  async keep(entry: Entry, report: Bytes, allowed: (entries: Entry[]) => boolean): Promise<boolean> {
    if (!allowed(await this.entries())) return false;
    if (entry.token !== undefined && withoutToken(await this.wallet(entry.task), entry.token) === null) return false;
    const draft = `${entry.slot}.${process.pid}.draft`;
    this.#write(draft, new TextEncoder().encode(`${JSON.stringify(entry)}\n`));
    // the answer counts first: a report without its entry could be made a second time
    if (!this.#place(draft, `${entry.slot}.entry`)) return false;
    if (entry.token !== undefined) {
      // before the report: a token that is in one is in no other, whatever stops when
      const left = withoutToken(await this.wallet(entry.task), entry.token);
      if (left === null) return false;
      this.#replace(draft, `${entry.task}.tokens`, left.tokens);
    }
    this.#write(draft, report);
    this.#place(draft, `${entry.slot}.report`); // unless it is there: whoever has lost an entry has the report still
    return true;
  }

  async again(slot: string, moment: number, allowed: (entries: Entry[]) => boolean): Promise<boolean> {
    const known = await this.entries();
    if (!allowed(known)) return false;
    const entry = known.find((one) => one.slot === slot);
    if (entry !== undefined) this.#replace(`${slot}.${process.pid}.draft`, `${slot}.entry`, sentAt(entry, moment));
    return true;
  }

  async keepLimit(limit: BudgetLimit): Promise<void> {
    this.#replace(`budget.${process.pid}.draft`, "budget.limit", limit);
  }

  async limit(): Promise<BudgetLimit | null> {
    if (!readdirSync(this.#folder).includes("budget.limit")) return null;
    return JSON.parse(readFileSync(join(this.#folder, "budget.limit"), "utf-8")) as BudgetLimit;
  }

  async waiting(task: string): Promise<{ slot: string; report: Bytes } | null> {
    const name = readdirSync(this.#folder).find((file) => file.startsWith(`${task}-`) && file.endsWith(".report"));
    if (name === undefined) return null;
    return { slot: name.slice(0, -".report".length), report: new Uint8Array(readFileSync(join(this.#folder, name))) };
  }

  async sent(slot: string): Promise<void> {
    rmSync(join(this.#folder, `${slot}.report`), { force: true });
  }

  async keepLot(task: string, round: number | null): Promise<number | null> {
    const draft = `${task}.${process.pid}.draft`;
    this.#write(draft, new TextEncoder().encode(JSON.stringify({ round })));
    this.#place(draft, `${task}.lot`);
    return (await this.lot(task)) ?? null;
  }

  async lot(task: string): Promise<number | null | undefined> {
    const name = `${task}.lot`;
    if (!readdirSync(this.#folder).includes(name)) return undefined;
    return (JSON.parse(readFileSync(join(this.#folder, name), "utf-8")) as { round: number | null }).round;
  }

  async keepClaim(code: string, token: string): Promise<string> {
    const draft = `${code}.${process.pid}.draft`;
    this.#write(draft, new TextEncoder().encode(token));
    this.#place(draft, `${code}.claim`);
    return (await this.claim(code)) ?? token;
  }

  async claim(code: string): Promise<string | undefined> {
    const name = `${code}.claim`;
    return readdirSync(this.#folder).includes(name) ? readFileSync(join(this.#folder, name), "utf-8") : undefined;
  }

  async wallet(task: string): Promise<Wallet | undefined> {
    const read = (name: string): unknown => JSON.parse(readFileSync(join(this.#folder, name), "utf-8"));
    const files = readdirSync(this.#folder);
    if (files.includes(`${task}.tokens`)) {
      rmSync(join(this.#folder, `${task}.requests`), { force: true }); // of whoever was killed before it had done so
      return { tokens: read(`${task}.tokens`) as string[] };
    }
    return files.includes(`${task}.requests`) ? { requests: read(`${task}.requests`) as TokenRequest[] } : undefined;
  }

  async keepRequests(task: string, requests: TokenRequest[]): Promise<TokenRequest[] | null> {
    if ((await this.wallet(task)) === undefined) {
      const draft = `${task}.${process.pid}.draft`;
      this.#write(draft, new TextEncoder().encode(JSON.stringify(requests)));
      this.#place(draft, `${task}.requests`);
    }
    return (await this.wallet(task))?.requests ?? null;
  }

  async keepTokens(task: string, tokens: string[]): Promise<void> {
    const draft = `${task}.${process.pid}.draft`;
    this.#write(draft, new TextEncoder().encode(JSON.stringify(tokens)));
    this.#place(draft, `${task}.tokens`);
    rmSync(join(this.#folder, `${task}.requests`), { force: true });
  }

  async alone<Result>(work: () => Promise<Result>): Promise<Result | null> {
    const lock = join(this.#folder, "lock");
    for (let attempt = 0; ; attempt += 1) {
      // linked into place whole: a lock without its holder's number would look like one that was left behind
      const draft = `lock.${process.pid}.${(drafts += 1)}.draft`;
      this.#write(draft, new TextEncoder().encode(String(process.pid)));
      if (this.#place(draft, "lock")) break;
      if (attempt > 0 || !this.#isStale(lock)) return null;
      rmSync(lock, { force: true }); // whoever held it is gone; the entries keep a slot from being answered twice
    }
    try {
      return await work();
    } finally {
      rmSync(lock, { force: true });
    }
  }

  #isStale(lock: string): boolean {
    try {
      const holder = Number(readFileSync(lock, "utf-8"));
      if (!Number.isInteger(holder) || holder <= 0) return true;
      process.kill(holder, 0); // asks whether it lives, and sends nothing
      return false;
    } catch (problem) {
      return (problem as { code?: string }).code === "ESRCH";
    }
  }
}
