/** All shared vectors, checked in Node and in browsers alike: `checkVectors(client, load)` throws at the first difference. */

const fail = (what, ...more) => {
  throw new Error(`${what}: ${more.map((one) => JSON.stringify(one)).join(" ")}`);
};
const same = (what, got, wanted) => {
  if (JSON.stringify(got) !== JSON.stringify(wanted)) fail(what, got, wanted);
};
const near = (what, got, wanted, tolerance) => {
  const scale = Math.max(1e-300, ...wanted.map(Math.abs));
  if (got.length !== wanted.length) fail(what, got.length, wanted.length);
  got.forEach((number, place) => {
    if (!(Math.abs(number - wanted[place]) <= tolerance * scale)) fail(what, place, number, wanted[place]);
  });
};
/** At or above, and not far above. */
const safely = (what, got, wanted, tolerance) => {
  if (!(got >= wanted * (1 - 1e-9) && got <= wanted * (1 + tolerance) + 2e-12)) fail(what, got, wanted);
};
const fraction = (text) => {
  const [above, below = 1] = String(text).split("/").map(Number);
  return above / below;
};

/** Draws by rejection, the paper's plans, and budgets within a period. */
async function checkPromises({ parts, fromHex, toHex, ...client }, load) {
  const text = await load("service/vectors/promises.json");
  const own = JSON.parse(text);
  const typed = parts.parseJson(text); // numbers such as 1.0 must stay floats on their way through JSON
  const { tolerance } = own;
  for (const one of own.samplers) {
    const source = new parts.KeyedRandom(fromHex(one.seed));
    const draws = parts.binomial(source, one.trials, one.probability, one.size);
    same(`draws of Bin(${one.trials}, ${one.probability})`, toHex(parts.sha256(new TextEncoder().encode(draws.join(",")))), one.digest);
    same("bytes used", toHex(source.draw(8)), one.next);
  }
  own.paper.forEach((one, place) => {
    const { guarantee } = parts.readPlan(typed.get("paper")[place].get("plan"));
    const bound = client.gaussianBound(guarantee);
    near("the paper's slack and epsilon", [guarantee.slack, guarantee.pure.epsilon], [one.slack, one.pure_epsilon], tolerance);
    near("an epsilon of the paper's", [client.epsilonOf(guarantee, one.delta)], [one.epsilon], tolerance);
    near("a bound on a plan of the paper's", [bound.mu, bound.slack], [one.bound.mu, one.bound.slack], tolerance);
    for (const { epsilon, delta } of one.deltas) safely("a delta of the paper's", client.deltaOf(guarantee, epsilon), delta, tolerance);
  });
  own.paper_refused.forEach((one, place) => {
    let answer = "taken";
    try {
      parts.readPlan(typed.get("paper_refused")[place].get("plan"));
    } catch (problem) {
      answer = problem.name;
    }
    same(`a plan of the paper's with ${JSON.stringify(one.change)}`, answer, "WireError");
  });
  for (const { epsilon, mu } of own.responses) near("mu of randomized response", [parts.responseMu(epsilon)], [mu], tolerance);
  for (const one of own.periods) same("a period", [client.periodOf(one.text), client.periodText(one.seconds)], [one.seconds, one.said]);
  for (const one of own.budgets) await checkBudget(one, { parts, ...client }, tolerance);
  return own.samplers.length + own.paper.length + own.paper_refused.length + own.budgets.length;
}

