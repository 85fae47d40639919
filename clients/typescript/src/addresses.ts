/** Addresses of servers: a token or an invitation travels to them, so nobody may read along. */

// White space as Python has it, too.
const ADDRESS = /^https?:\/\/[^/?#\s\x1c-\x1f\x85]+(?:\/[^?#\s\x1c-\x1f\x85]*)?$/;

/** Whether it is http or https, a host, and a path at most. */
export const isAddress = (address: string): boolean => ADDRESS.test(address);

/** Refuse an address to which a secret would travel in clear: plain http to another machine than this one. */
export function requirePrivateWay(address: string, name: string): void {
  let parts: URL;
  try {
    parts = new URL(address);
  } catch {
    throw new RangeError(`${name}: an address like https://host:port is needed`);
  }
  const host = parts.hostname;
  const here = host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
  if (parts.protocol !== "https:" && !(parts.protocol === "http:" && here)) {
    throw new RangeError(
      `${name}: an https address is needed, or http on this machine. Over plain http anybody on the way reads your token and answers in your place.`,
    );
  }
}
