/** The wallet against an enroller and a shuffler that a test plays: what is kept, sent again, struck out and refused. */
import assert from "node:assert/strict";
import { constants, createPrivateKey, generateKeyPairSync, privateDecrypt, sign } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as client from "../../../src/croupier/service/shuffler/page/croupier-client.js";
import { FolderStore } from "../../../src/croupier/service/shuffler/page/croupier-node.js";

const { fromHex, parts } = client;
const vectors = join(dirname(fileURLToPath(import.meta.url)), "../../../tests/service/vectors");
const documents = JSON.parse(readFileSync(join(vectors, "documents.json"), "utf-8"));
const rows = [{ x: Float64Array.from([0.6, -0.3]), y: 1 }];
const modulusOf = (key) => Buffer.from(key.export({ format: "jwk" }).n, "base64url").toString("hex");
// the stranger's modulus is the larger one: it can sign whatever is asked of the other
const [signer, stranger] = [1, 2]
  .map(() => generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey)
  .sort((one, other) => (modulusOf(one) < modulusOf(other) ? -1 : 1));
const modulus = modulusOf(signer);

function document(kind, text) {
  const seed = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.from(documents.analyzer.private, "hex")]);
  const said = Buffer.from(text);
  const signature = sign(null, Buffer.concat([Buffer.from("croupier signature v1"), Buffer.from([kind]), said]), createPrivateKey({ key: seed, format: "der", type: "pkcs8" }));
  const header = Buffer.alloc(16);
  header.write("CRPD");
  header[4] = 1;
  header[5] = kind;
  header.writeUInt32LE(said.length, 8);
  return new Uint8Array(Buffer.concat([header, said, signature]));
}

// the published task with an enroller; texts are changed, so that 5.0 stays 5.0
const words = parts.parseJson(documents.task.text);
words.set("enroller", parts.parseJson(JSON.stringify({ address: "https://enroller.example/at", keys: [modulus] })));
words.set("transport", "masked-sum");
words.set("id", parts.taskId(words));
const id = words.get("id");
const task = document(1, parts.canonical(words));
const round = (roundId) => {
  const said = parts.parseJson(documents.round.text);
  said.set("task", id);
  said.set("id", roundId);
  return document(2, parts.canonical(said));
};

/** A shuffler and an enroller: each answers by path, and keeps what was sent. */
function played(answers = {}) {
  const sent = { "/v1/report": [], "/at/v1/tokens": [] };
  const play = async (url, { body, headers }) => {
    const { pathname: path, host } = new URL(url);
    const secrets = { "/v1/round": "Bearer token", "/v1/report": "Bearer token", "/at/v1/tokens": "Bearer an-invitation" };
    assert.equal(headers.Authorization, secrets[path]);
    assert.equal(host, path === "/at/v1/tokens" ? "enroller.example" : "shuffler.example"); // no secret reaches the other server
    sent[path]?.push(body);
    const given = answers[path];
    if (given === "lost") throw new TypeError("no network");
    if (typeof given === "number") return new Response("because", { status: given });
    if (given !== undefined) return new Response(given(body));
    const usual = { "/v1/task": task, "/v1/round": round("ab"), "/v1/report": new Uint8Array(0), "/v1/end": new Uint8Array(0) };
    return new Response(path === "/at/v1/tokens" ? signedBy(signer)(body) : usual[path]);
  };
  return { fetch: play, sent, answers };
}

const signedBy = (key) => (body) => privateDecrypt({ key, padding: constants.RSA_NO_PADDING }, Buffer.from(body.subarray(16)));

const made = (servers, store, more = {}) =>
  new client.Client({
    shuffler: "https://shuffler.example",
    token: "token",
    analyzerKey: documents.analyzer.public,
    invitation: "an-invitation",
    store,
    fetch: servers.fetch,
    maxEpsilon: 20,
    maxDelta: 1e-2,
    atOnce: true,
    ...more,
  });

