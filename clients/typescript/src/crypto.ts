/**
 * Cryptography by the platform's WebCrypto where it has an algorithm, by the audited noble packages where it has not (pages that
 * did not come by https, older web views). Both make the same bytes.
 */
import { gcm } from "@noble/ciphers/aes.js";
import { chacha20 } from "@noble/ciphers/chacha.js";
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { blake2b } from "@noble/hashes/blake2.js";
import { expand, extract } from "@noble/hashes/hkdf.js";
import { sha256 as nobleSha256 } from "@noble/hashes/sha2.js";
import { ascii, type Bytes, joined, littleEndian } from "./bytes.ts";
import { WireError } from "./errors.ts";

/** A fresh key pair's public half, and what it shares with the other side. */
export interface Exchange {
  encapsulated: Bytes;
  shared: Bytes;
}

/** The three algorithms that a platform may or may not have. */
export interface Engine {
  verify(key: Bytes, signature: Bytes, message: Bytes): Promise<boolean>;
  exchange(theirs: Bytes): Promise<Exchange>;
  encrypt(key: Bytes, nonce: Bytes, content: Bytes): Promise<Bytes>;
}

export function randomBytes(count: number): Bytes {
  const bytes = new Uint8Array(count);
  for (let place = 0; place < count; place += 65536) {
    globalThis.crypto.getRandomValues(bytes.subarray(place, Math.min(count, place + 65536)));
  }
  return bytes;
}

export const sha256 = (data: Uint8Array): Bytes => nobleSha256(data) as Bytes;

const sharedWith = (own: Bytes, theirs: Bytes): Bytes => {
  try {
    return x25519.getSharedSecret(own, theirs) as Bytes;
  } catch {
    throw new WireError("a round whose key is none that anything can be sealed for"); // a point of low order
  }
};

/** The noble packages; `ephemeral` fixes the key pair, which only a test may do. */
export const nobleEngine = (ephemeral?: () => Bytes): Engine => ({
  async verify(key, signature, message) {
    try {
      return ed25519.verify(signature, message, key, { zip215: false });
    } catch {
      return false;
    }
  },
  async exchange(theirs) {
    const own = ephemeral?.() ?? randomBytes(32);
    return { encapsulated: x25519.getPublicKey(own) as Bytes, shared: sharedWith(own, theirs) };
  },
  async encrypt(key, nonce, content) {
    return gcm(key, nonce).encrypt(content) as Bytes;
  },
});

const webEngine = (subtle: SubtleCrypto): Engine => ({
  async verify(key, signature, message) {
    try {
      const known = await subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
      return await subtle.verify("Ed25519", known, signature, message);
    } catch {
      return false;
    }
  },
  async exchange(theirs) {
    const pair = (await subtle.generateKey("X25519", false, ["deriveBits"])) as CryptoKeyPair;
    const encapsulated = new Uint8Array(await subtle.exportKey("raw", pair.publicKey));
    try {
      const known = await subtle.importKey("raw", theirs, "X25519", false, []);
      const shared = await subtle.deriveBits({ name: "X25519", public: known }, pair.privateKey, 256);
      const bytes = new Uint8Array(shared);
      if (bytes.every((byte) => byte === 0)) throw new Error("a point of low order");
      return { encapsulated, shared: bytes };
    } catch {
      throw new WireError("a round whose key is none that anything can be sealed for");
    }
  },
  async encrypt(key, nonce, content) {
    const known = await subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
    return new Uint8Array(await subtle.encrypt({ name: "AES-GCM", iv: nonce }, known, content));
  },
});

/** Each algorithm from WebCrypto where it works here, else from noble; found out once. */
async function found(): Promise<Engine> {
  const other = nobleEngine();
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
  if (subtle === undefined) return other;
  const web = webEngine(subtle);
  const works = async (trial: () => Promise<unknown>): Promise<boolean> => trial().then(Boolean, () => false);
  const seed = new Uint8Array(32).fill(7);
  const message = ascii("croupier");
  const [verifies, exchanges, encrypts] = await Promise.all([
    works(() => web.verify(ed25519.getPublicKey(seed) as Bytes, ed25519.sign(message, seed) as Bytes, message)),
    works(() => web.exchange(x25519.getPublicKey(seed) as Bytes)),
    works(() => web.encrypt(new Uint8Array(16), new Uint8Array(12), message)),
  ]);
  return {
    verify: verifies ? web.verify : other.verify,
    exchange: exchanges ? web.exchange : other.exchange,
    encrypt: encrypts ? web.encrypt : other.encrypt,
  };
}

let known: Promise<Engine> | undefined;

export function engine(): Promise<Engine> {
  known ??= found();
  return known;
}

const VERSION = ascii("HPKE-v1");
const KEM = joined(ascii("KEM"), new Uint8Array([0, 0x20]));
const SUITE = joined(ascii("HPKE"), new Uint8Array([0, 0x20, 0, 1, 0, 1]));
const NOTHING = new Uint8Array(0);

const labelledExtract = (suite: Bytes, salt: Bytes, label: string, content: Bytes): Bytes =>
  extract(nobleSha256, joined(VERSION, suite, ascii(label), content), salt) as Bytes;

const labelledExpand = (suite: Bytes, key: Bytes, label: string, info: Bytes, length: number): Bytes =>
  expand(nobleSha256, key, joined(new Uint8Array([length >> 8, length & 255]), VERSION, suite, ascii(label), info), length) as Bytes;

const PSK_ID_HASH = labelledExtract(SUITE, NOTHING, "psk_id_hash", NOTHING);

/** HPKE (RFC 9180) in base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, without associated data. */
export async function seal(content: Bytes, theirs: Bytes, info: Bytes, by?: Engine): Promise<Bytes> {
  const used = by ?? (await engine());
  const { encapsulated, shared } = await used.exchange(theirs);
  const agreed = labelledExtract(KEM, NOTHING, "eae_prk", shared);
  const secret = labelledExpand(KEM, agreed, "shared_secret", joined(encapsulated, theirs), 32);
  const context = joined(new Uint8Array([0]), PSK_ID_HASH, labelledExtract(SUITE, NOTHING, "info_hash", info));
  const schedule = labelledExtract(SUITE, secret, "secret", NOTHING);
  const key = labelledExpand(SUITE, schedule, "key", context, 16);
  const nonce = labelledExpand(SUITE, schedule, "base_nonce", context, 12);
  return joined(encapsulated, await used.encrypt(key, nonce, content));
}

const PERSON = new Uint8Array(16);
PERSON.set(ascii("keystream")); // filled up with zeros, as BLAKE2b has it

/** The ChaCha20 keystream under the key BLAKE2b-256(key = seed, person = "keystream", data = the key's number, 8 bytes). */
export function keystream(seed: Bytes, count: number): Bytes {
  const key = blake2b(new Uint8Array(8), { key: seed, personalization: PERSON, dkLen: 32 });
  return chacha20(key, new Uint8Array(12), new Uint8Array(count)) as Bytes;
}

export const label = (number: number): Bytes => littleEndian(number, 4);
