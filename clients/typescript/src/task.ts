/** Tasks and rounds, read and checked: every plan is proved again here. */
import { ascii, type Bytes, fromHex, joined, littleEndian } from "./bytes.ts";
import { flag, list, names, object, oneOf, real, text, whole } from "./checks.ts";
import { sha256 } from "./crypto.ts";
import { honestInBatch, surelyHonest } from "./crowd.ts";
import { cleaned } from "./described.ts";
import { END, ROUND, readDocument, TASK, taskId, verified } from "./documents.ts";
import { WireError } from "./errors.ts";
import { type Guarantee, worstOf } from "./guarantee.ts";
import { canonical, type Json, type JsonObject } from "./json.ts";
import { type LotsPlan, lotsOf, readLots } from "./lots.ts";
import { countWidth, packedBytes } from "./packing.ts";
import { honestUsers, messagesOf, readPlan, type SumPlan } from "./plan.ts";
import { type Coordinates, type Problem, readCoordinates, readProblem, stageDim } from "./problem.ts";
import type { Question } from "./question.ts";
import { readQuestion } from "./questions.ts";
import { coordinatesOf } from "./rotation.ts";
import { type RecordsReader, readRecords } from "./records.ts";
import { type Enroller, readEnroller, TOKEN_BYTES } from "./tokens.ts";
import { verifiedPart } from "./verified.ts";

export const TRANSPORTS = { messages: 1, "masked-sum": 2, "verified-sum": 3 } as const;
export type Transport = keyof typeof TRANSPORTS;
const LONGEST_PACE = 30;
const FEWEST_PACES = 4;
const MOST_ROUND_SECONDS = 1e7;
const MOST_BATCH_BYTES = 500_000_000;
/** Of a round's coordinates, eight a number. */
const MOST_CHARACTERS = 1_000_000;
export const SEALED_BIT = 49;
export const SEALED_SEED = 80;

const TASK_WORDS = ["id", "name", "transport", "users", "problem", "schedule", "shuffler", "records", "patience", "pace"];
const PHASE_WORDS = ["algorithm", "rounds", "batch", "users", "step", "damping", "smoothing", "distance", "gradient_std", "bound", "plan"];
const SCHEDULE_WORDS = ["method", "interactivity", "phases", "bound", "bound_on", "why"];

const STEPS: Record<string, [step: boolean, damping: boolean]> = { acsa: [false, true], descent: [true, false], line: [false, false], mean: [false, false], spread: [false, false], moments: [false, false] };

export interface Phase {
  /** "acsa", "descent" and "line" ask for gradients, "mean", "spread" and "moments" about rows. */
  algorithm: string;
  /** The part of a row's squared length that the constant has, where rounds ask about rows or in other coordinates; null elsewhere. */
  share: number | null;
  /** How much less people may count whose odds are far from even. */
  focus: number;
  rounds: number;
  batch: number;
  users: number;
  smoothing: number | null;
  plan: SumPlan;
  lots: LotsPlan | null;
}

/** How rounds run whose users are drawn by secret lots. */
export interface SecretRounds {
  /** For how long a round takes reports, whoever comes. */
  seconds: number;
  /** Whether every client sends a report in every round, of which those of the round's lot count. */
  cover: boolean;
}

export interface Task {
  id: string;
  /** What the analyzer calls it, fit to be shown. */
  name: string;
  transport: Transport;
  users: number;
  /** What is minimised; null where a question is asked. */
  problem: Problem | null;
  /** What is asked in one round; null where a model is trained. */
  question: Question | null;
  /** Coordinates of a gradient, or of the question's vector as it is sent in one round; other phases have others (`phases`). */
  dim: number;
  interactivity: "sequential" | "full";
  phases: Phase[];
  honest: number;
  /** What the whole task reveals about one user, proved here. */
  guarantee: Guarantee;
  shuffler: Bytes;
  /** How a record becomes a row; null where devices bring their own rows. */
  records: RecordsReader | null;
  /** Whether a record that is not valid has gradient 0 instead of being refused. */
  blanks: boolean;
  pace: number;
  secret: SecretRounds | null;
  /** Whoever signs tokens for enrolled people, one of which is in every report; null where reports carry none. */
  enroller: Enroller | null;
}

