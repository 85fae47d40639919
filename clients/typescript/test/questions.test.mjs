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
