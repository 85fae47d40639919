/**
 * RSA blind signatures, RFC 9474, in the variant RSABSSA-SHA384-PSS-Randomized: somebody signs a message without seeing it, and
 * cannot tell the signature again when it meets it. A client's half of src/croupier/service/wire/enrolment.py.
 */
import { sha384 } from "@noble/hashes/sha2.js";
import { type Bytes, fromHex, joined, toHex } from "./bytes.ts";
import { randomBytes } from "./crypto.ts";
import { WireError } from "./errors.ts";

export const PREFIX_BYTES = 32;
const SALT_BYTES = 48;
const HASH_BYTES = 48;
export const EXPONENT = 65537n;

/** What the signer sees, and what takes the blinding off its answer: whoever has both can link the request to the signature. */
export interface Blinded {
  request: Bytes;
  inverse: bigint;
}

const hash = (data: Bytes): Bytes => sha384(data) as Bytes;
const number = (bytes: Bytes): bigint => BigInt(`0x0${toHex(bytes)}`);
const bytesOf = (value: bigint, length: number): Bytes => fromHex(value.toString(16).padStart(2 * length, "0"), length);
const bitLength = (value: bigint): number => (value > 0n ? value.toString(2).length : 0);
const lengthOf = (modulus: bigint): number => Math.ceil(bitLength(modulus) / 8);

function power(base: bigint, exponent: bigint, modulus: bigint): bigint {
  let result = 1n;
  let square = base % modulus;
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = (result * square) % modulus;
    square = (square * square) % modulus;
  }
  return result;
}

/** The inverse modulo n, by Euclid's algorithm; null where there is none. */
export function inverseOf(value: bigint, modulus: bigint): bigint | null {
  let [above, below] = [modulus, value % modulus];
  let [before, now] = [0n, 1n];
  while (below > 0n) {
    const times = above / below;
    [above, below] = [below, above - times * below];
    [before, now] = [now, before - times * now];
  }
  return above === 1n ? ((before % modulus) + modulus) % modulus : null;
}

/** Uniform from 1 to modulus - 1. */
function factorBelow(modulus: bigint): bigint {
  const bits = bitLength(modulus);
  for (;;) {
    const drawn = number(randomBytes(Math.ceil(bits / 8))) & ((1n << BigInt(bits)) - 1n);
    if (drawn > 0n && drawn < modulus) return drawn;
  }
}

/** Encode a prepared message and blind it. `salt` and `factor` are for vectors alone. */
export function blinded(message: Bytes, modulus: bigint, salt: Bytes = randomBytes(SALT_BYTES), factor = factorBelow(modulus)): Blinded {
  const encoded = number(pssEncoded(message, salt, bitLength(modulus) - 1));
  const inverse = inverseOf(factor, modulus);
  if (inverse === null || inverseOf(encoded, modulus) === null) throw new WireError("a key of the enroller's that has small factors");
  return { request: bytesOf((encoded * power(factor, EXPONENT, modulus)) % modulus, lengthOf(modulus)), inverse };
}

/** Take the blinding off a signer's answer: the signature, verified, or a refusal. */
export function unblinded(message: Bytes, answer: Bytes, inverse: bigint, modulus: bigint, saltLength = SALT_BYTES): Bytes {
  const length = lengthOf(modulus);
  const signature = bytesOf((number(answer) * inverse) % modulus, length);
  if (answer.length !== length || !isSigned(message, signature, modulus, saltLength)) {
    throw new WireError("an answer of the enroller's that is no signature by its key");
  }
  return signature;
}

/** Whether it is a signature of the message: RSASSA-PSS-VERIFY of RFC 8017 with SHA-384, MGF1 of it, and a salt of this length. */
export function isSigned(message: Bytes, signature: Bytes, modulus: bigint, saltLength = SALT_BYTES): boolean {
  const value = number(signature);
  const bits = bitLength(modulus) - 1;
  if (signature.length !== lengthOf(modulus) || value >= modulus) return false;
  const opened = power(value, EXPONENT, modulus);
  if (bitLength(opened) > bits) return false;
  const encoded = bytesOf(opened, Math.ceil(bits / 8));
  const masked = encoded.subarray(0, encoded.length - HASH_BYTES - 1);
  const digest = encoded.subarray(masked.length, masked.length + HASH_BYTES) as Bytes;
  const block = unmasked(masked as Bytes, digest, bits);
  if (block.length < saltLength + 1) return false;
  const salt = block.subarray(block.length - saltLength) as Bytes;
  return toHex(encoded) === toHex(pssEncoded(message, salt, bits)); // what it must be, to the last bit
}

/** EMSA-PSS-ENCODE of RFC 8017, section 9.1.1, in so many bits. */
function pssEncoded(message: Bytes, salt: Bytes, bits: number): Bytes {
  const length = Math.ceil(bits / 8);
  const padded = length - salt.length - HASH_BYTES - 2;
  if (padded < 0) throw new WireError(`a key of ${bits + 1} bits, too short for SHA-384 and its salt`);
  const digest = hash(joined(new Uint8Array(8), hash(message), salt));
  const block = joined(new Uint8Array(padded), new Uint8Array([1]), salt);
  return joined(unmasked(block, digest, bits), digest, new Uint8Array([0xbc]));
}

/** The block with the mask of the digest put on, or taken off, and the bits beyond `bits` set to 0. */
function unmasked(block: Bytes, digest: Bytes, bits: number): Bytes {
  const mask = mgf1(digest, block.length);
  const result = block.map((byte, place) => byte ^ mask[place]) as Bytes;
  result[0] &= 0xff >>> (8 * Math.ceil(bits / 8) - bits);
  return result;
}

/** RFC 8017, appendix B.2.1. */
function mgf1(seed: Bytes, length: number): Bytes {
  const blocks = Array.from({ length: Math.ceil(length / HASH_BYTES) }, (_, place) => {
    const counter = new Uint8Array(4);
    new DataView(counter.buffer).setUint32(0, place);
    return hash(joined(seed, counter));
  });
  return joined(...blocks).subarray(0, length) as Bytes;
}