export interface TaskRound {
  task: string;
  id: string;
  number: number;
  phase: number;
  theta: Float64Array;
  /** In which gradients are asked for, where earlier rounds have found others than rows come in; else null. */
  coordinates: Coordinates | null;
  key: Bytes;
  /** Of the document; a rotation follows from it. */
  digest: Bytes;
}

/** Read the task in a document of this analyzer; what cannot be proved is refused. */
export async function readTask(data: Bytes, analyzer: Bytes): Promise<Task> {
  const values = await verified(readDocument(data), TASK, analyzer);
  names("task", values, TASK_WORDS, ["secret", "enroller"]);
  if (values.get("id") !== taskId(values)) throw new WireError("a task whose id is not the digest of what it says");
  const users = whole("users", values.get("users"), { atLeast: 1 });
  const asked = values.get("problem");
  const question = asked instanceof Map && asked.has("query") ? readQuestionOf(asked) : null;
  const problem = question === null ? readProblem(asked) : null;
  const dim = (question ?? problem)?.dim ?? 0;
  const schedule = readSchedule(values.get("schedule"), users, question);
  for (const phase of schedule.phases) {
    if (isStage(phase)) requireStage(phase, problem);
    if (phase.plan.dim !== (problem !== null && isStage(phase) ? stageDim(problem, phase) : dim)) throw new WireError("a task whose plans do not fit it");
  }
  if (question?.stream && schedule.phases.some(({ plan }) => plan.range !== null)) throw new WireError("a plan with a rotation, which mixes the days of a stream");
  // each round of a stream sends one coordinate of the vector that the plan is for, with the same levels and noise
  if (question?.stream) schedule.phases = schedule.phases.map((phase) => ({ ...phase, plan: { ...phase.plan, dim: 1 } }));
  const transport = oneOf("transport", values.get("transport"), ["messages", "masked-sum", "verified-sum"] as const);
  if ((values.get("patience") ?? null) !== null) real("patience", values.get("patience"), { atLeast: 0 });
  for (const phase of schedule.phases) {
    const tokens = values.has("enroller") ? phase.plan.users * TOKEN_BYTES : 0;
    if (batchBytes(transport, phase.plan) + tokens > MOST_BATCH_BYTES) throw new WireError("a task with batches that are too long");
  }
  const pace = real("pace", values.get("pace"), { above: 0, atMost: LONGEST_PACE });
  const secret = values.has("secret") ? readSecret(values.get("secret"), values.get("patience") ?? null, pace) : null;
  if ((secret !== null) !== schedule.phases.some((phase) => phase.lots !== null)) {
    throw new WireError("a task whose rounds are secret where its lots are not, or the other way round");
  }
  const told = values.get("records") ?? null;
  if (told !== null && problem === null) throw new WireError("a question that says besides how records become rows");
  const records = told === null || problem === null ? null : readRecords(told, problem);
  return {
    id: values.get("id") as string,
    name: cleaned(text("name", values.get("name"))),
    transport,
    users,
    problem,
    question,
    dim: question?.stream ? 1 : dim,
    ...schedule,
    shuffler: fromHex(text("shuffler", values.get("shuffler")), 32),
    records,
    blanks: records?.blanks ?? false,
    pace,
    secret,
    enroller: values.has("enroller") || schedule.phases.some((phase) => phase.lots?.blanks) ? readEnroller(values.get("enroller"), schedule, transport) : null,
  };
}

function readSecret(value: Json | undefined, patience: Json, pace: number): SecretRounds {
  const words = object("secret", value);
  names("secret", words, ["seconds", "cover"]);
  if (patience !== null) throw new WireError("a task with secret lots whose rounds end when enough have come");
  return {
    seconds: real("secret.seconds", words.get("seconds"), { atLeast: FEWEST_PACES * pace, atMost: MOST_ROUND_SECONDS }),
    cover: flag("secret.cover", words.get("cover")),
  };
}

function batchBytes(transport: Transport, plan: SumPlan): number {
  const messages = messagesOf(plan);
  const dim = coordinatesOf(plan);
  if (transport === "messages") return 112 + dim * plan.users * messages * SEALED_BIT;
  if (transport === "verified-sum") return 112 + plan.users * verifiedPart(dim, messages);
  return 112 + packedBytes(dim, countWidth(plan)) + plan.users * SEALED_SEED;
}