/** Answers that come one after the other, as Python's ledger took or refused them. */
async function checkBudget({ limit, promises, events }, { parts, ...client }, tolerance) {
  const store = new client.MemoryStore();
  const caps = new client.Budget(limit.epsilon, limit.delta);
  const guarantees = Object.fromEntries(
    Object.entries(promises).map(([task, { mu, slack, pure_epsilon: epsilon, pure_rounds: rounds }]) => [
      task,
      { mu, slack, neighbours: "replace-one", allocation: null, watched: null, ...(rounds > 0 && { pure: { epsilon, rounds } }) },
    ]),
  );
  let number = 0;
  for (const { now, task, again, refusal, counted, used, answers, spent } of events) {
    const asked = { id: task, guarantee: guarantees[task] };
    let said = null;
    const allowed = (entries) => (said = parts.beyondBudget(limit, parts.ledgerOf(entries), asked, now)) === null;
    number += 1;
    const slot = again ? (await store.entries()).find((entry) => entry.task === task).slot : `${task}-${number}`;
    const moment = parts.momentOf(await store.entries(), now);
    const entry = { slot, task, round: 1, phase: 1, ...client.gaussianBound(guarantees[task]), first: moment, last: moment };
    const taken = again ? await store.again(slot, moment, allowed) : await store.keep(entry, new Uint8Array(1), allowed);
    same("an answer within the budget", taken, refusal === null);
    if (refusal !== null) same("why it is refused", said, refusal.replace(/e-0/g, "e-"));
    const ledger = parts.ledgerOf(await store.entries());
    const within = parts.counted(limit, ledger, now);
    same("tasks that count", within.map((one) => one.task).sort(), counted);
    near("parts of the budget", within.length === 0 ? [0, 0] : caps.parts(within), used, tolerance);
    same("answers on the ledger", ledger.reduce((sum, one) => sum + one.answers, 0), answers);
    const all = parts.spent(ledger, limit.delta);
    if (spent === null) same("an epsilon for everything", all, Infinity);
    else near("an epsilon for everything", [all], [spent], tolerance);
  }
}

/** Public feature maps: the same weights to the last bit, the same features to a tolerance, and rows that are at most 1 long. */
async function checkFeatures(parts, load) {
  const text = await load("features/vectors.json");
  const own = JSON.parse(text);
  const typed = parts.parseJson(text);
  for (const one of own.weights) same("public weights", [...parts.publicWeights(one.kind, one.seed, one.weights.length)], one.weights);
  own.maps.forEach((one, place) => {
    const map = parts.readFeatures(typed.get("maps")[place].get("features"), one.rows[0].length);
    one.rows.forEach((row, number) => {
      const features = map.apply(Float64Array.from(row));
      if (one.mapped[number].length !== features.length) fail("features", one.map, features.length);
      features.forEach((entry, at) => {
        if (!(Math.abs(entry - one.mapped[number][at]) <= own.tolerance)) fail(`features of ${one.map}`, number, at, entry, one.mapped[number][at]);
      });
      if (Math.hypot(...features) > 1) fail("a row that is longer than 1", one.map);
    });
  });
  own.records.forEach((one, place) => {
    const reader = parts.readRecords(typed.get("records")[place].get("words"), { features: one.rows[0].length });
    one.people.forEach((person, number) => {
      const { x, y } = reader.row(person);
      same("targets of a map", y, one.targets[number]);
      x.forEach((entry, at) => {
        if (!(Math.abs(entry - one.rows[number][at]) <= one.tolerance)) fail("a row of a map", place, number, at, entry, one.rows[number][at]);
      });
    });
    for (const wrong of ["a text", [1, 2, 3], new Array(64).fill(NaN)]) {
      if (!("image" in one.people[0])) continue;
      let answer = "taken";
      try {
        reader.row({ ...one.people[0], image: wrong });
      } catch (problem) {
        answer = problem.name;
      }
      same("a picture that is none", answer, "RecordError");
    }
  });
  return own.weights.length + own.maps.length + own.records.length;
}