const stores = {
  memory: async (run) => {
    const store = new client.MemoryStore();
    await run(() => store);
  },
  folder: async (run) => {
    const folder = mkdtempSync(join(tmpdir(), "croupier-"));
    try {
      await run(() => new FolderStore(folder), folder); // each time another process would open it anew
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
};

for (const [kind, within] of Object.entries(stores)) {
  test(`the same requests are sent again until the tokens are here, then nothing that links them is kept (${kind})`, () =>
    within(async (open) => {
      const servers = played({ "/at/v1/tokens": "lost" });
      await assert.rejects(made(servers, open()).collect(), { name: "ServerError", status: null, message: /^the enroller: / });
      servers.answers["/at/v1/tokens"] = 503;
      await assert.rejects(made(servers, open()).answer(rows), { status: 503 });
      servers.answers["/at/v1/tokens"] = undefined;
      await made(servers, open()).collect();
      await made(servers, open()).collect();
      const asked = servers.sent["/at/v1/tokens"];
      assert.equal(asked.length, 3); // a fourth time there was nothing to ask for
      assert.deepEqual(asked[0], asked[2]);
      assert.equal(asked[0].length, 16 + 256);
      const wallet = await open().wallet(id);
      assert.equal(wallet.requests, undefined);
      const token = fromHex(wallet.tokens[0]);
      assert.ok(parts.isSigned(parts.signedMessage(token.slice(0, 32), id, 1), token.slice(32), BigInt(`0x${modulus}`)));
      assert.equal(Buffer.from(asked[0]).includes(Buffer.from(token.slice(0, 32))), false);
      assert.equal(await made(servers, open()).answered(), 0);
    }));

  test(`a token is in one report, and struck out with it (${kind})`, () =>
    within(async (open) => {
      const servers = played({ "/v1/report": "lost" });
      await assert.rejects(made(servers, open()).answer(rows), { status: null });
      assert.deepEqual((await open().wallet(id)).tokens, [""]);
      servers.answers["/v1/report"] = undefined;
      assert.equal((await made(servers, open()).answer(rows)).firstTime, false);
      assert.equal(await made(servers, open()).answer(rows), null);
      const reports = servers.sent["/v1/report"];
      assert.equal(reports.length, 2);
      assert.deepEqual(reports[0], reports[1]);
      assert.equal(servers.sent["/at/v1/tokens"].length, 1);
    }));

  test(`a slot whose token is used takes no report, whatever its name is (${kind})`, () =>
    within(async (open) => {
      const store = open();
      await store.keepRequests(id, [{ prefix: "00", request: "01", inverse: "2" }]);
      const entry = (slot, token) => ({ slot: `${id}-${slot}`, task: id, round: 1, phase: 1, mu: 0.1, slack: 0, token });
      assert.equal(await store.keep(entry("a", 1), new Uint8Array(1), () => true), false); // no token yet
      await store.keepTokens(id, ["aa", "bb"]);
      assert.equal(await open().keepRequests(id, []), null);
      assert.equal(await store.keep(entry("b", 1), new Uint8Array(1), () => true), true);
      assert.equal(await store.keep(entry("c", 1), new Uint8Array(1), () => true), false);
      assert.equal(await store.keep(entry("d", 3), new Uint8Array(1), () => true), false);
      assert.deepEqual((await open().wallet(id)).tokens, ["", "bb"]);
      assert.deepEqual((await store.entries()).map(({ slot }) => slot), [`${id}-b`]);
      await store.keepTokens(id, ["cc", "dd"]); // of a retry that comes late
      assert.deepEqual((await open().wallet(id)).tokens, ["", "bb"]);
    }));

  test(`what is not signed by the enroller's key is no token (${kind})`, () =>
    within(async (open) => {
      for (const wrong of [signedBy(stranger), (body) => signedBy(signer)(body).subarray(1), (body) => Buffer.from(body.subarray(16)), () => Buffer.alloc(256)]) {
        const servers = played({ "/at/v1/tokens": wrong });
        await assert.rejects(made(servers, open()).answer(rows), { name: "WireError" });
        assert.deepEqual(servers.sent["/v1/report"], []);
        assert.equal((await open().wallet(id)).tokens, undefined);
      }
    }));
}

test("in a folder requests are gone when tokens are here, also after a kill between the two", () =>
  stores.folder(async (open, folder) => {
    await open().keepRequests(id, [{ prefix: "00", request: "01", inverse: "2" }]);
    const requests = readFileSync(join(folder, `${id}.requests`));
    await open().keepTokens(id, ["aa"]);
    assert.deepEqual(readdirSync(folder), [`${id}.tokens`]);
    writeFileSync(join(folder, `${id}.requests`), requests);
    assert.deepEqual(await open().wallet(id), { tokens: ["aa"] });
    assert.deepEqual(readdirSync(folder), [`${id}.tokens`]);
  }));

test("whoever has no invitation, or one that is not taken, is told so, and nothing leaves", async () => {
  const servers = played();
  for (const wrong of [undefined, "", "with a space", "ä"]) {
    await assert.rejects(made(servers, new client.MemoryStore(), { invitation: wrong }).answer(rows), { name: "InvitationError" });
  }
  assert.deepEqual(servers.sent["/at/v1/tokens"], []);
  for (const [status, words] of [[401, /does not know/], [409, /collected elsewhere/]]) {
    servers.answers["/at/v1/tokens"] = status;
    await assert.rejects(made(servers, new client.MemoryStore()).answer(rows), (problem) => problem.name === "InvitationError" && words.test(problem.message) && !problem.message.includes("an-invitation"));
  }
  assert.deepEqual(servers.sent["/v1/report"], []);
});

test("an invitation goes to the enroller that its owner knows, and to no other", async () => {
  const servers = played();
  for (const address of ["https://other.example", "https://enroller.example", "https://enroller.example/at/more"]) {
    await assert.rejects(made(servers, new client.MemoryStore(), { enroller: address }).task(), /names the enroller https:\/\/enroller.example\/at; .* is demanded/);
  }
  assert.equal((await made(servers, new client.MemoryStore(), { enroller: "https://enroller.example/at/" }).task()).id, id);
  const without = played({ "/v1/task": () => fromHex(documents.task.bytes) });
  await assert.rejects(made(without, new client.MemoryStore(), { enroller: "https://enroller.example/at" }).task(), /has no enroller/);
  assert.throws(() => made(servers, new client.MemoryStore(), { enroller: "http://enroller.example" }), RangeError);
  assert.deepEqual(servers.sent["/at/v1/tokens"], []);
});

test("neither a token nor an invitation travels in clear to another machine", async () => {
  for (const address of ["http://shuffler.example", "http://10.0.0.1:8801", "ftp://a", "shuffler.example", "", "http://localhost.example", "http://[::2]"]) {
    assert.throws(() => made(played(), new client.MemoryStore(), { shuffler: address }), RangeError);
  }
  for (const address of ["https://shuffler.example", "http://localhost:1", "http://127.0.0.1:8801", "http://[::1]:5", "http://127.8.8.8/path"]) {
    made(played(), new client.MemoryStore(), { shuffler: address });
  }
  const store = new client.MemoryStore();
  const enroller = { address: "http://enroller.example", moduli: [BigInt(`0x${modulus}`)] };
  const never = () => assert.fail("it was sent");
  await assert.rejects(parts.collectTokens(store, id, enroller, "an-invitation", never), /https address/);
  assert.equal(await store.wallet(id), undefined);
});
