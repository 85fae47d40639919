/** A report: a user's noisy counts, sealed so that the shuffler sees nothing of them and the analyzer their sum alone. */
import { ascii, type Bytes, joined, littleEndian } from "./bytes.ts";
import { type Engine, engine, keystream, label, randomBytes, seal } from "./crypto.ts";
import { countWidth, packed, packedBytes, unpacked } from "./packing.ts";
import { messagesOf, type SumPlan } from "./plan.ts";
import { coordinatesOf } from "./rotation.ts";
import { SEALED_BIT, SEALED_SEED, TRANSPORTS, type Transport } from "./task.ts";
import { verifiedReport, verifiedShares } from "./verified.ts";

const HEADER_BYTES = 48;
const SEED_LABEL = 0xffffffff;

const info = (transport: Transport, digest: Bytes, place: number): Bytes =>
  joined(ascii(`croupier report v1 ${transport} `), digest, label(place));

/** Numbers modulo 2^width that look random to whoever has not got the seed. */
export const mask = (seed: Bytes, dim: number, width: number): bigint[] => unpacked(keystream(seed, packedBytes(dim, width)), dim, width);

/** The length of a report without its token. */
export function reportBytes(transport: Transport, plan: SumPlan): number {
  const messages = messagesOf(plan);
  const dim = coordinatesOf(plan);
  if (transport === "messages") return HEADER_BYTES + dim * messages * SEALED_BIT;
  if (transport === "verified-sum") return HEADER_BYTES + verifiedReport(dim, messages);
  return HEADER_BYTES + SEALED_SEED + packedBytes(dim, countWidth(plan));
}

/** Seal counts for the round's key. Seals are random: keep the bytes for a retry. A token goes into the envelope of the seed. `seed` and `by` are for vectors alone. */
export async function sealedReport(
  transport: Transport,
  digest: Bytes,
  counts: readonly number[],
  plan: SumPlan,
  key: Bytes,
  token: Bytes = new Uint8Array(0),
  seed: Bytes = randomBytes(32),
  by?: Engine,
): Promise<Bytes> {
  const messages = messagesOf(plan);
  const width = transport === "masked-sum" ? countWidth(plan) : 0;
  const header = joined(
    ascii("CRPR"),
    new Uint8Array([1, TRANSPORTS[transport]]),
    littleEndian(width, 2),
    littleEndian(counts.length, 4),
    littleEndian(messages, 4),
    digest,
  );
  const used = by ?? (await engine());
  if (transport === "masked-sum") {
    const hidden = mask(seed, counts.length, width);
    const masked = counts.map((count, place) => BigInt(count) + hidden[place]);
    return joined(header, await seal(joined(seed, token), key, info(transport, digest, SEED_LABEL), used), packed(masked, width));
  }
  if (transport === "verified-sum") {
    const shares = verifiedShares(counts, messages, digest);
    return joined(header, await seal(joined(shares.helper, token), key, info(transport, digest, SEED_LABEL), used), shares.open);
  }
  const envelopes: Bytes[] = [];
  for (const [place, count] of counts.entries()) {
    const about = info(transport, digest, place);
    // each bit in an envelope with a key of its own: a shared one would link them
    const row = Array.from({ length: messages }, (_, bit) => seal(new Uint8Array([Number(bit < count)]), key, about, used));
    envelopes.push(...(await Promise.all(row)));
  }
  return joined(header, ...envelopes);
}