function readQuestionOf(words: JsonObject): Question {
  names("problem", words, ["query"]);
  return readQuestion(words.get("query"));
}

function readSchedule(value: Json | undefined, users: number, question: Question | null): Pick<Task, "interactivity" | "phases" | "honest" | "guarantee"> {
  const words = object("schedule", value);
  names("schedule", words, SCHEDULE_WORDS, ["honest", "shortfall"]);
  const interactivity = oneOf("interactivity", words.get("interactivity"), ["sequential", "full"] as const);
  const honest = words.has("honest") ? real("honest", words.get("honest"), { above: 0, atMost: 1 }) : 1;
  const shortfall = words.has("shortfall") ? real("shortfall", words.get("shortfall"), { atLeast: 0, below: 1 }) : 0;
  const phaseWords = list("phases", words.get("phases")).map((value) => object("phase", value));
  const lots = sharedLots(phaseWords);
  const phases = phaseWords.map((one) => readPhase(one, lots));
  const needed = lots !== null ? Math.max(...phases.map((phase) => phase.users)) : phases.reduce((sum, phase) => sum + phase.users, 0);
  if (phases.length === 0 || needed > users) throw new WireError("a schedule for more users than the task has");
  const full = interactivity === "full";
  if (question !== null) {
    checkAsked(question, phases, users);
    if (full !== (question.stream !== undefined) || shortfall !== 0) throw new WireError("a question that is not asked in open rounds of its own");
  } else if (phases.some((phase) => phase.plan.diameter !== null)) {
    throw new WireError("a plan with a diameter, which no plan of gradients has");
  }
  if (phases.some((phase) => phase.lots !== null)) {
    checkLots(phases, full, users, honest, shortfall);
  } else {
    if (phases.some(({ plan }) => plan.blocks > 1)) throw new WireError("a plan with blocks, which are drawn by secret lots alone, in open rounds");
    for (const phase of phases) checkPhase(phase, full, question?.stream?.rounds ?? phase.plan.rounds, users, honest, shortfall);
  }
  const worst = lots?.guarantee ?? worstOf(phases.map((phase) => phase.plan.guarantee));
  return { interactivity, phases, honest, guarantee: { ...worst, slack: Math.min(1, worst.slack + shortfall) } };
}

/** The secret lots of a schedule, which all of its phases share; null where there are none. */
function sharedLots(phases: readonly JsonObject[]): LotsPlan | null {
  const told = phases.map((words) => words.get("lots") ?? null);
  if (told.every((lots) => lots === null)) return null;
  if (told.some((lots) => lots === null || canonical(lots) !== canonical(told[0] as Json))) throw new WireError("secret lots that phases do not share");
  return readLots(told[0] as Json, phases.map((words) => words.get("plan")));
}

function readPhase(words: JsonObject, lots: LotsPlan | null): Phase {
  names("phase", words, PHASE_WORDS, ["paper_steps", "lots", "share", "momentum", "focus"]);
  const algorithm = text("algorithm", words.get("algorithm"));
  const given = ["step", "damping"].map((name) => (words.get(name) ?? null) !== null);
  if (!Object.hasOwn(STEPS, algorithm) || STEPS[algorithm].some((wanted, place) => wanted !== given[place])) {
    throw new WireError("a phase without a step for descent or a damping for acsa, or with one where it asks about rows");
  }
  const smoothing = words.get("smoothing") ?? null;
  const share = words.has("share") ? real("share", words.get("share"), { atLeast: 0, below: 1 }) : null;
  const momentum = words.has("momentum") ? real("momentum", words.get("momentum"), { atLeast: 0, below: 1 }) : 0;
  const focus = words.has("focus") ? real("focus", words.get("focus"), { atLeast: 0, atMost: 1 }) : 0;
  if ((momentum > 0 || focus > 0) && (!given[0] || share === null)) throw new WireError("a phase with momentum or focus that is not descent in other coordinates");
  const plan = readPlan(words.get("plan"));
  return {
    algorithm,
    share,
    focus,
    rounds: whole("phase.rounds", words.get("rounds"), { atLeast: 1 }),
    batch: whole("phase.batch", words.get("batch"), { atLeast: 1 }),
    users: whole("phase.users", words.get("users"), { atLeast: 1 }),
    smoothing: smoothing === null ? null : real("smoothing", smoothing, { above: 0 }),
    plan,
    lots,
  };
}

