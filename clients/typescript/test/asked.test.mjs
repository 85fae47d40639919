/** What the page says that rounds ask: of its source, since what is served of it needs a browser. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { transformSync } from "esbuild";

const { code } = transformSync(readFileSync(new URL("../page/asked.ts", import.meta.url), "utf-8"), { loader: "ts" });
const { askedWords, numberNames } = await import(`data:text/javascript,${encodeURIComponent(code)}`);

const task = (outputs, more = {}) => ({
  problem: { features: 3, loss: { outputs, ...more } },
  records: { features: ["age", "dose"], target: { column: "ill", classes: ["no", "yes"] } },
});
const gradients = { algorithm: "descent", share: null };

test("what rounds ask about rows is said of each kind", () => {
  const said = ["mean", "spread", "moments", "descent", "acsa"].map((algorithm) => askedWords({ algorithm }));
  assert.deepEqual(said, [
    " about your record's numbers",
    " about your record's numbers and their squares",
    " about products of your record's numbers",
    "",
    "",
  ]);
});

test("each number is named by what it is about", () => {
  const columns = ["age", "dose", "constant"];
  const squares = ["age squared", "dose squared", "constant squared"];
  assert.deepEqual(numberNames(task(2), { algorithm: "mean", share: 0.1 }, 2), ["age", "dose"]);
  assert.deepEqual(numberNames(task(2), { algorithm: "spread", share: 0.1 }, 6), [...columns, ...squares]);
  assert.deepEqual(numberNames({ ...task(1), records: null }, { algorithm: "spread", share: 0.1 }, 6), ["1", "2", "3", "1 squared", "2 squared", "3 squared"]);
  assert.deepEqual(numberNames(task(1), { algorithm: "moments", share: 0.1 }, 6).slice(0, 4), ["age times age", "age times dose", "age times constant", "dose times dose"]);
  assert.equal(numberNames(task(1, { targetBound: 1 }), { algorithm: "moments", share: 0.1 }, 10).at(-2), "constant times target");
  assert.deepEqual(numberNames(task(1), gradients, 3), columns);
  assert.deepEqual(numberNames(task(2), gradients, 6), [...columns.map((name) => `no: ${name}`), ...columns.map((name) => `yes: ${name}`)]);
  assert.deepEqual(numberNames(task(1), { ...gradients, share: 0.1 }, 3), ["direction 1", "direction 2", "direction 3"]);
});
