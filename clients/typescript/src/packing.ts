/** Masked counts: d numbers modulo 2^k, of k bits each, one after the other without gaps; bytes from their lowest bit. */
import type { Bytes } from "./bytes.ts";
import { WireError } from "./errors.ts";
import type { SumPlan } from "./plan.ts";

const MOST_WIDTH = 57;

/**
 * k, the bits of a masked count: the least number with 2^k > users x messages. With a rotation 2^k is above the data's range and eight
 * standard deviations of noise on either side, where that is less.
 */
export function countWidth({ users, levels, noiseBits, range }: Pick<SumPlan, "users" | "levels" | "noiseBits" | "range">): number {
  let most = BigInt(users) * BigInt(levels + noiseBits);
  if (range !== null) {
    const usual = BigInt(users) * BigInt(levels) + BigInt(Math.ceil(8 * Math.sqrt(users * noiseBits)));
    if (usual < most) most = usual;
  }
  const width = most.toString(2).length;
  if (width > MOST_WIDTH) throw new WireError(`counts of ${width} bits, where there are at most ${MOST_WIDTH}`);
  return width;
}

export const packedBytes = (dim: number, width: number): number => Math.ceil((dim * width) / 8);

export function packed(numbers: readonly bigint[], width: number): Bytes {
  const bytes = new Uint8Array(packedBytes(numbers.length, width));
  numbers.forEach((number, index) => {
    let rest = BigInt.asUintN(width, number);
    let bit = index * width;
    let left = width;
    while (left > 0) {
      const offset = bit % 8;
      const taken = Math.min(8 - offset, left);
      bytes[Math.floor(bit / 8)] |= Number(BigInt.asUintN(taken, rest)) << offset;
      rest >>= BigInt(taken);
      bit += taken;
      left -= taken;
    }
  });
  return bytes;
}

export function unpacked(bytes: Uint8Array, dim: number, width: number): bigint[] {
  return Array.from({ length: dim }, (_, index) => {
    const first = index * width;
    let number = 0n;
    for (let place = Math.floor((first + width - 1) / 8); place >= Math.floor(first / 8); place -= 1) {
      number = (number << 8n) | BigInt(bytes[place]);
    }
    return BigInt.asUintN(width, number >> BigInt(first % 8));
  });
}
