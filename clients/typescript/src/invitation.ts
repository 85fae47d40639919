/** Invitation links: what they pin, and how the first device claims one. */
import { isAddress, requirePrivateWay } from "./addresses.ts";
import { ascii, type Bytes, toHex } from "./bytes.ts";
import { randomBytes, sha256 } from "./crypto.ts";
import { InvitationError, ServerError } from "./errors.ts";
import type { Store } from "./store.ts";

/** All that a link says, after its #. */
export interface InvitationLink {
  /** A secret that the first device claims; or a token, which any device can use that has it. */
  code?: string;
  token?: string;
  /** Whoever asks, by its key: 64 hex digits. */
  analyzer: string;
  shuffler?: string;
  enroller?: string;
  /** What the enroller knows the person by, or whether one signs in there to get it. */
  invitation?: string;
  signIn: boolean;
  /** When the shuffler stops to take the code, in seconds since 1970. */
  until?: number;
}

const WORDS = ["code", "token", "analyzer", "shuffler", "enroller", "invitation", "signin", "until"];
const SECRET = /^[!-~]{1,500}$/;

/** Read a link's part after the #, strictly: what is unknown, twice or misshapen is refused, so that nothing is pinned by half. */
export function readLink(hash: string): InvitationLink {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const refuse = (why: string): never => {
    throw new InvitationError(`this link is not whole: ${why}. Copy it again, or ask for another one.`);
  };
  const unknown = [...words.keys()].find((name) => !WORDS.includes(name));
  if (unknown !== undefined) refuse(`it has a word that this page does not know (${unknown.slice(0, 20)})`);
  const twice = WORDS.find((name) => words.getAll(name).length > 1);
  if (twice !== undefined) refuse(`it says ${twice} twice`);
  const said = (name: string): string | undefined => words.get(name) ?? undefined;
  const [code, token, analyzer, until] = [said("code"), said("token"), said("analyzer") ?? "", said("until")];
  if ((code === undefined) === (token === undefined)) refuse("it needs a code or a token, and not both");
  if (!SECRET.test(code ?? token ?? "")) refuse("its code has other characters");
  if (!/^[0-9a-fA-F]{64}$/.test(analyzer)) refuse("the analyzer's key is not 64 hex digits");
  for (const name of ["shuffler", "enroller"]) {
    const address = said(name);
    if (address === undefined) continue;
    if (!isAddress(address)) refuse(`the ${name} has no address like https://host:port`);
    requirePrivateWay(address, name);
  }
  if (said("invitation") !== undefined && !SECRET.test(said("invitation") ?? "")) refuse("its invitation has other characters");
  if (until !== undefined && !/^\d{1,12}$/.test(until)) refuse("its end is no time");
  return {
    code, token, analyzer, shuffler: said("shuffler"), enroller: said("enroller"), invitation: said("invitation"),
    signIn: said("signin") === "1", until: until === undefined ? undefined : Number(until),
  };
}

/** The name by which a store keeps the token of a code. */
export const claimName = (code: string): string => toHex(sha256(ascii(code)));

/**
 * Claim a code for this device: the token that it is enrolled with from then on. The token is drawn here, and kept before its hash is
 * sent, so that a retry after a lost answer is the same claim.
 */
export async function claimToken(store: Store, code: string, send: (path: string, body: Bytes, secret: string) => Promise<Bytes>): Promise<string> {
  const token = await store.keepClaim(claimName(code), toHex(randomBytes(32)));
  try {
    await send("/v1/claim", ascii(toHex(sha256(ascii(token)))), code);
  } catch (problem) {
    if (!(problem instanceof ServerError)) throw problem;
    if (problem.status === 401) throw new InvitationError("the shuffler does not know this invitation: copy the link as it was sent to you.");
    if (problem.status === 409 || problem.status === 410) throw new InvitationError(problem.message);
    throw problem;
  }
  return token;
}
