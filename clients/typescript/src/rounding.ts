/** A privacy figure as text, in four digits, never smaller than it is. */
export function roundUp(value: number, digits = 4): string {
  if (!(value > 0 && Number.isFinite(value))) return value === 0 ? "0" : "no bound";
  const rounded = Number(value.toPrecision(digits));
  if (rounded >= value) return String(rounded);
  const unit = 10 ** (Math.floor(Math.log10(value)) - digits + 1);
  return String(Number((rounded + unit).toPrecision(digits)));
}
/** A figure that somebody chose, as text, to the last digit. */
export const exact = (value: number): string => (value > 0 && value < 1e-4 ? value.toExponential() : String(value));
