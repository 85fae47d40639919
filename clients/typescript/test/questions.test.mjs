import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as client from "../../../src/croupier/service/shuffler/page/croupier-client.js";
import { checkQuestions } from "./questions.mjs";

const tests = join(dirname(fileURLToPath(import.meta.url)), "../../../tests");

test("all vectors of questions", async () => {
  const checked = await checkQuestions(client, async (name) => readFileSync(join(tests, name), "utf-8"));
  if (checked < 150) throw new Error(`only ${checked} vectors`);
});

test("a device that remembers no round of a stream counts no day before the present one", () => {
  const words = '{"kind": "stream", "column": "ill", "start": "2026-01-05", "days": 3, "per_person": 2}';
  const { stream } = client.parts.readQuestion(client.parts.parseJson(words));
  const records = [{ ill: "2026-01-05" }, { ill: "2026-01-06" }];
  assert.deepEqual(stream.counted(records, 1, null), { until: 1, days: [1] });
  assert.deepEqual(stream.counted(records, 2, null), { until: 2, days: [2] });
  assert.deepEqual(stream.counted(records, 3, null), { until: 3, days: [] });
  assert.deepEqual(stream.counted(records, 3, { until: 1, days: [1] }), { until: 3, days: [1, 2] });
});
