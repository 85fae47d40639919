/** The parts of the client, for vectors and tests: nothing here is needed to take part. */
export { allocationDelta, allocationGaussian } from "./allocation.ts";
export { certify, certifyWindow } from "./certificate.ts";
export { engine, keystream, nobleEngine, seal, sha256 } from "./crypto.ts";
export { honestInBatch, surelyHonest, atLeast, atMost } from "./crowd.ts";
export { readDocument, taskId, verified } from "./documents.ts";
export { clipped, dot, encoded, randomized } from "./encoding.ts";
export { canonical, floatText, parseJson } from "./json.ts";
export { readLots } from "./lots.ts";
export { gaussianDelta, gaussianMu, mills, quantile } from "./normal.ts";
export { countWidth, packed, unpacked } from "./packing.ts";
export { readPlan } from "./plan.ts";
export { gradient, meanGradient, readProblem } from "./problem.ts";
export { meanVector, readQuestion } from "./questions.ts";
export { KeyedRandom } from "./random.ts";
export { readRecords } from "./records.ts";
export { mask, sealedReport } from "./report.ts";
export { binomial, roundAtRandom } from "./sampling.ts";
export { verifiedShares, verifiedSizes } from "./verified.ts";
