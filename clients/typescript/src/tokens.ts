/**
 * Tokens: proof that a report is of an enrolled person, whoever that is. A task's enroller signs them blindly, one a slot. A token
 * is 32 random bytes and the signature of them, the task and the slot; it travels in the envelope of its report's seed.
 */
import { isAddress, requirePrivateWay } from "./addresses.ts";
import { blinded, PREFIX_BYTES, unblinded } from "./blind.ts";
import { ascii, type Bytes, fromHex, joined, littleEndian, toHex } from "./bytes.ts";
import { list, names, object, text, whole } from "./checks.ts";
import { randomBytes } from "./crypto.ts";
import { InvitationError, ServerError, WireError } from "./errors.ts";
import type { Json } from "./json.ts";
import { lotsOf } from "./lots.ts";
import type { Store, TokenRequest } from "./store.ts";

const KEY_BITS = 2048;
const SIGNED_BYTES = KEY_BITS / 8;
export const TOKEN_BYTES = PREFIX_BYTES + SIGNED_BYTES;

/** A task's enroller: where it is, the moduli of its keys, one a slot, and how many tokens a slot it signs for the shuffler's blanks. */
export interface Enroller {
  address: string;
  moduli: bigint[];
  blanks: number;
}

/** Of a task, what says how many tokens a person needs. */
interface Asked {
  interactivity: "sequential" | "full";
  phases: readonly { rounds: number; plan: { blocks: number }; lots: { blanks: number | null } | null }[];
}

/** Read the enroller of a task, and refuse one whose tokens would be worth nothing. */
export function readEnroller(value: Json | undefined, asked: Asked, transport: string): Enroller {
  const words = object("enroller", value);
  names("enroller", words, ["address", "keys"], ["blanks"]);
  const address = text("enroller.address", words.get("address"));
  if (!isAddress(address)) throw new WireError("a task whose enroller has no address like https://host:port");
  const keys = list("enroller.keys", words.get("keys")).map((key) => text("enroller.keys", key));
  // the first of 512 hex digits is at least 8 in a number of 2048 bits, and the last of an odd one is odd
  if (!keys.every((key) => /^[89a-f][0-9a-f]{510}[13579bdf]$/i.test(key))) {
    throw new WireError(`a task whose enroller has keys that are not odd numbers of ${KEY_BITS} bits`);
  }
  if (new Set(keys.map((key) => key.toLowerCase())).size !== keys.length) throw new WireError("a task whose enroller has a key twice");
  const [{ lots }] = asked.phases;
  // with secret lots a token a lot, of which a person uses its own: who signs does not learn which
  const slots = lots !== null ? lotsOf(asked.phases) : asked.interactivity === "full" ? Math.max(...asked.phases.map(({ rounds }) => rounds)) : 1;
  if (keys.length !== slots) throw new WireError(`a task whose enroller has ${keys.length} keys for ${slots} slots`);
  if (transport === "messages") throw new WireError("a task with an enroller whose reports nothing ties a token to");
  const blanks = words.has("blanks") ? whole("enroller.blanks", words.get("blanks"), { atLeast: 1, atMost: 1e6 }) : 0;
  if (lots !== null && lots.blanks === null) throw new WireError("a task with an enroller whose rounds may be all blanks");
  if (blanks !== (lots?.blanks ?? 0)) throw new WireError(`a task whose enroller signs ${blanks} blanks a slot, where a round has others`);
  return { address, moduli: keys.map((key) => BigInt(`0x${key}`)), blanks };
}

/** Which of its tokens a person uses in a round, counted from 1: the round's place in its phase where people have one for each. */
export const tokenSlot = (interactivity: Asked["interactivity"], secret: boolean, number: number, first: number): number =>
  interactivity === "full" || secret ? number - first + 1 : 1;

/** What the enroller signs, unseen. */
export const signedMessage = (prefix: Bytes, task: string, slot: number): Bytes =>
  joined(prefix, ascii("croupier token v1"), fromHex(task, 32), littleEndian(slot, 4));

