/** Node's store: a folder, owned by one user and used by one process at a time. Import it as `croupier-client/node`. */
import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { Bytes } from "./bytes.ts";
import type { Entry, Store } from "./store.ts";

const exists = (problem: unknown): boolean => (problem as { code?: string }).code === "EEXIST";

/** Files `SLOT.entry` (an answer) and `SLOT.report` (until it was sent). The entry is linked into place whole, or not at all. */
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
    const folder = openSync(this.#folder, "r");
    fsyncSync(folder);
    closeSync(folder);
    return true;
  }

  async entries(): Promise<Entry[]> {
    const files = readdirSync(this.#folder).filter((name) => name.endsWith(".entry"));
    return files.map((name) => JSON.parse(readFileSync(join(this.#folder, name), "utf-8")) as Entry);
  }

  async keep(entry: Entry, report: Bytes, allowed: (entries: Entry[]) => boolean): Promise<boolean> {
    if (!allowed(await this.entries())) return false;
    const draft = `${entry.slot}.${process.pid}.draft`;
    this.#write(draft, new TextEncoder().encode(`${JSON.stringify(entry)}\n`));
    // the answer counts first: a report without its entry could be made a second time
    if (!this.#place(draft, `${entry.slot}.entry`)) return false;
    this.#write(draft, report);
    this.#place(draft, `${entry.slot}.report`); // unless it is there: whoever has lost an entry has the report still
    return true;
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

  async alone<Result>(work: () => Promise<Result>): Promise<Result | null> {
    const lock = join(this.#folder, "lock");
    for (let attempt = 0; ; attempt += 1) {
      try {
        const file = openSync(lock, "wx", 0o600);
        writeSync(file, String(process.pid));
        closeSync(file);
        break;
      } catch (problem) {
        if (!exists(problem)) throw problem;
        if (attempt > 0 || !this.#isStale(lock)) return null;
        rmSync(lock, { force: true }); // whoever held it is gone; the entries keep a slot from being answered twice
      }
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
