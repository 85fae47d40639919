/** Vectors of questions, checked in Node and in browsers alike: `checkQuestions(client, load)` throws at the first difference. */

const dense = (entries, dim) => {
  const vector = new Float64Array(dim);
  for (const [place, entry] of entries) vector[place] = entry;
  return vector;
};

/** How far two vectors are apart, at most, in parts of the largest entry. */
export const apart = (one, other) => {
  const scale = Math.max(1e-300, ...other.map(Math.abs));
  return one.reduce((most, entry, place) => Math.max(most, Math.abs(entry - other[place]) / scale), one.length === other.length ? 0 : Infinity);
};

/** How many vectors there were. `load(name)` gives the text of a file under tests. */
export async function checkQuestions({ parts, ...client }, load) {
  const text = await load("service/vectors/questions.json");
  const typed = parts.parseJson(text); // floats and whole numbers told apart, as in a task
  let checked = 0;
  JSON.parse(text).forEach((one, index) => {
    const fail = (what, ...more) => {
      throw new Error(`${one.about}: ${what}: ${more.map((value) => JSON.stringify(value)).join(" ")}`);
    };
    const question = parts.readQuestion(typed[index].get("words"));
    for (const fact of ["dim", "norm", "diameter"]) if (question[fact] !== one[fact]) fail(fact, question[fact], one[fact]);
    const records = client.recordsOfCsv(one.file);
    if (records.length !== one.vectors.length) fail("records", records.length, one.vectors.length);
    const made = records.map((record) => question.vector(record));
    made.push(parts.allAtOnce(parts.meanVector(question, records)));
    [...one.vectors, one.mean].forEach((entries, place) => {
      const distance = apart(made[place], dense(entries, one.dim));
      if (!(distance <= one.tolerance)) fail(`vector ${place}`, records[place] ?? "mean", distance);
      checked += 1;
    });
    made.forEach((vector, place) => {
      if (!(Math.hypot(...vector) <= one.norm * (1 + 1e-12))) fail("a norm", place);
      for (const other of made) {
        if (!(Math.hypot(...vector.map((entry, at) => entry - other[at])) <= one.diameter * (1 + 1e-12))) fail("a diameter", place);
      }
    });
    const { guarantee, diameter } = parts.readPlan(typed[index].get("plan"));
    if (diameter !== one.plan.diameter) fail("the plan's diameter", diameter);
    for (const [what, got, wanted] of [["mu", guarantee.mu, one.mu], ["slack", guarantee.slack, one.slack], ["epsilon", client.epsilonOf(guarantee, 1e-6), one.epsilon]]) {
      if (!(Math.abs(got - wanted) <= 1e-6 * wanted)) fail(what, got, wanted);
    }
    for (let place = 0; place < question.dim; place += 1) {
      const { part, counts } = question.coordinate(place);
      if (!part || !counts || /undefined|NaN/.test(part + counts)) fail("words of a coordinate", place, part, counts);
    }
  });
  return checked;
}
