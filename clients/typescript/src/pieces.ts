/** Work that takes long where a person has many records: done in pieces, so that whatever has its time meanwhile happens at that time. */

/** It pauses after every record. */
export type Pieces<Made> = Generator<void, Made, void>;

/** Milliseconds for which nobody else has a turn. */
const PIECE = 20;

/** A turn for all others. Unlike timers, messages are as quick in a tab that nobody looks at. */
const turn = (): Promise<void> =>
  new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });

/** What comes of the work; null where that takes longer than it may: it is given up then. */
export async function inPieces<Made>(work: Pieces<Made>, isLate: () => boolean = () => false): Promise<Made | null> {
  let last = performance.now();
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    if (performance.now() < last + PIECE) continue;
    if (isLate()) return null;
    await turn();
    last = performance.now();
  }
}

/** What comes of the work, all at once. */
export function allAtOnce<Made>(work: Pieces<Made>): Made {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}
