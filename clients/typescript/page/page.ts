/** The page to take part with. It shows what is asked and promised, computes here, and sends what the client seals. */
import {
  BrowserStore,
  cleaned,
  Client,
  deltaOf,
  type End,
  epsilonOf,
  exact,
  fieldsOf,
  InvitationError,
  type InvitationLink,
  type Leaving,
  messagesOf,
  periodOf,
  periodText,
  type Phase,
  readLink,
  type Records,
  type RecordValue,
  type RecordValues,
  recordsOfCsv,
  RefusedTaskError,
  roundUp,
  ServerError,
  type Task,
  toHex,
} from "../src/index.ts";
import { askedWords, numberNames } from "./asked.ts";
import { columnWords, count, fillForm, made, numberRows, pictures, pixelsOf } from "./question.ts";

/** Where a tab keeps its link while its person signs in elsewhere. */
const KEPT = "croupier link";
const WAIT = 7 * 24 * 3600; // seconds for which an open page asks for rounds

const part = <Kind extends HTMLElement>(id: string): Kind => document.getElementById(id) as Kind;
const field = (id: string): HTMLInputElement => part<HTMLInputElement>(id);

const shortened = (text: string): string => (text.length > 16 ? `${text.slice(0, 8)} … ${text.slice(-8)}` : text);

/** The link that the page was opened with, or the one that its tab kept while its person signed in; null where there is none. */
function openedLink(hash: string): InvitationLink | null {
  const words = new URLSearchParams(hash.slice(1));
  if (!hash.includes("=")) return null;
  if (words.has("code") || words.has("token") || !words.has("state")) return readLink(hash);
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null") as { state: string; hash: string } | null;
  sessionStorage.removeItem(KEPT);
  if (kept === null || kept.state !== words.get("state")) {
    throw new InvitationError("you started to sign in elsewhere: open your invitation again.");
  }
  return readLink(`${kept.hash}&${new URLSearchParams({ invitation: words.get("invitation") ?? "" })}`);
}

