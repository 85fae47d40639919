/** What the client makes of what Python asks, for tests across the two: one JSON object on stdin, one on stdout. */
import { readFileSync } from "node:fs";
import * as client from "../../../src/croupier/service/shuffler/page/croupier-client.js";
import { FolderStore } from "../../../src/croupier/service/shuffler/page/croupier-node.js";

const { parts, fromHex } = client;
const text = readFileSync(0, "utf-8");
const asked = JSON.parse(text);
const typed = parts.parseJson(text); // the same with floats and whole numbers told apart

/** A network at which the process is killed, as by kill -9: "before PATH" is asked for, or "after" it was answered. */
const dying = (moment) => {
  const [when, path] = moment.split(" ");
  return async (url, options) => {
    const here = new URL(url).pathname === path;
    if (here && when === "before") process.kill(process.pid, "SIGKILL");
    const answer = await fetch(url, options);
    if (here) process.kill(process.pid, "SIGKILL");
    return answer;
  };
};

const ASKED = {
  /** Counts of vectors under plans, for fixed random bytes. */
  encodings: () =>
    asked.cases.map((one, place) => {
      const plan = parts.readPlan(typed.get("cases")[place].get("plan"));
      return one.vectors.map(({ vector, seed }) => parts.randomized(Float64Array.from(vector), plan, new parts.KeyedRandom(fromHex(seed)), new Uint8Array(32)).counts);
    }),

  /** For each document of a task: the epsilon at delta, that of known lots where they are secret, or why it is refused. */
  tasks: () =>
    Promise.all(
      asked.documents.map((document) =>
        client.readTask(fromHex(document), fromHex(asked.key)).then(
          ({ id, name, guarantee, secret }) => ({
            id,
            name,
            secret,
            epsilon: client.epsilonOf(guarantee, asked.delta),
            watched: guarantee.watched === null ? null : client.epsilonOf(guarantee.watched, asked.delta),
          }),
          (problem) => ({ refused: `${problem.name}: ${problem.message}` }),
        ),
      ),
    ),

  /** What the ledger of entries with these bounds says: by themselves, and to an observer of arrival times. */
  ledger: () => {
    const ledger = parts.ledgerOf(asked.entries);
    const figures = [parts.spent(ledger, asked.delta), parts.spent(ledger.map(({ watched }) => watched), asked.delta)];
    return figures.map((figure) => (Number.isFinite(figure) ? figure : "endless"));
  },

  /** Why each document is refused, by the reader of its kind; null where it is taken. */
  documents: async () => {
    const key = fromHex(asked.key);
    const task = await client.readTask(fromHex(asked.task), key);
    const readers = { 1: (data) => client.readTask(data, key), 2: (data) => client.readRound(data, task, key), 16: (data) => parts.readEnd(data, task, key) };
    const refusals = [];
    for (const { kind, document } of asked.documents) {
      const data = fromHex(document);
      const read = readers[kind] ?? ((bytes) => parts.verified(parts.readDocument(bytes), kind, key));
      try {
        await read(data);
        refusals.push(null);
      } catch (problem) {
        refusals.push(problem.name === "WireError" ? problem.message : `NOT A REFUSAL: ${problem.stack}`);
      }
    }
    return refusals;
  },

  /** Vectors of CSV files under questions, by the places of their entries; null for a file that is refused. */
  questions: () =>
    asked.cases.map(({ files }, place) => {
      const question = parts.readQuestion(typed.get("cases")[place].get("words"));
      const made = files.map((file) => {
        try {
          return [...parts.allAtOnce(parts.meanVector(question, client.recordsOfCsv(file)))].flatMap((entry, at) => (entry === 0 ? [] : [[at, entry]]));
        } catch (problem) {
          if (problem.name !== "RecordError") throw problem;
          return null;
        }
      });
      return { dim: question.dim, norm: question.norm, diameter: question.diameter, made };
    }),

  /** What rows say in rounds of a task with stages, and how long that is over the round's norm once it is clipped. */
  stages: async () => {
    const key = fromHex(asked.key);
    const task = await client.readTask(fromHex(asked.task), key);
    const answers = [];
    for (const { document, rows } of asked.cases) {
      const round = await client.readRound(fromHex(document), task, key);
      const { algorithm, share, plan } = task.phases[round.phase - 1];
      const stage = { algorithm, share, norm: plan.norm };
      for (const { x, y } of rows) {
        const vector = parts.allAtOnce(parts.meanStage(task.problem, stage, round.theta, round.coordinates, [{ x: Float64Array.from(x), y }], task.blanks));
        const finite = vector.every(Number.isFinite) ? vector : new Float64Array(vector.length);
        answers.push({ vector: [...vector].map((entry) => (Number.isFinite(entry) ? entry : null)), unit: [...parts.clipped(finite, plan.norm)] });
      }
    }
    return answers;
  },

  /** Devices that answer a task; each says the counts that it sent, by round, and which rounds it covered; or why it refused. */
  devices: () =>
    Promise.all(
      asked.devices.map(async (device) => {
        const said = {};
        const covered = [];
        let notYet;
        const seeds = (round) => new parts.KeyedRandom(fromHex(device.seeds[round]));
        let source;
        const made = new client.Client({
          shuffler: asked.shuffler,
          token: device.token,
          analyzerKey: asked.key,
          store: new FolderStore(device.folder),
          maxEpsilon: asked.epsilon,
          maxDelta: asked.delta,
          maxEpsilonIfWatched: device.watched ?? asked.watched ?? Infinity,
          atOnce: asked.atOnce ?? true,
          invitation: device.invitation,
          fetch: device.dies ? dying(device.dies) : undefined,
          random: device.seeds ? { draw: (count) => source.draw(count) } : undefined,
        });
        const rows = device.rows.map(({ x, y }) => ({ x: Float64Array.from(x), y }));
        const round = made.round.bind(made);
        made.round = async () => {
          const found = await round();
          if (found !== null && device.seeds) source = seeds(found.number);
          return found;
        };
        try {
          const answered = await made.join(device.records ?? rows, {
            wait: asked.wait ?? 60,
            notYet: (lot) => (notYet = lot),
            watch: ({ round: number, cover, randomized }) => (cover ? covered.push(number) : (said[number] = randomized.counts)),
          });
          return { answered, said, covered, notYet };
        } catch (problem) {
          if (problem.name !== "RefusedTaskError") throw problem;
          return { refused: problem.message };
        }
      }),
    ),

  /** Milliseconds of one report. */
  speed: async () => {
    const plan = parts.readPlan(typed.get("plan"));
    const key = fromHex(asked.key);
    const vector = new Float64Array(plan.dim).fill(0.5 / plan.dim);
    const times = [];
    for (let number = 0; number < asked.reports; number += 1) {
      const begun = performance.now();
      const { counts } = parts.randomized(vector, plan, client.secureRandom, new Uint8Array(32));
      await parts.sealedReport(asked.transport, new Uint8Array(32), counts, plan, key);
      times.push(performance.now() - begun);
    }
    return times;
  },
};

process.stdout.write(JSON.stringify(await ASKED[asked.what]()));
