/** The client against a shuffler that a test plays: what it refuses, counts and sends again. */
import assert from "node:assert/strict";
import fs, { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { createPrivateKey, sign } from "node:crypto";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as client from "../../../src/croupier/service/shuffler/page/croupier-client.js";
import { FolderStore } from "../../../src/croupier/service/shuffler/page/croupier-node.js";

const { fromHex } = client;
const vectors = join(dirname(fileURLToPath(import.meta.url)), "../../../tests/service/vectors");
const { analyzer, task, round } = JSON.parse(readFileSync(join(vectors, "documents.json"), "utf-8"));
const rows = [{ x: Float64Array.from([0.6, -0.3]), y: 1 }];

/** A shuffler: answers by path, and keeps what was sent. */
function played(answers = {}) {
  const sent = [];
  const play = async (url, { method, body }) => {
    const path = new URL(url).pathname;
    if (method === "POST") sent.push(body);
    const given = answers[path];
    if (given === "lost") throw new TypeError("no network");
    if (typeof given === "number") return new Response("because", { status: given });
    const data = given ?? { "/v1/task": fromHex(task.bytes), "/v1/round": fromHex(round.bytes), "/v1/report": new Uint8Array(0), "/v1/end": new Uint8Array(0) }[path];
    return new Response(data, { status: 200 });
  };
  return { fetch: play, sent, answers };
}

const made = (shuffler, store, more = {}) =>
  new client.Client({
    shuffler: "https://shuffler.example",
    token: "token",
    analyzerKey: analyzer.public,
    store,
    fetch: shuffler.fetch,
    maxEpsilon: 20,
    maxDelta: 1e-2,
    atOnce: true,
    ...more,
  });

const stores = {
  memory: (run) => run(() => new client.MemoryStore()),
  folder: async (run) => {
    const folder = mkdtempSync(join(tmpdir(), "croupier-"));
    try {
      await run(() => new FolderStore(folder)); // each time another process would open it anew
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
};

for (const [kind, within] of Object.entries(stores)) {
  test(`an answer is counted before it is sent, and sent again as it was (${kind})`, () =>
    within(async (open) => {
      const shuffler = played({ "/v1/report": "lost" });
      let store = open();
      const again = () => (kind === "folder" ? (store = open()) : store);
      await assert.rejects(made(shuffler, store).answer(rows), { name: "ServerError", status: null });
      assert.equal(await made(shuffler, again()).answered(), 1);
      assert.equal(await made(shuffler, again()).waits(), true);
      shuffler.answers["/v1/report"] = undefined;
      assert.deepEqual(await made(shuffler, again()).answer(rows), { round: 1, firstTime: false, blank: false, cover: false });
      assert.equal(shuffler.sent.length, 2);
      assert.deepEqual(shuffler.sent[0], shuffler.sent[1]);
      assert.equal(await made(shuffler, again()).answer(rows), null); // once
      assert.equal(shuffler.sent.length, 2);
    }));

  test(`a report that came too late is counted and never made again (${kind})`, () =>
    within(async (open) => {
      const shuffler = played({ "/v1/report": 410 });
      const store = open();
      await assert.rejects(made(shuffler, store).answer(rows), { status: 410 });
      assert.equal(await made(shuffler, store).waits(), false);
      assert.equal(await made(shuffler, store).answer(rows), null);
      assert.equal(shuffler.sent.length, 1);
    }));

  test(`two at once answer once (${kind})`, () =>
    within(async (open) => {
      const shuffler = played();
      const store = open();
      const one = made(shuffler, store);
      const other = made(shuffler, kind === "folder" ? open() : store);
      await Promise.all([one.task(), other.task()]);
      const sent = await Promise.all([one.answer(rows), other.answer(rows)]);
      assert.equal(sent.filter((answer) => answer !== null).length, 1);
      assert.equal(shuffler.sent.length, 1);
    }));

  test(`a slot takes one entry, whatever locks say (${kind})`, () =>
    within(async (open) => {
      const store = open();
      const entry = { slot: "a-task", task: "a", round: 1, phase: 1, mu: 0.1, slack: 0 };
      const kept = await Promise.all([1, 2, 3].map((byte) => store.keep(entry, new Uint8Array([byte]), () => true)));
      assert.deepEqual(kept.filter(Boolean).length, 1);
      assert.equal((await store.entries()).length, 1);
    }));
}

test("a report whose entry was lost is sent as it is, and counted", () =>
  stores.folder(async (open) => {
    const shuffler = played({ "/v1/report": "lost" });
    const store = open();
    await assert.rejects(made(shuffler, store).answer(rows), { status: null });
    rmSync(join(store.folder, `${JSON.parse(task.text).id}-task.entry`));
    shuffler.answers["/v1/report"] = undefined;
    assert.equal((await made(shuffler, open()).answer(rows)).firstTime, false);
    assert.equal(await made(shuffler, open()).answered(), 1);
    assert.equal(await made(shuffler, open()).answer(rows), null);
    assert.deepEqual(shuffler.sent[0], shuffler.sent[1]);
  }));

test("a promise that is too weak, and a budget that is used up, are refused before anything is sent", async () => {
  const shuffler = played();
  await assert.rejects(made(shuffler, new client.MemoryStore(), { maxEpsilon: 1 }).answer(rows), { name: "RefusedTaskError" });
  const store = new client.MemoryStore();
  const budget = { epsilon: 30, delta: 1e-1 };
  assert.ok((await made(shuffler, store, { budget }).budgetUse()) < 1);
  await store.keep({ slot: "other-task", task: "other", round: 1, phase: 1, mu: 9, slack: 0 }, new Uint8Array(1), () => true);
  assert.ok((await made(shuffler, store, { budget }).budgetUse()) > 1);
  await assert.rejects(made(shuffler, store, { budget }).answer(rows), /beyond the owner's limit/);
  assert.equal(shuffler.sent.length, 0);
});

for (const [kind, within] of Object.entries(stores)) {
  test(`a budget has a sliding period, and the store remembers it (${kind})`, () =>
    within(async (open) => {
      const shuffler = played();
      const fixed = open();
      const store = () => (kind === "folder" ? open() : fixed);
      const day = 86400;
      let now = 1.8e9;
      const clock = () => now;
      const budget = { epsilon: 30, delta: 1e-1, period: "30d" };
      const other = { slot: "other-task", task: "other", round: 1, phase: 1, mu: 9, slack: 0, first: now, last: now };
      await store().keep(other, new Uint8Array(1), () => true);
      now += 20 * day;
      const long = { ...budget, period: "9999999w" };
      await assert.rejects(made(shuffler, store(), { budget: long, clock }).task(), /beyond .* There is room for it after the year 9999\./);
      await assert.rejects(made(shuffler, store(), { budget, clock }).task(), /within any 30 days is beyond .* There is room for it after 2027-02-14 08:00 UTC/);
      await assert.rejects(made(shuffler, store(), { clock }).answer(rows), { name: "RefusedTaskError" }); // the limit is remembered
      assert.equal(shuffler.sent.length, 0);
      now += 11 * day;
      shuffler.answers["/v1/report"] = "lost";
      await assert.rejects(made(shuffler, store(), { clock }).answer(rows), { status: null });
      const { limit, tasks } = await made(shuffler, store(), { clock }).ledger();
      assert.deepEqual(limit, { epsilon: 30, delta: 1e-1, seconds: 30 * day });
      assert.deepEqual(tasks.map(({ last, answers }) => [last, answers]), [[1.8e9, 1], [now, 1]]);
      // an answer counts from when it is sent, and is sent again only while there is room
      now += 20 * day;
      await assert.rejects(made(shuffler, store(), { clock }).answer(rows), { status: null });
      assert.equal((await made(shuffler, store(), { clock }).ledger()).tasks[1].last, now);
      await store().keep({ ...other, slot: "third-task", task: "third", first: now, last: now }, new Uint8Array(1), () => true);
      await assert.rejects(made(shuffler, store(), { clock }).answer(rows), { name: "RefusedTaskError" });
      assert.equal(shuffler.sent.length, 2);
      assert.equal((await made(shuffler, store(), { clock }).ledger()).tasks.find(({ task }) => task !== "other" && task !== "third").answers, 1);
      // an answer of before there were times counts in every period
      const old = { slot: "old-task", task: "old", round: 1, phase: 1, mu: 9, slack: 0 };
      await store().keep(old, new Uint8Array(1), () => true);
      now += 1000 * day;
      await assert.rejects(made(shuffler, store(), { clock }).task(), { name: "RefusedTaskError" });
    }));
}

test("a budget that is none is refused before anything is asked", () => {
  for (const wrong of [{ epsilon: 0, delta: 1e-5 }, { epsilon: 1, delta: 1 }, { epsilon: NaN, delta: 0.1 }, { epsilon: 1, delta: 0.1, period: "365" }, { epsilon: 1, delta: 0.1, period: "0d" }, { epsilon: 1, delta: 0.1, period: -1 }]) {
    assert.throws(() => made(played(), new client.MemoryStore(), { budget: wrong }), RangeError);
  }
  for (const wrong of [{ maxDelta: 1 }, { maxEpsilon: NaN }, { maxEpsilonIfWatched: NaN }, { maxReportBytes: 0.5 }]) {
    assert.throws(() => made(played(), new client.MemoryStore(), wrong), RangeError);
  }
});

test("a report that would be too long is not made", async () => {
  const shuffler = played();
  await made(shuffler, new client.MemoryStore()).answer(rows);
  const [{ length }] = shuffler.sent;
  await made(shuffler, new client.MemoryStore(), { maxReportBytes: length }).answer(rows);
  await assert.rejects(made(shuffler, new client.MemoryStore(), { maxReportBytes: length - 1 }).answer(rows), { name: "RefusedTaskError", message: /asks for reports of/ });
  assert.equal(shuffler.sent.length, 2);
});

test("a record that is not valid is refused without a word of it, and nothing is sent", async () => {
  const shuffler = played();
  const store = new client.MemoryStore();
  for (const wrong of [[{ x: Float64Array.from([NaN, 1]), y: 1 }], [{ x: Float64Array.from([1, 1]), y: 777 }], () => Promise.reject(new Error("777"))]) {
    await assert.rejects(made(shuffler, store).answer(wrong), (problem) => problem.name === "RecordError" && !problem.message.includes("777"));
  }
  assert.equal(shuffler.sent.length, 0);
  assert.equal(await made(shuffler, store).answered(), 0);
});

test("the time at which a report leaves does not depend on how many records a person has", async () => {
  // the fault: all of them were computed at once, for as long as it took, and the report left after that
  const real = { setTimeout: globalThis.setTimeout, now: performance.now };
  let moved = 0;
  const long = { y: 1, get x() {
    moved += 50; // milliseconds for a record, of which the client reads `x` twice
    return rows[0].x;
  } };
  performance.now = () => real.now.call(performance) + moved;
  globalThis.setTimeout = (work, wait = 0) => {
    const at = performance.now() + wait;
    return real.setTimeout(() => ((moved += Math.max(0, at - performance.now())), work()), 100); // by then a short answer is there
  };
  try {
    for (const [many, blank] of [[1, false], [30, false], [1000, true]]) {
      const shuffler = played();
      const begun = performance.now();
      const answered = await made(shuffler, new client.MemoryStore(), { atOnce: false }).answer(Array(many).fill(long));
      const took = performance.now() - begun;
      assert.deepEqual(answered, { round: 1, firstTime: true, blank, cover: false });
      assert.ok(took >= 9_900 && took < 11_000, `${many} records: ${took} ms`); // the task's pace is 10 seconds
      assert.equal(shuffler.sent.length, 1);
    }
  } finally {
    Object.assign(globalThis, { setTimeout: real.setTimeout });
    performance.now = real.now;
  }
});

test("records that are not ready in time are answered by a blank, at the same time", async () => {
  // `pace` is 10 seconds in the vector's task: the clock is moved by the test
  const shuffler = played();
  const slow = new Promise(() => undefined);
  const real = { setTimeout: globalThis.setTimeout, now: performance.now };
  let moved = 0;
  performance.now = () => real.now.call(performance) + moved;
  globalThis.setTimeout = (work, wait) => real.setTimeout(() => ((moved += wait ?? 0), work()), 1);
  try {
    const begun = performance.now();
    const sent = await made(shuffler, new client.MemoryStore(), { atOnce: false }).answer(slow);
    assert.deepEqual(sent, { round: 1, firstTime: true, blank: true, cover: false });
    assert.ok(performance.now() - begun >= 10_000);
  } finally {
    Object.assign(globalThis, { setTimeout: real.setTimeout });
    performance.now = real.now;
  }
});

test("whoever leaves sends nothing more, also of what was made", async () => {
  const shuffler = played();
  const store = new client.MemoryStore();
  const leaving = new AbortController();
  const sent = await made(shuffler, store).answer(rows, { watch: () => leaving.abort(), signal: leaving.signal });
  assert.equal(sent, null);
  assert.equal(shuffler.sent.length, 0);
  assert.equal(await made(shuffler, store).waits(), false);
  assert.equal(await made(shuffler, store).answered(), 1);
});

test("a task that has ended is asked for no longer, if the analyzer says so", async () => {
  const { id } = JSON.parse(task.text);
  const said = Buffer.from(JSON.stringify({ reason: "enough", rounds: 1, task: id }));
  const seed = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.from(analyzer.private, "hex")]);
  const signed = (kind) => sign(null, Buffer.concat([Buffer.from("croupier signature v1"), Buffer.from([kind]), said]), createPrivateKey({ key: seed, format: "der", type: "pkcs8" }));
  const header = Buffer.alloc(16);
  header.write("CRPD");
  header[4] = 1;
  header[5] = 16;
  header.writeUInt32LE(said.length, 8);
  const document = (signature) => new Uint8Array(Buffer.concat([header, said, signature]));
  const shuffler = played({ "/v1/round": new Uint8Array(0), "/v1/end": document(signed(16)) });
  const heard = [];
  assert.equal(await made(shuffler, new client.MemoryStore()).join(rows, { wait: 60, ended: (end) => heard.push(end) }), 0);
  assert.deepEqual(heard, [{ rounds: 1, reason: "enough" }]);
  shuffler.answers["/v1/end"] = document(signed(2));
  await assert.rejects(made(shuffler, new client.MemoryStore()).join(rows, { wait: 60 }), { name: "WireError" });
});

test("figures are rounded up as text", () => {
  assert.deepEqual([0.99999, 1, 1.00001, 3.9766e-9, 12345.1, 0].map((value) => client.roundUp(value)), ["1", "1", "1.001", "3.977e-9", "12350", "0"]);
  assert.equal(client.roundUp(Infinity), "no bound");
});

test("half of a code point is no text, whole ones are", () => {
  assert.equal(client.parts.parseJson('"\\ud83d\\ude00"'), "\u{1f600}");
  for (const half of ['"\\ud83d"', '"a\\ude00"', '{"\\ude00\\ud83d": 1}']) assert.throws(() => client.parts.parseJson(half), { name: "WireError" });
});

test("an answer by a clock that was set back does not leave the ledger before those that were there", async () => {
  const shuffler = played({ "/v1/report": "lost" });
  const store = new client.MemoryStore();
  const day = 86400;
  let now = 1.8e9;
  const clock = () => now;
  const other = { slot: "other-task", task: "other", round: 1, phase: 1, mu: 0.1, slack: 0, first: now, last: now };
  await store.keep(other, new Uint8Array(1), () => true);
  await store.sent("other-task");
  now -= 400 * day;
  const budget = { epsilon: 30, delta: 1e-1, period: "30d" };
  await assert.rejects(made(shuffler, store, { budget, clock }).answer(rows), { status: null });
  assert.deepEqual((await store.entries()).map(({ last }) => last), [1.8e9, 1.8e9]);
  await assert.rejects(made(shuffler, store, { budget, clock }).answer(rows), { status: null }); // sent again
  assert.deepEqual((await store.entries()).map(({ last }) => last), [1.8e9, 1.8e9]);
});

test("whoever only sends again what waits makes nothing of records that are not there", async () => {
  const shuffler = played({ "/v1/report": "lost" });
  const store = new client.MemoryStore();
  await assert.rejects(made(shuffler, store).answer(rows), { status: null });
  shuffler.answers["/v1/report"] = undefined;
  const read = () => assert.fail("records were asked for");
  assert.equal(await made(shuffler, store).join([], { wait: 5, again: true }), 1);
  assert.equal(await made(shuffler, store).answer(read, { again: true }), null);
  const empty = new client.MemoryStore();
  assert.equal(await made(shuffler, empty).answer(read, { again: true }), null);
  assert.deepEqual([await empty.entries(), shuffler.sent.length], [[], 2]);
});

test("a lock that is just being written is not taken for one that was left behind", async () => {
  const folder = mkdtempSync(join(tmpdir(), "croupier-"));
  const write = fs.writeSync;
  let other;
  fs.writeSync = (...what) => {
    fs.writeSync = write;
    syncBuiltinESMExports();
    other = new FolderStore(folder).alone(async () => "at work"); // another process, between two steps of this one
    return write(...what);
  };
  syncBuiltinESMExports();
  const one = await new FolderStore(folder).alone(async () => "at work");
  assert.deepEqual([one, await other].sort(), ["at work", null]);
  assert.equal(await new FolderStore(folder).alone(async () => "at work"), "at work");
  rmSync(folder, { recursive: true });
});

test("a file with two columns of one name is refused, as in Python", () => {
  assert.throws(() => client.recordsOfCsv("age,town,age\n5,Ulm,6\n"), { name: "RecordError" });
});

test("classes that no record tells apart are refused", () => {
  const { parts } = client;
  const question = (classes) => {
    const schema = { target: { column: "t", classes }, columns: [{ name: "d", low: 0, high: 1 }] };
    const model = { answers: "probabilities", schema, feature_norm: 1, coef: classes.map(() => [0.5]), intercept: classes.map(() => 0.5) };
    return () => parts.readQuestion(parts.parseJson(JSON.stringify({ kind: "evaluate", model })));
  };
  assert.throws(question(["true", "True", "false"]), { name: "WireError" });
  assert.equal(question(["true", "false", "maybe"])().kind, "evaluate");
});

test("bins that are not shown have no words made for them", () => {
  const { parts } = client;
  const words = { kind: "histogram", column: "c", low: 0, high: 1000.5, bins: 100_000 };
  const question = parts.readQuestion(parts.parseJson(JSON.stringify(words)));
  const written = Number.prototype.toLocaleString;
  let times = 0;
  Number.prototype.toLocaleString = function (...how) {
    times += 1;
    return written.apply(this, how);
  };
  try {
    for (let place = 0; place < question.dim; place += 1) assert.equal(question.coordinate(place).part, "c");
    assert.equal(times, 0);
    assert.equal(question.coordinate(1).counts, "0.01001 to 0.02001");
  } finally {
    Number.prototype.toLocaleString = written;
  }
});

test("an answer that does not end is not read to its end", async () => {
  let drawn = 0;
  const endless = new ReadableStream({
    pull(controller) {
      drawn += 1;
      if (drawn > 200) controller.close(); // so that this test ends, whatever reads
      else controller.enqueue(new Uint8Array(1 << 20));
    },
  });
  const shuffler = { fetch: async () => new Response(endless) };
  await assert.rejects(made(shuffler, new client.MemoryStore()).task(), { message: "an answer that does not end" });
  assert.ok(drawn < 80);
});

test("a report counts from when it is sent, however the analyzer has named its round", async () => {
  const shuffler = played({ "/v1/report": "lost" });
  const store = new client.MemoryStore();
  let now = 1.8e9;
  const device = made(shuffler, store, { clock: () => now });
  const { id } = await device.task();
  await store.keep({ slot: `${id}-cover-1`, task: id, round: 1, phase: 1, mu: 1, slack: 0, first: now, last: now }, new Uint8Array(1), () => true);
  now += 1000;
  await assert.rejects(device.answer(rows), { status: null });
  assert.deepEqual((await store.entries()).map(({ last }) => last), [now]);
});