const dayWords = (day: Date): string => day.toLocaleString("en", { day: "numeric", month: "long", year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** A figure that the user gave, above 0. */
function figure(id: string): number {
  const value = Number(field(id).value);
  field(id).setAttribute("aria-invalid", String(!(value > 0)));
  if (!(value > 0)) throw new RangeError(`${id.replace("all-", "")}: enter a number above 0`);
  return value;
}

class Page {
  #link: InvitationLink | null = null;
  #state = "";
  #client: Client | null = null;
  #task: Task | null = null;
  #fromFile: RecordValues[] | null = null;
  #leaving: AbortController | null = null;
  #running = false;
  #lookAgain: ReturnType<typeof setTimeout> | undefined;

  start(): void {
    let problem: unknown = null;
    try {
      this.#link = openedLink(location.hash);
    } catch (error) {
      problem = error;
    }
    field("shuffler").value = this.#link?.shuffler ?? (location.protocol.startsWith("http") ? location.origin : "");
    if (this.#link !== null) this.#showPins(this.#link);
    // What a person accepts is the person's to say: no link says it.
    if (location.hash) history.replaceState(null, "", location.pathname + location.search); // a token is for nobody who looks over a shoulder
    // Another invitation in the same tab: the browser changes the address alone, with the token in it.
    addEventListener("hashchange", () => {
      if (/(?:^#|&)(?:token|code)=/.test(location.hash)) location.reload();
    });
    part("whose").textContent =
      `It came from ${location.host || "a file on this device"}. A server could send you another page that breaks the promise; ` +
      "the promise is made by the code that you can see here, not by a server.";
    part("invitation").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#guarded(() => this.#look());
    });
    part("claim-button").addEventListener("click", () => void this.#guarded(() => this.#claim()));
    part("sign-in").addEventListener("click", () => this.#remember());
    part("take-part").addEventListener("click", () => void this.#guarded(() => this.#takePart()));
    part("leave").addEventListener("click", () => this.#leave());
    field("file").addEventListener("change", () => void this.#guarded(() => this.#readFile()));
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible" && !this.#running && this.#lookAgain !== undefined) void this.#guarded(() => this.#tellWhen());
    });
    void this.#guarded(async () => {
      const limit = await new BrowserStore().limit(); // what this person has allowed before
      if (limit !== null) {
        field("all-epsilon").value = String(limit.epsilon);
        field("all-delta").value = exact(limit.delta);
        field("all-period").value =
          limit.seconds === null ? "" : limit.seconds % 86400 === 0 ? `${limit.seconds / 86400}d` : `${limit.seconds / 3600}h`;
      }
      if (problem !== null) throw problem;
      if (this.#link !== null && part("sign-in-words").hidden) await this.#look();
    });
  }

  /** Show whom the link pins: nobody else is asked or believed, and nothing of it can be changed here. */
  #showPins(link: InvitationLink): void {
    const given = { token: link.token, analyzer: link.analyzer, enroller: link.enroller, person: link.invitation };
    for (const [id, value] of Object.entries(given)) field(id).value = value ?? "";
    for (const id of ["token", "analyzer", "shuffler", "enroller"]) field(id).readOnly = field(id).value !== "";
    part("token-row").hidden = link.code !== undefined;
    const pins: [string, string][] = [
      ["Asked by", `the holder of the key ${link.analyzer}`],
      ["Collected by", field("shuffler").value],
      ...(link.enroller === undefined ? [] : ([["Vouched for by", link.enroller]] as [string, string][])),
      ...(link.until === undefined ? [] : ([["Valid until", dayWords(new Date(link.until * 1000))]] as [string, string][])),
    ];
    part("pins").replaceChildren(...pins.flatMap(([name, value]) => [made("dt", name), made("dd", value)]));
    part("pinned").hidden = false;
    const signIn = link.signIn && link.enroller !== undefined && link.invitation === undefined;
    part("sign-in-words").hidden = !signIn;
    if (!signIn) return;
    this.#state = toHex(crypto.getRandomValues(new Uint8Array(16)));
    const back = encodeURIComponent(location.origin + location.pathname);
    part<HTMLAnchorElement>("sign-in").href = `${link.enroller?.replace(/\/+$/, "")}/sign-in?return=${back}&state=${this.#state}`;
    part("sign-in").textContent = `Sign in at ${new URL(link.enroller as string).host}`;
  }

  /** Keep the link for this tab, until the enroller sends the person back with an invitation. */
  #remember(): void {
    const { code, token, analyzer, shuffler, enroller, until } = this.#link as InvitationLink;
    const words = Object.entries({ code, token, analyzer, shuffler, enroller, until: until?.toString() });
    const hash = new URLSearchParams(words.filter((word): word is [string, string] => word[1] !== undefined)).toString();
    sessionStorage.setItem(KEPT, JSON.stringify({ state: this.#state, hash }));
  }

  async #guarded(work: () => Promise<void>): Promise<void> {
    const problem = part("problem");
    problem.hidden = true;
    try {
      await work();
    } catch (error) {
      problem.textContent = cleaned(error instanceof Error ? `${error.message}${error.message.endsWith(".") ? "" : "."}` : String(error));
      problem.hidden = false;
      if (error instanceof RefusedTaskError) (part("invitation").querySelector("details") as HTMLDetailsElement).open = true;
      problem.scrollIntoView({ block: "nearest" });
    }
  }

  async #look(): Promise<void> {
    const button = part<HTMLFormElement>("invitation").querySelector("button") as HTMLButtonElement;
    button.disabled = true;
    try {
      this.#client = new Client({
        shuffler: field("shuffler").value,
        ...(this.#link?.code === undefined ? { token: field("token").value } : { code: this.#link.code }),
        analyzerKey: field("analyzer").value.trim(),
        invitation: field("person").value.trim() || undefined,
        enroller: field("enroller").value.trim() || undefined,
        store: new BrowserStore(),
        maxEpsilon: figure("epsilon"),
        maxDelta: figure("delta"),
        maxEpsilonIfWatched: figure("watched"),
        budget: { epsilon: figure("all-epsilon"), delta: figure("all-delta"), period: field("all-period").value.trim() || undefined },
      });
      this.#task = await this.#client.task();
    } finally {
      button.disabled = false;
    }
    this.#showAsked(this.#task);
    this.#showPromise(this.#task, await this.#client.budgetUse());
    this.#showFields(this.#task);
    part("door").hidden = true;
    for (const id of ["asked", "promise"]) part(id).hidden = false;
    part("main").focus();
    if (await this.#client.isClaimed()) await this.#claim();
    else part("claim").hidden = false;
  }

  /** Bind the invitation to this browser, and go on with whatever the task asks of its person. */
  async #claim(): Promise<void> {
    const [client, task] = [this.#client as Client, this.#task as Task];
    await client.claim();
    part("claim").hidden = true;
    part("record").hidden = false;
    if (await client.waits()) {
      this.#say("An earlier report is still here. The same bytes are sent again.");
      await this.#run([], true);
    } else if (task.secret?.cover && (await client.answered()) > 0) {
      this.#say("This browser has answered the task. In later rounds it sends noise without data, so that nobody can tell.");
      await this.#run([]);
    } else if (task.interactivity === "sequential" && (await client.answered()) > 0) {
      this.#over(ANSWERED);
    } else {
      await this.#tellWhen();
    }
  }

  /** Say when this person's round is, where it was drawn by a secret lot; also that it is over, or that the task is. */
  async #tellWhen(): Promise<void> {
    const [client, task] = [this.#client as Client, this.#task as Task];
    clearTimeout(this.#lookAgain);
    this.#lookAgain = undefined;
    try {
      const end = await client.ended();
      if (end !== null) return this.#over(endWords(end));
      if (task.secret === null) return;
      const lot = await client.lot();
      if (lot.round === null && !task.secret.cover) return this.#over(NOT_DRAWN);
      if (task.secret.cover) return this.#when("Noise leaves this device in every round, so that nobody can tell which one is yours. Keep this page open until the task has ended.");
      const open = await client.openRound();
      if (open !== null && lot.round !== null && open > lot.round) return this.#over(MISSED);
      this.#when(
        open === lot.round
          ? "Your round is open now. Take part, and keep this page open until it says that your answer was sent."
          : whenWords(lot.wait, task.secret.seconds),
      );
    } catch (problem) {
      if (!(problem instanceof ServerError)) throw problem; // out of reach or busy: taking part asks again
    }
    const wait = Math.min(3600, Math.max(task.secret?.seconds ?? 0, 40) / 4);
    if (task.secret !== null) this.#lookAgain = setTimeout(() => void (this.#running || this.#guarded(() => this.#tellWhen())), wait * 1000);
  }

  #when(text: string): void {
    part("when-words").textContent = text;
    part("when").hidden = false;
  }

  /** Nothing more is asked of this person: say why, and that the page has done its part. */
  #over(text: string): void {
    clearTimeout(this.#lookAgain);
    this.#lookAgain = undefined;
    this.#when(`${text} You can close this page for good.`);
    part("record").hidden = true;
  }

  #showAsked(task: Task): void {
    const { records } = task;
    const { question } = task;
    part("title").textContent = cleaned(task.name || (records ? `Learn to predict ${records.target.column}` : question ? "A question to many" : "Take part"));
    const rounds = task.phases.reduce((sum, phase) => sum + phase.rounds, 0);
    part("asked-columns").replaceChildren(...(question === null ? [] : columnWords(question)));
    part("asked-words").textContent = cleaned(
      question
        ? `${count(task.users)} people are asked ${question.words}. Nobody sees anybody's record: only the noisy sum over everybody is learned.`
        : records
          ? `${count(task.users)} people help to learn how ${records.target.column} depends on ` +
            `${records.columns.map((column) => column.name).join(", ")}. Nobody sees anybody's record.`
          : `${count(task.users)} people help to train a model on numbers that their devices supply.`,
    );
    const often =
      task.interactivity === "full"
        ? `in up to ${count(Math.max(...task.phases.map((phase) => phase.rounds)))} rounds`
        : task.secret === null
          ? question === null && rounds > 1
            ? `once, in one of ${count(rounds)} rounds`
            : "once, in the only round"
          : `once, in one of ${count(rounds)} rounds; only the shuffler and this device know which one` +
            (task.secret.cover ? ". In all others this device sends noise without data, so that nobody can tell" : "");
    const facts: [string, string][] = [
      ["Asked by", `the analyzer with the key ${shortened(field("analyzer").value.trim())}, whose signature was checked here`],
      ["Collected by", `the shuffler ${field("shuffler").value}, which cannot read what you send`],
      ...(task.enroller === null
        ? []
        : ([["Vouched for by", `the enroller ${task.enroller.address}, which signs that you are a person and cannot tell which report is yours`]] as [string, string][])),
      ["You answer", often],
      ["You send", [...new Set(task.phases.map((phase) => `${count(phase.plan.dim)} noisy numbers from 0 to ${count(messagesOf(phase.plan))}${askedWords(phase)}`))].join(", or ")],
      ["Task", shortened(task.id)],
    ];
    part("asked-facts").replaceChildren(...facts.flatMap(([name, value]) => [made("dt", name), made("dd", value)]));
  }

  #showPromise(task: Task, use: number | null): void {
    const delta = figure("delta");
    const epsilon = epsilonOf(task.guarantee, delta);
    const guess = Math.min(1, ((1 + deltaOf(task.guarantee, 0)) / 2) * (1 + 1e-9));
    part("promise-figure").textContent = `epsilon = ${roundUp(epsilon)} at delta = ${roundUp(delta)}, to every single person`;
    const words = [
      "This device has just proved it, without trusting any figure of the task.",
      `Whether your record says one thing or another makes ${guess < 0.65 ? "little" : "a limited"} difference to what anybody can see of ` +
        (task.question === null ? "the model, or of everything that the analyzer sees while it is made." : "the answer, or of everything that the analyzer sees."),
      `An attacker who knows everybody else's data and has to guess which of two records is yours, both being equally likely beforehand, is ` +
        `right at most ${roundUp(100 * guess, 3)} % of the time. Tossing a coin is right 50 % of the time.`,
    ];
    if (task.guarantee.watched !== null) {
      const watched = epsilonOf(task.guarantee.watched, delta);
      words.push(
        "That holds with secret lots: to anyone who does not know in which round you were asked. To an attacker who also knows when each " +
          `person answered, even from the shuffler, it is ${
            Number.isFinite(watched) ? `epsilon ${roundUp(watched)} at delta ${roundUp(delta)}` : `no promise at delta ${roundUp(delta)}`
          }.`,
      );
    }
    if (use !== null) {
      const period = field("all-period").value.trim();
      words.push(
        `Together with earlier tasks that still count, it uses ${roundUp(100 * use, 3)} % of what you allow for all tasks ` +
          `together${period === "" ? "" : ` within any ${periodText(periodOf(period))}`} (epsilon = ${field("all-epsilon").value} at delta = ${field("all-delta").value}).`,
      );
    }
    part("promise-words").replaceChildren(...words.map((text) => made("p", text)));
    const share = roundUp(100 * task.honest, 3);
    const rests = [
      "The analyzer and the shuffler do not share what they see. If they do, only your own noise protects you, which gives little protection.",
      `${task.honest === 1 ? "All people" : `At least ${share} % of all people`} add the noise that they should, and ${
        task.enroller === null ? "the shuffler enrols people" : "the enroller, which is not the shuffler's, invites people"
      }, each once.`,
      "The analyzer's key really belongs to the people who ask, and this page is really this code.",
      task.blanks
        ? "Nothing about your record: if it cannot be read, noise is sent instead, at the same time."
        : "Your record can be read. If it cannot, nothing is sent, and an observer sees that you did not take part.",
    ];
    part("promise-rests").replaceChildren(...rests.map((text) => made("li", text)));
  }

  #showFields(task: Task): void {
    const fields = task.question?.fields ?? (task.records === null ? null : fieldsOf(task.records));
    const form = part("fields");
    form.replaceChildren();
    if (fields === null) {
      form.append(made("p", "This task is not about tables: an app must supply the numbers."));
      part("take-part").hidden = true;
      return;
    }
    fillForm(form, fields);
  }

  async #readFile(): Promise<void> {
    const [file] = field("file").files ?? [];
    this.#fromFile = null;
    const task = this.#task;
    const fields = task?.question?.fields ?? (task?.records ? fieldsOf(task.records) : null);
    if (file === undefined || task === null || fields === null) return;
    const records = recordsOfCsv(await file.text());
    if (records.length === 0 && task.question?.together === undefined) throw new Error("the file has a header but no records");
    const missing = records.length === 0 ? [] : fields.map((one) => one.name).filter((name) => !Object.hasOwn(records[0], name));
    if (missing.length > 0) throw new Error(`the file has no column ${missing.join(", ")}`);
    for (const record of records) task.question?.vector(record) ?? task.records?.row(record);
    this.#fromFile = records;
    part("file-said").textContent = `${count(records.length)} ${records.length === 1 ? "record" : "records"} of yours. Together they count as one person.`;
  }

  async #records(task: Task): Promise<RecordValues[]> {
    if (this.#fromFile !== null) return this.#fromFile;
    const inputs = [...part("fields").querySelectorAll<HTMLInputElement | HTMLSelectElement>("input, select")];
    for (const input of inputs) {
      if (input instanceof HTMLSelectElement && input.selectedIndex <= 0) throw new Error(`${input.name}: choose one`);
    }
    const fields = task.question?.fields ?? (task.records === null ? [] : fieldsOf(task.records));
    const values = inputs.map(async (input, place): Promise<[string, RecordValue]> => [
      input.name,
      input instanceof HTMLInputElement && input.type === "file" ? await pixelsOf(input, fields[place]) : input.value,
    ]);
    const record = Object.fromEntries(await Promise.all(values));
    if (task.records !== null && !task.blanks) task.records.row(record);
    task.question?.vector(record); // refused here where it cannot be read, before anything is asked for
    return [record];
  }

  async #takePart(): Promise<void> {
    if (this.#task === null || this.#client === null) return;
    await this.#run(await this.#records(this.#task));
  }

  /** Answer the rounds that want it; with `again` only send what waits, as there is no record yet. */
  async #run(records: Records, again = false): Promise<void> {
    const [client, task] = [this.#client as Client, this.#task as Task];
    this.#leaving = new AbortController();
    const { signal } = this.#leaving;
    part<HTMLButtonElement>("take-part").disabled = true;
    part("leave").hidden = false;
    part("record").hidden = false;
    this.#running = true;
    this.#say(
      task.secret?.cover === false
        ? "Waiting for your round. Your answer is sent then, if this page is open. If you close it before, nothing is sent: come back with your invitation, and fill in your record again."
        : task.question === null
          ? "Waiting for a round. Your round depends on the lot that was drawn for you; keep this page open."
          : "Waiting for your round; keep this page open.",
    );
    const repeated = task.interactivity === "full" || task.secret?.cover;
    const rounds = repeated ? Math.max(...task.phases.map((phase) => phase.rounds)) : 1;
    const offline = () => this.#say("This device is offline. The page resumes when it is back online.");
    addEventListener("offline", offline);
    let nothing = "Nothing more is asked of you.";
    let over: string | null = null;
    try {
      const answered = await client.join(records, {
        wait: WAIT,
        signal,
        again,
        ended: (end) => (over = endWords(end)),
        missed: () => (over = MISSED),
        notYet: ({ round, wait }) => {
          if (round === null) over = NOT_DRAWN;
          else nothing = `${whenWords(wait, task.secret?.seconds ?? 0)} Nothing was sent.`;
        },
        watch: (leaving) => this.#showLeaving(task, leaving, records),
        said: (sent) => {
          if (sent === null) {
            this.#say("The shuffler says that a report came too late. It counts as spent anyway, and is not sent again.");
            return;
          }
          part<HTMLProgressElement>("bar").value += 1 / rounds;
          this.#say(
            sent.cover
              ? `Covered round ${sent.round}: noise that says nothing about your record.`
              : sent.blank
                ? `Answered round ${sent.round} with a blank: your record was not ready in time, or cannot be read.`
                : `Answered round ${sent.round}. Only sealed noise left this device.`,
          );
        },
      });
      if (again && repeated) nothing = "It was sent. Fill in your record and take part in the next rounds.";
      if (!signal.aborted) {
        const done = answered > 0 && !(again && repeated);
        this.#say(over ?? (done ? "That is all. Thank you." : nothing));
        if (over !== null) this.#over(over);
        else if (done && !repeated) this.#over("Your answer was sent, and nothing more is asked of you.");
        else if (!repeated && (await client.answered()) > 0) this.#over(ANSWERED); // by another tab
      }
    } catch (problem) {
      if (!signal.aborted) throw problem;
    } finally {
      this.#running = false;
      removeEventListener("offline", offline);
      const more = repeated || (await client.answered()) === 0;
      part<HTMLButtonElement>("take-part").disabled = !more;
      part("leave").hidden = true;
    }
  }

  #leave(): void {
    this.#leaving?.abort();
    this.#say("You left. Nothing more is sent from here. What was sent cannot be taken back: nobody can tell it apart from other reports.");
  }

  #say(text: string): void {
    part("progress").hidden = false;
    part("log").append(made("li", text));
  }

  #showLeaving(task: Task, { round, cover, report, randomized }: Leaving, records: Records): void {
    if (cover) return; // it says nothing
    let left = round;
    const phase = task.phases.find((one) => (left -= one.rounds) <= 0) ?? task.phases[0];
    const { plan } = phase;
    const { question } = task;
    part("numbers").replaceChildren(...(question === null ? gradientRows(task, phase, randomized) : numberRows(question, randomized)));
    part("pictures").replaceChildren(...(question === null ? [] : pictures(question, randomized, records as readonly RecordValues[])));
    const people = count(plan.users);
    const opened =
      task.transport === "messages"
        ? `The bits of ${people} people are opened mixed, without any sign of whose they are`
        : `Only the sum over ${people} people is ever opened`;
    part("leaving-words").textContent =
      `Round ${round}. “True” is what your record says, in steps from 0, which means no data; it stays here. “Sent” is that, rounded at random, plus ` +
      `your part of the noise${plan.range === null ? "" : "; it is mixed with the other numbers before it leaves, and unmixed here"}. ${opened}; the sealed report has ` +
      `${count(report.length)} bytes.`;
    const hex = toHex(report.subarray(0, 4096));
    part("bytes").textContent = report.length > 4096 ? `${hex} … (${count(report.length)} bytes in all)` : hex;
    part("leaving").hidden = false;
  }
}