/** How many vectors there were. `load(name)` gives the text of a file under tests. */
export async function checkVectors({ parts, fromHex, toHex, ...client }, load) {
  const shared = async (name) => JSON.parse(await load(name));
  let checked = 0;

  const own = await shared("service/vectors/client.json");
  for (const { given, canonical, digest } of own.texts) {
    same("canonical text", parts.canonical(parts.parseJson(given)), canonical);
    same("its digest", toHex(parts.sha256(new TextEncoder().encode(canonical))), digest);
    checked += 1;
  }
  for (const one of own.samplers) {
    const source = new parts.KeyedRandom(fromHex(one.seed));
    const draws = parts.binomial(source, one.trials, one.probability, one.size);
    same(`draws of Bin(${one.trials}, ${one.probability})`, toHex(parts.sha256(new TextEncoder().encode(draws.join(",")))), one.digest);
    if (one.draws.length) same("draws", draws, one.draws);
    same("bytes used", toHex(source.draw(8)), one.next);
    checked += 1;
  }
  for (const one of own.roundings) {
    const source = new parts.KeyedRandom(fromHex(one.seed));
    same("rounding", parts.roundAtRandom(source, Float64Array.from(one.numbers)), one.rounded);
    same("bytes used by rounding", toHex(source.draw(8)), one.next);
    checked += 1;
  }
  // numbers such as 1.0 must stay floats on their way through JSON
  const text = await load("service/vectors/client.json");
  const typed = parts.parseJson(text);
  const typedList = (name) => typed.get(name);
  own.encodings.forEach((one, place) => {
    const plan = parts.readPlan(typedList("encodings")[place].get("plan"));
    const made = parts.randomized(Float64Array.from(one.vector), plan, new parts.KeyedRandom(fromHex(one.seed)), new Uint8Array(32));
    same("real encodings", [...made.exact], one.exact);
    same("counts", made.counts, one.counts);
    checked += 1;
  });
  own.rotations.forEach((one, place) => {
    const plan = parts.readPlan(typedList("rotations")[place].get("plan"));
    const vector = Float64Array.from(one.vector);
    const made = parts.randomized(vector, plan, new parts.KeyedRandom(fromHex(one.seed)), fromHex(one.round));
    same("real encodings of a rotated vector", [...made.exact], one.exact);
    same("counts of a rotated vector", made.counts, one.counts);
    same("bits of a masked count", parts.countWidth(plan), one["bits a masked count"]);
    const another = parts.randomized(vector, plan, new parts.KeyedRandom(fromHex(one.seed)), new Uint8Array(32));
    const axes = vector.filter((entry) => entry !== 0).length; // of one axis, a sign alone is drawn
    if (axes !== 1) same("a rotation follows from the round", (axes === 0) === ([...another.exact].join() === one.exact.join()), true);
    // turned back, a short vector is itself, in levels
    const levels = vector.map((entry) => (entry * plan.levels) / (2 * plan.norm * plan.range));
    if (made.exact.every((entry) => entry > 0 && entry < plan.levels) && Math.hypot(...vector) < plan.norm) {
      same("what a record says", made.said.every((entry, index) => Math.abs(entry - levels[index]) < 1e-9), true);
    }
    checked += 1;
  });
  own.blocks.forEach((one, place) => {
    const plan = parts.readPlan(typedList("blocks")[place].get("plan"));
    const digest = fromHex(one.round);
    const made = parts.randomized(Float64Array.from(one.vector), plan, new parts.KeyedRandom(fromHex(one.seed)), digest, one.block);
    same("real encodings of a block", [...made.exact], one.exact);
    same("counts of a block", made.counts, one.counts);
    same("what a block's report is bound to", toHex(parts.boundTo({ digest }, one.block)), one["bound to"]);
    checked += 1;
  });
  own.gradients.forEach((one, place) => {
    const problem = parts.readProblem(typedList("gradients")[place].get("problem"));
    const rows = one.rows.map((x, index) => ({ x: Float64Array.from(x), y: one.targets[index] }));
    const made = parts.allAtOnce(parts.meanGradient(problem, Float64Array.from(one.theta), rows, one.smoothing, false));
    near(`gradient of ${one.problem.loss.kind}`, [...made], one.gradient, one.tolerance);
    checked += 1;
  });
  own.stages.forEach((one, place) => {
    const problem = parts.readProblem(typedList("stages")[place].get("problem"));
    const rows = one.rows.map((x, index) => ({ x: Float64Array.from(x), y: one.targets[index] }));
    const coordinates = one.coordinates === null ? null : parts.readCoordinates(typedList("stages")[place].get("coordinates"), problem);
    const stage = { algorithm: one.algorithm, share: one.share, norm: one.norm };
    same("coordinates of a stage", parts.stageDim(problem, stage), one.vector.length);
    near(`${one.algorithm} of ${one.problem.loss.kind}`, [...parts.allAtOnce(parts.meanStage(problem, stage, Float64Array.from(one.theta), coordinates, rows, false))], one.vector, one.tolerance);
    checked += 1;
  });
  own.rows.forEach((one, place) => {
    const reader = parts.readRecords(typedList("rows")[place].get("records"), { features: one.rows[0].length });
    const made = client.recordsOfCsv(one.file).map(reader.row);
    near("rows", made.flatMap(({ x }) => [...x]), one.rows.flat(), one.tolerance);
    same("targets", made.map(({ y }) => y), one.targets);
    checked += 1;
  });

  const { accounting } = own;
  const { tolerance } = accounting;
  for (const one of accounting.gaussian) {
    safely("deltaG", parts.gaussianDelta(one.epsilon, one.mu), one.delta, 1e-9);
    checked += 1;
  }
  for (const one of accounting.gaussian_mu) near("mu of a limit", [parts.gaussianMu(one.epsilon, one.delta)], [one.mu], 1e-9);
  accounting.plans.forEach((one, place) => {
    const { guarantee } = parts.readPlan(typedList("accounting").get("plans")[place].get("plan"));
    safely("mu of a plan", guarantee.mu, one.mu * (1 - 3e-3), 4e-3); // wide windows: scanned here, bounded in blocks there
    near("slack of a plan", [guarantee.slack], [one.slack], tolerance);
    near("epsilon of a plan", [client.epsilonOf(guarantee, one.plan.delta)], [one.epsilon], 3e-3);
    checked += 1;
  });
  accounting.lots_plans.forEach((one, place) => {
    const words = typedList("accounting").get("lots_plans")[place].get("plan");
    const plans = [...(words.get("opening") ?? []).map((stage) => stage.get("plan")), words.get("one_round")];
    const { guarantee, delta } = parts.readLots(words, plans);
    near("slack of secret lots", [guarantee.slack], [one.slack], 1e-6);
    near("epsilon of secret lots", [client.epsilonOf(guarantee, delta)], [one.epsilon], 1e-4);
    near("epsilon of lots that are known", [client.epsilonOf(guarantee.watched, delta)], [one.if_watched], 1e-6);
    checked += 1;
  });
  for (const one of accounting.lots) {
    const delta = parts.allocationDelta({ mu: one.mu, rounds: one.rounds }, one.epsilon, one.neighbours);
    // the same bound by another transform: equal but for rounding
    if (!(Math.abs(delta - one.delta) <= 1e-5 * one.delta + 1e-14)) fail("delta of secret lots", one, delta);
    checked += 1;
  }
  for (const one of accounting.lots_gaussian) {
    near("secret lots as a Gaussian", [parts.allocationGaussian({ mu: one.mu, rounds: one.rounds }, "replace-one", one.slack)], [one.gaussian], 1e-5);
  }
  for (const one of accounting.bends) {
    const bend = parts.bendOf(one.least, one.dim);
    same("bend of Theorem E", bend && [bend.k, bend.nu], one.bend);
    checked += 1;
  }
  for (const one of accounting.overflow) {
    safely("overflow", Math.min(1, one.rounds * parts.atLeast(one.size, one.users - 1, one.rounds)), one.chance, 1e-6);
  }
  for (const one of accounting.honest) {
    same("honest in a batch", parts.honestInBatch(one.users, one.honest, one.batch, one.chance), one.held);
    same("surely honest", parts.surelyHonest(one.users, one.honest, one.batch), one.surely);
  }
  const budget = new client.Budget(accounting.budget.epsilon, accounting.budget.delta);
  near("use of a budget", [budget.use(accounting.budget.bounds)], [accounting.budget.use], 1e-9);

  checked += await checkFeatures(parts, load);
  checked += await checkPromises({ parts, fromHex, toHex, ...client }, load);

  const certificates = await shared("privacy/vectors/certificates.json");
  let refused = 0;
  for (const one of certificates.constants) {
    const noise = { trials: one.trials, probability: fraction(one.probability), shift: fraction(one.shift) / (1 + 1e-9), reach: one.reach, dim: one.dim };
    try {
      const { mu, tau } = parts.certifyWindow(noise, one.low, one.high);
      const [lower, upper] = one.brackets.mu.map(Number);
      if (!(mu >= lower && mu <= upper * (1 + 1e-6) && tau >= Number(one.brackets.tau[1]))) fail(`certificate: ${one.case}`, mu, tau, one.brackets);
      if (one.brackets.step && mu < upper) fail(`certificate: ${one.case}`, mu, upper);
      checked += 1;
    } catch (problem) {
      if (problem.name !== "NoCertificateError" || !/1e-300|widest/.test(one.case)) throw problem;
      refused += 1; // it says so, and releases nothing
    }
  }
  if (refused > 4) fail("certificates refused", refused);
  for (const one of certificates.plans) {
    const noise = { trials: one.trials, probability: fraction(one.probability), shift: fraction(one.shift) / (1 + 1e-9), reach: one.reach, dim: one.dim };
    if (one.high - one.low > 3e6) continue;
    const { mu, tau } = parts.certifyWindow(noise, one.low, one.high);
    const delta = parts.gaussianDelta(fraction(one.epsilon), mu * Math.sqrt(one.rounds) * (1 + 1e-9)) + one.rounds * one.dim * tau;
    if (!(delta >= Number(one.bounds.delta[0]) && delta <= Number(one.bounds.delta[1]) * (1 + 1e-4))) fail("delta of a plan", delta, one.bounds.delta);
    checked += 1;
  }

  const documents = await shared("service/vectors/documents.json");
  const analyzer = fromHex(documents.analyzer.public);
  const task = await client.readTask(fromHex(documents.task.bytes), analyzer);
  same("digest of a task", toHex(parts.readDocument(fromHex(documents.task.bytes)).digest), documents.task.digest);
  same("a task's id", task.id, JSON.parse(documents.task.text).id);
  const round = await client.readRound(fromHex(documents.round.bytes), task, analyzer);
  same("digest of a round", toHex(round.digest), documents.round.digest);
  for (const place of [3, 40, 300]) {
    const broken = fromHex(documents.task.bytes);
    broken[place] ^= 1;
    const answer = await client.readTask(broken, analyzer).then(() => "taken", (problem) => problem.name);
    same("a task with another bit", answer, "WireError");
  }

  const proofs = await shared("service/vectors/verified.json");
  for (const one of proofs.reports) {
    const random = fromHex(one.nonce + one["seeds (helper, helper's blind, leader's blind, prove)"]);
    const shares = parts.verifiedShares(one.counts, one["messages a coordinate"], fromHex(proofs.round), random, one["chunk length"]);
    same("a helper's share", toHex(shares.helper), one["helper share"]);
    const shape = { dim: one.counts.length, range: null, levels: 0, noiseBits: one["messages a coordinate"] };
    if (one["chunk length"] === parts.verifiedSizes(shape.dim, shape.noiseBits).chunk) {
      same("the length of a verified report", parts.reportBytes("verified-sum", shape), one.report.length / 2);
      checked += 1;
    }
    same("what goes to the shuffler", one.report.endsWith(toHex(shares.open)), true);
    checked += 1;
  }

  const rfc = await shared("service/vectors/rfc9474/vectors.json");
  const modulus = BigInt(`0x${rfc.key.n}`);
  for (const one of rfc.vectors) {
    const [message, salt, inverse] = [fromHex(one.msg_prefix + one.msg), fromHex(one.salt), BigInt(`0x${one.inv}`)];
    const hidden = parts.blinded(message, modulus, salt, parts.inverseOf(inverse, modulus));
    same(`${one.name}: a blinded message`, toHex(hidden.request), one.blinded_msg);
    same(`${one.name}: what takes the blinding off`, hidden.inverse === inverse, true);
    const signature = parts.unblinded(message, fromHex(one.blind_sig), inverse, modulus, salt.length);
    same(`${one.name}: a signature`, toHex(signature), one.sig);
    // by somebody else's code, where the platform has it
    if (globalThis.crypto?.subtle !== undefined) {
      const base64 = btoa(String.fromCharCode(...fromHex(rfc.key.n))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
      const imported = await crypto.subtle.importKey("jwk", { kty: "RSA", n: base64, e: "AQAB" }, { name: "RSA-PSS", hash: "SHA-384" }, false, ["verify"]);
      same(`${one.name}: by the platform`, await crypto.subtle.verify({ name: "RSA-PSS", saltLength: salt.length }, imported, signature, message), true);
    }
    for (const place of [0, 100, signature.length - 1]) {
      const broken = Uint8Array.from(signature);
      broken[place] ^= 1;
      same("a signature with another bit", parts.isSigned(message, broken, modulus, salt.length), false);
    }
    same("a signature of something else", parts.isSigned(message.slice(1), signature, modulus, salt.length), false);
    same("a signature with another salt's length", parts.isSigned(message, signature, modulus, salt.length === 0 ? 48 : 0), false);
    checked += 1;
  }
  same("vectors of RFC 9474", rfc.vectors.length, 4);

  const reports = await shared("service/vectors/reports.json");
  for (const one of await shared("service/vectors/masks.json")) {
    same("a mask", parts.mask(fromHex(one.seed), one.mask.length, one["bits a count"]).map(String), one.mask);
    checked += 1;
  }
  const { plan } = task.phases[0];
  const ephemeral = (...purpose) => parts.sha256(new TextEncoder().encode(`croupier vector ephemeral ${purpose.join(" ")}`));
  const masked = reports["masked-sum"];
  const fixed = parts.nobleEngine(() => ephemeral(0, "seed"));
  const sealed = await parts.sealedReport("masked-sum", fromHex(reports.round), masked.counts, plan, fromHex(reports.recipient.public), undefined, fromHex(masked.seed), fixed);
  same("a masked report", toHex(sealed), masked.bytes);
  same("its length", parts.reportBytes("masked-sum", plan), sealed.length);
  // A vector's bits stand in their own order; a client's ones come first. So envelopes are compared one by one.
  const bits = reports.messages.bits;
  const expected = reports.messages.bytes;
  for (const [label, row] of bits.entries()) {
    for (const [place, bit] of [...row].entries()) {
      const by = parts.nobleEngine(() => ephemeral(0, label, place));
      const envelope = await parts.seal(new Uint8Array([Number(bit)]), fromHex(reports.recipient.public), fromHex(reports.messages.info[label]), by);
      const start = 2 * (48 + 49 * (label * row.length + place));
      same("an envelope", toHex(envelope), expected.slice(start, start + 98));
      checked += 1;
    }
  }
  const length = (await parts.sealedReport("messages", fromHex(reports.round), bits.map((row) => [...row].filter((bit) => bit === "1").length), plan, round.key)).length;
  same("the length of a report by messages", [length, parts.reportBytes("messages", plan)], [expected.length / 2, length]);
  return checked;
}
