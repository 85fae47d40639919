/** Small helpers about bytes. */
import { WireError } from "./errors.ts";

export type Bytes = Uint8Array<ArrayBuffer>;

export function fromHex(text: string, length?: number): Bytes {
  if (!/^(?:[0-9a-fA-F]{2})*$/.test(text) || (length !== undefined && text.length !== 2 * length)) {
    throw new WireError(`${length === undefined ? "an even number of" : 2 * length} hex digits are needed`);
  }
  const bytes = new Uint8Array(text.length / 2);
  for (let place = 0; place < bytes.length; place += 1) bytes[place] = parseInt(text.slice(2 * place, 2 * place + 2), 16);
  return bytes;
}

export function toHex(bytes: Uint8Array): string {
  let made = "";
  for (const byte of bytes) made += byte.toString(16).padStart(2, "0");
  return made;
}

export function joined(...parts: Uint8Array[]): Bytes {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

export const ascii = (text: string): Bytes => new TextEncoder().encode(text) as Bytes;

export function sameBytes(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, place) => byte === other[place]);
}

export function littleEndian(number: number, length: number): Bytes {
  const bytes = new Uint8Array(length);
  let rest = number;
  for (let place = 0; place < length; place += 1) {
    bytes[place] = rest % 256;
    rest = Math.floor(rest / 256);
  }
  return bytes;
}