/** Whether its rounds ask about rows: later ones descend in the coordinates that are found from the answers. */
export const opens = ({ algorithm }: Pick<Phase, "algorithm">): boolean => ["mean", "spread", "moments"].includes(algorithm);

/** Whether its rounds ask about rows, or for gradients in other coordinates than rows come in. */
export const isStage = (phase: Pick<Phase, "algorithm" | "share">): boolean => opens(phase) || phase.share !== null;

/** Refuse a stage that asks something else than rows and gradients of a linear model, in secret rounds; whatever it asks is clipped. */
function requireStage({ algorithm, share, focus, lots, smoothing }: Phase, problem: Problem | null): void {
  if (problem === null || problem.l2 > 0 || share === null) throw new WireError("a task with stages that is not about a linear model without l2");
  if (lots === null || smoothing !== null) throw new WireError("a task with stages in open rounds, or of a smoothed loss");
  if (focus > 0 && problem.loss.logOdds !== true) throw new WireError("a phase with focus whose scores are not log-odds of two classes");
  const directions = algorithm === "moments" ? problem.features : algorithm === "line" ? Math.min(problem.loss.outputs + 1, problem.features) : 1;
  if (8 * problem.features * directions > MOST_CHARACTERS) throw new WireError("a task whose rounds cannot state their coordinates");
}

/** Refuse a plan that counts on a smaller range than the question's own code keeps, or asks anybody twice. */
function checkAsked({ dim, norm, diameter, stream }: Question, phases: Phase[], users: number): void {
  const [{ plan, rounds, batch, lots, ...phase }] = phases;
  const once = phases.length === 1 && lots === null && rounds === (stream?.rounds ?? 1) && plan.rounds === 1;
  if (!once || batch !== users || phase.users !== users || plan.users !== users) throw new WireError("a question that is not one round of all users, or one a day");
  if (plan.dim !== dim || plan.norm < norm) throw new WireError("a plan for shorter vectors than the question has");
  if (plan.diameter !== null && plan.diameter < Math.min(diameter, 2 * norm)) {
    throw new WireError("a plan for vectors that are nearer to each other than the question's");
  }
}

function checkPhase(phase: Phase, full: boolean, covered: number, users: number, honest: number, shortfall: number): void {
  const { plan } = phase;
  if (full && phase.rounds > covered) throw new WireError("a phase with more rounds than its plan covers");
  const needed = full ? phase.batch : phase.batch * phase.rounds;
  if (phase.batch > phase.users || needed > phase.users || plan.users !== phase.batch) {
    throw new WireError("a phase that does not fit its users and its plan");
  }
  if (plan.neighbours !== "replace-one") throw new WireError("a plan for other neighbours than replace-one");
  const held = shortfall > 0 ? honestInBatch(users, honest, phase.batch, shortfall) : surelyHonest(users, honest, phase.batch);
  if (honestUsers(plan) > held) throw new WireError("a plan that counts on more honest users than a batch holds");
}

function checkLots(phases: Phase[], full: boolean, users: number, honest: number, shortfall: number): void {
  const [{ lots }] = phases;
  if (lots === null || full) throw new WireError("secret lots that are not of sequential phases");
  const fits = phases.every((phase, place) => lots.stages[place].rounds === phase.rounds && lots.users === phase.users && lots.stages[place].plan.users === phase.batch);
  if (!fits || lots.users !== users || lots.honest !== honest || shortfall !== 0) throw new WireError("secret lots that do not fit their phases");
  if (lots.neighbours !== "replace-one") throw new WireError("secret lots for other neighbours than replace-one");
}

/** The numbers of a phase's rounds, from and to, counted from 1 over all phases. */
export function roundsOf(task: Task, phase: number): [number, number] {
  const before = task.phases.slice(0, phase - 1).reduce((sum, earlier) => sum + earlier.rounds, 0);
  return [before + 1, before + task.phases[phase - 1].rounds];
}

