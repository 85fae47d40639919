import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as client from "../../../src/croupier/service/shuffler/page/croupier-client.js";
import { checkVectors } from "./vectors.mjs";

const tests = join(dirname(fileURLToPath(import.meta.url)), "../../../tests");

test("all shared vectors", async () => {
  const checked = await checkVectors(client, async (name) => readFileSync(join(tests, name), "utf-8"));
  if (checked < 200) throw new Error(`only ${checked} vectors`);
});
