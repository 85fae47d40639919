/** Take part in a task: see docs/browser.md. */
export { type BudgetLimit, type LedgerEntry, Budget, periodOf, periodText } from "./budget.ts";
export { fromHex, toHex } from "./bytes.ts";
export * from "./client.ts";
export { type Demands } from "./demands.ts";
export { cleaned } from "./described.ts";
export type { Randomized } from "./encoding.ts";
export * from "./errors.ts";
export { deltaOf, epsilonOf, gaussianBound, type Guarantee } from "./guarantee.ts";
export { type Field, fieldsOf, type Question } from "./question.ts";
export { type Problem, type Row } from "./problem.ts";
export { type RandomSource, secureRandom } from "./random.ts";
export { type Column, isCategory, recordsOfCsv, type RecordsReader, type RecordValues, type Target } from "./records.ts";
export { BrowserStore, type Entry, MemoryStore, type Store, type TokenRequest, type Wallet } from "./store.ts";
export { exact, roundUp } from "./rounding.ts";
export { type End, type Phase, readRound, readTask, type Task, type TaskRound } from "./task.ts";
export { type Enroller } from "./tokens.ts";
export { honestUsers, messagesOf, type SumPlan } from "./plan.ts";
export * as parts from "./parts.ts";