/** Draw prefixes, salts and blinding factors for all slots of a task. */
export function drawnRequests(task: string, enroller: Enroller): TokenRequest[] {
  return enroller.moduli.map((modulus, place) => {
    const prefix = randomBytes(PREFIX_BYTES);
    const { request, inverse } = blinded(signedMessage(prefix, task, place + 1), modulus);
    return { prefix: toHex(prefix), request: toHex(request), inverse: inverse.toString(16) };
  });
}

/** The requests as they travel: a header, and the blinded messages. */
export const requestsBytes = (requests: readonly TokenRequest[]): Bytes =>
  joined(
    ascii("CRPT"),
    new Uint8Array([1, 0, 0, 0]),
    littleEndian(requests.length, 4),
    littleEndian(SIGNED_BYTES, 4),
    ...requests.map(({ request }) => fromHex(request, SIGNED_BYTES)),
  );

/** Take the blinding off the enroller's answer: a token a slot, each verified, or none. */
export function tokensOf(requests: readonly TokenRequest[], answer: Bytes, task: string, enroller: Enroller): string[] {
  if (requests.length !== enroller.moduli.length || answer.length !== SIGNED_BYTES * requests.length) {
    throw new WireError(`${answer.length} bytes of the enroller's for ${requests.length} tokens`);
  }
  return requests.map(({ prefix, inverse }, place) => {
    const message = signedMessage(fromHex(prefix, PREFIX_BYTES), task, place + 1);
    const part = answer.slice(place * SIGNED_BYTES, (place + 1) * SIGNED_BYTES);
    return prefix + toHex(unblinded(message, part, BigInt(`0x${inverse}`), enroller.moduli[place]));
  });
}

/** Sends a body to a server's path, with a secret that it knows the sender by. */
export type Sender = (address: string, path: string, body: Bytes, secret: string) => Promise<Bytes>;

/**
 * Get a task's tokens from its enroller, unless they are here. The requests are kept before they are sent, so that a retry sends the
 * same bytes: the enroller signs no others. When the tokens are here, what could link them to the requests is forgotten.
 */
export async function collectTokens(store: Store, task: string, enroller: Enroller, invitation: string | undefined, send: Sender): Promise<void> {
  const before = await store.wallet(task);
  if (before?.tokens !== undefined) return;
  requirePrivateWay(enroller.address, "enroller");
  const given = invitation?.trim();
  if (given === undefined || !/^[!-~]+$/.test(given)) {
    throw new InvitationError(`an invitation is needed: the task's enroller, ${enroller.address}, knows you by it. Nothing was sent.`);
  }
  const requests = await store.keepRequests(task, before?.requests ?? drawnRequests(task, enroller));
  if (requests === null) return; // another tab was quicker
  let answer: Bytes;
  try {
    answer = await send(enroller.address.replace(/\/+$/, ""), "/v1/tokens", requestsBytes(requests), given);
  } catch (problem) {
    if (!(problem instanceof ServerError)) throw problem;
    if (problem.status === 401) throw new InvitationError("the enroller does not know this invitation: copy it as it was printed.");
    if (problem.status === 409) {
      throw new InvitationError("the tokens of this invitation were collected elsewhere: a person gets them once. Use the browser or folder that has them.");
    }
    throw new ServerError(problem.status, `the enroller: ${problem.message}`);
  }
  await store.keepTokens(task, tokensOf(requests, answer, task, enroller));
}

/** The token of a slot, counted from 1. */
export async function tokenOf(store: Store, task: string, slot: number): Promise<Bytes> {
  const token = (await store.wallet(task))?.tokens?.[slot - 1];
  if (!token) throw new InvitationError("the token of this round was used before, or is lost: one user answers once. Nothing was sent.");
  return fromHex(token, TOKEN_BYTES);
}