/** The lots of a round, counted from 1 over all rounds: one, or one a block. */
export function lotsIn(task: Task, round: number): [first: number, blocks: number] {
  let before = 0;
  const place = task.phases.findIndex((phase) => round <= before + phase.rounds || ((before += phase.rounds), false));
  const { blocks } = task.phases[place].plan;
  return [lotsOf(task.phases.slice(0, place)) + (round - before - 1) * blocks + 1, blocks];
}

/** Whether a user sends a part of its vector in some round, so that its lot says which. */
export const hasBlocks = (task: Task): boolean => task.phases.some(({ plan }) => plan.blocks > 1);

/** What reports of a round are bound to: the digest of its document, or that of the block. */
export const boundTo = ({ digest }: TaskRound, block: number | null): Bytes =>
  block === null ? digest : sha256(joined(ascii("croupier block v1 "), digest, littleEndian(block, 4)));

export const phaseOf = (task: Task, round: TaskRound): Phase => task.phases[round.phase - 1];

/** What a user has once: the task where each user is asked once, otherwise each round. */
export const slotOf = (task: Task, round: TaskRound): string =>
  // rounds of a stream by their numbers: whoever publishes one twice has no second answer
  `${task.id}-${task.question?.stream ? `round-${round.number}` : task.interactivity === "full" ? round.id : "task"}`;

/** How many rounds of a phase one user may answer under its plan. */
export const mostAnswers = (task: Task, { rounds, plan }: Phase): number => (task.question?.stream ? rounds : plan.rounds);

/** That a task has ended, by the analyzer's signed word. */
export interface End {
  /** How many rounds were answered. */
  rounds: number;
  /** Why it has ended before its time; null where all rounds are done. */
  reason: string | null;
}

export async function readEnd(data: Bytes, task: Task, analyzer: Bytes): Promise<End> {
  const values = await verified(readDocument(data), END, analyzer);
  names("end", values, ["task", "rounds", "reason"]);
  if (values.get("task") !== task.id) throw new WireError("the end of another task");
  const reason = values.get("reason") ?? null;
  return {
    rounds: whole("end.rounds", values.get("rounds"), { atLeast: 0 }),
    reason: reason === null ? null : text("end.reason", reason),
  };
}

/** Read a round in a document of this analyzer and this task. */
export async function readRound(data: Bytes, task: Task, analyzer: Bytes): Promise<TaskRound> {
  const document = readDocument(data);
  const values = await verified(document, ROUND, analyzer);
  names("round", values, ["task", "id", "number", "phase", "theta", "key"], ["coordinates"]);
  const id = text("round.id", values.get("id"));
  if (!/^[0-9A-Za-z_-]{1,64}$/.test(id)) throw new WireError("a round whose id is not 1 to 64 letters and digits");
  const number = whole("round.number", values.get("number"), { atLeast: 1 });
  const phase = whole("round.phase", values.get("phase"), { atLeast: 1, atMost: task.phases.length });
  const theta = Float64Array.from(list("theta", values.get("theta")), (entry) => real("theta", entry));
  const asked = task.phases[phase - 1];
  // an opening depends on nothing that was released
  if (values.get("task") !== task.id || theta.length !== (opens(asked) ? 1 : (task.question?.parameters ?? task.dim))) throw new WireError("a round that is not of this task");
  const [first, last] = roundsOf(task, phase);
  if (number < first || number > last) throw new WireError("a round whose number is none of its phase's");
  const key = fromHex(text("round.key", values.get("key")), 32);
  if (values.has("coordinates") !== (asked.share !== null && !opens(asked))) {
    throw new WireError("a round with coordinates where rows are taken as they come, or without where they are not");
  }
  const coordinates = values.has("coordinates") ? readCoordinates(values.get("coordinates"), task.problem as Problem) : null;
  if (coordinates !== null && coordinates.focus !== 0 && coordinates.focus !== asked.focus) throw new WireError("a round that weighs people by their odds otherwise than its task does");
  return { task: task.id, id, number, phase, theta, coordinates, key, digest: document.digest };
}
