/** Where random bytes come from. */
import { chacha20 } from "@noble/ciphers/chacha.js";
import { blake2b } from "@noble/hashes/blake2.js";
import { ascii, type Bytes } from "./bytes.ts";
import { randomBytes } from "./crypto.ts";

/** A stream of independent, uniformly random bytes. */
export interface RandomSource {
  draw(count: number): Bytes;
}

/** The platform's secure source: the one to use. */
export const secureRandom: RandomSource = { draw: randomBytes };

/** The bytes that Python's KeyedRandom gives for the same 32 bytes: for vectors and tests, since whoever knows the key can take off the noise. */
export class KeyedRandom implements RandomSource {
  readonly #key: Uint8Array;
  #block = 0;
  #left: Bytes = new Uint8Array(0);

  constructor(root: Bytes) {
    const person = new Uint8Array(16);
    person.set(ascii("keystream"));
    this.#key = blake2b(new Uint8Array(8), { key: root, personalization: person, dkLen: 32 });
  }

  draw(count: number): Bytes {
    const drawn = new Uint8Array(count);
    const kept = Math.min(count, this.#left.length);
    drawn.set(this.#left.subarray(0, kept));
    this.#left = this.#left.subarray(kept);
    if (kept < count) {
      const blocks = Math.ceil((count - kept) / 64);
      const fresh = chacha20(this.#key, new Uint8Array(12), new Uint8Array(64 * blocks), undefined, this.#block) as Bytes;
      this.#block += blocks;
      drawn.set(fresh.subarray(0, count - kept), kept);
      this.#left = fresh.subarray(count - kept);
    }
    return drawn;
  }
}
