/** Bytes or words that are not what they should be. The text holds nothing secret. */
export class WireError extends Error {
  override name = "WireError";
}

/** The task promises less than its owner demands, or asks for more than it may. Nothing was sent. */
export class RefusedTaskError extends Error {
  override name = "RefusedTaskError";
}

/** Theorem B or L gives no bound here that this client can prove: nothing may be sent. */
export class NoCertificateError extends Error {
  override name = "NoCertificateError";
}

/** The task has an enroller, and there is no invitation that it takes, or no token left. The text holds nothing of either. */
export class InvitationError extends Error {
  override name = "InvitationError";
}

/** A record that the task cannot take. The text names the column and what is allowed, never the value. */
export class RecordError extends Error {
  override name = "RecordError";
}

/** The shuffler refused (`status`), or could not be reached (`status` is null). A retry sends the same bytes. */
export class ServerError extends Error {
  override name = "ServerError";
  readonly status: number | null;
  constructor(status: number | null, reason: string) {
    super(reason);
    this.status = status;
  }
}
