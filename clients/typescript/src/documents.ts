/** Signed documents: taken as they were signed, verified, and named by their digest. */
import { ascii, type Bytes, joined, littleEndian, toHex } from "./bytes.ts";
import { engine, sha256 } from "./crypto.ts";
import { requireDescribed } from "./described.ts";
import { WireError } from "./errors.ts";
import { canonical, type JsonObject, parseJson } from "./json.ts";

export const TASK = 1;
export const ROUND = 2;
export const END = 16;
const MOST_DOCUMENT_BYTES = 1 << 26;
const HEADER = 16;
const SIGNATURE = 64;

export interface SignedDocument {
  kind: number;
  text: Bytes;
  signature: Bytes;
  /** SHA-256 of all of its bytes: what reports and seals are bound to. */
  digest: Bytes;
}

export function readDocument(data: Bytes): SignedDocument {
  if (data.length > MOST_DOCUMENT_BYTES || data.length < HEADER + SIGNATURE) throw new WireError("a document of an impossible length");
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const magic = String.fromCharCode(...data.subarray(0, 4));
  if (magic !== "CRPD") throw new WireError("not CRPD");
  if (data[4] !== 1) throw new WireError(`version ${data[4]}; this is version 1`);
  const length = view.getUint32(8, true);
  if (view.getUint16(6, true) !== 0 || view.getUint32(12, true) !== 0 || data.length !== HEADER + length + SIGNATURE) {
    throw new WireError("a document of another length than its header says");
  }
  return {
    kind: data[5],
    text: data.slice(HEADER, HEADER + length),
    signature: data.slice(HEADER + length),
    digest: sha256(data),
  };
}

/** What the document says, if it is of this kind, signed by this key, and as documents of its kind are described. */
export async function verified(document: SignedDocument, kind: number, key: Bytes): Promise<JsonObject> {
  const message = joined(ascii("croupier signature v1"), littleEndian(document.kind, 1), document.text);
  if (!(await (await engine()).verify(key, document.signature, message))) {
    throw new WireError("the signature is not the expected key's");
  }
  if (document.kind !== kind) throw new WireError(`a document of kind ${document.kind} where kind ${kind} belongs`);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(document.text);
  } catch {
    throw new WireError("a document that is not JSON");
  }
  const values = parseJson(text);
  if (!(values instanceof Map)) throw new WireError("a document that is not a JSON object");
  requireDescribed(kind, values);
  return values;
}

/** A task's id: the SHA-256 of the canonical JSON of all its words but `id`. */
export function taskId(values: JsonObject): string {
  const words = new Map([...values].filter(([name]) => name !== "id"));
  return toHex(sha256(ascii(canonical(words))));
}
