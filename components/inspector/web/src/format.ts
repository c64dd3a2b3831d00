/** Numbers and times as text. A shortened number is cut, never rounded, and says so with an ellipsis. */

const DIGITS = 4;

/** The shortest text that is exactly the number. */
export function exact(value: number): string {
  return Object.is(value, -0) ? "-0" : String(value);
}

/** The number with at most `digits` decimals, cut: `0.3333…`. Small numbers keep their first digits: `0.00001234…`. */
export function cut(value: number, digits = DIGITS): string {
  const text = exact(value);
  const match = /^(-?\d+)\.(0*)(\d+)(e.+)?$/.exec(text);
  if (!match) return text;
  const [, whole = "", zeros = "", decimals = "", exponent = ""] = match;
  const small = Number(whole) === 0;
  const kept = small ? digits : Math.max(0, digits - zeros.length);
  if (decimals.length <= kept) return text;
  return `${whole}.${zeros.slice(0, small ? undefined : digits)}${decimals.slice(0, kept)}…${exponent}`;
}

/** Whether a text is only the beginning of one of `length` characters: code points, as the server counts them. */
export function isCut(text: string, length: number): boolean {
  return text.length < length || [...text].length < length;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Seconds as `0.8 s`, `12 s`, `3 min 05 s` or `2 h 07 min`. */
export function duration(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const pad = (value: number) => String(value).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`;
}

export function bytes(size: number): string {
  for (const [unit, scale] of [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ] as const)
    if (size >= scale) return `${(size / scale).toFixed(1)} ${unit}`;
  return `${size} bytes`;
}

/** A number with its noun: `1 turn`, `2 turns`. */
export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}