const ANSWERED = "This browser has answered the task. Each person answers once, so nothing more is asked.";
const MISSED = "Your round is over. No answer was sent from this browser, and no other round asks you; noise takes your place.";
const NOT_DRAWN = "No round was drawn for you. Nothing was sent, and nothing more is asked of you.";

const endWords = ({ reason }: End): string => (reason === null ? "The task has ended: all rounds are done." : `The task has ended: ${reason}`);

const FARTHEST = 1e11; // seconds that are shown as a date: a shuffler may say more, of which there is no date

/** When a round begins in so many seconds and takes answers for `lasting`; by this device's clock and words. */
function whenWords(wait: number, lasting: number): string {
  if (wait < 60) return `Your round begins in a minute or so, and takes answers for ${lengthWords(lasting)}. Take part now, and keep this page open.`;
  const begins = new Date(Date.now() + Math.min(wait, FARTHEST) * 1000);
  const day = begins.toDateString() === new Date().toDateString() ? "today" : `on ${begins.toLocaleDateString("en", { weekday: "long", day: "numeric", month: "long", ...(wait > 300 * 86400 ? { year: "numeric" } : {}) })}`;
  const time = begins.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return (
    `Your round begins ${day} at ${time}, in ${lengthWords(wait)}, or somewhat later, and takes answers for ${lengthWords(lasting)}. ` +
    "You can close this page until then: come back with your invitation. Or fill in your record now, and keep the page open."
  );
}

/** Seconds in the unit that a person would say them in. */
function lengthWords(seconds: number): string {
  const units: [number, string][] = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, name] = units.find(([length]) => seconds >= 2 * length) ?? units[3];
  const rounded = Math.round(seconds / size);
  return `${count(rounded)} ${name}${rounded === 1 ? "" : "s"}`;
}

/** True and noisy numbers of a gradient, or of what a round asks about rows, by what they are about. */
function gradientRows(task: Task, phase: Phase, { said, sent }: Leaving["randomized"]): HTMLElement[] {
  const names = numberNames(task, phase, said.length);
  return Array.from(said, (number, place) => {
    const row = made("tr");
    row.append(made("th", names[place], { scope: "row" }), made("td", number.toFixed(3)), made("td", sent[place].toFixed(1)));
    return row;
  });
}

new Page().start();
