// Numbers with units, and times in the zone that the reader chose.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const two = new Intl.NumberFormat('en', { maximumFractionDigits: 2 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

let utc = false;

export const zone = {
  isUtc: () => utc,
  local: () => Intl.DateTimeFormat().resolvedOptions().timeZone,
  name: () => (utc ? 'UTC' : zone.local()),
  choose(isUtc) { utc = isUtc; },
};

export function count(number) {
  return number === null || number === undefined ? '–' : whole.format(number);
}

/** A number of things: `1 client`, `2 clients`. */
export function counted(number, one, many = `${one}s`) {
  return `${brief(number)} ${number === 1 ? one : many}`;
}

/** The text of a problem as a sentence. */
export function sentence(text) {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
}

/** A number that fits into a small space: 12.3K. */
export function brief(number) {
  return Math.abs(number) < 10_000 ? whole.format(number) : short.format(number);
}

/** Requests per second, without the unit. */
export function rate(number) {
  if (number === 0) return '0';
  if (Math.abs(number) >= 10_000) return short.format(number);
  return (Math.abs(number) >= 10 ? one : two).format(number);
}

export function percent(part, all) {
  if (!all) return '0 %';
  const share = (100 * part) / all;
  if (share > 0 && share < 0.1) return '< 0.1 %';
  return `${one.format(share)} %`;
}

/** A span of time: `350 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return 'never';
  if (seconds === 0) return '0 s';
  if (seconds < 0.001) return '< 1 ms';
  if (seconds < 1) return `${whole.format(seconds * 1000)} ms`;
  if (seconds < 60) return `${one.format(seconds)} s`;
  const total = Math.round(seconds);
  const units = [['d', 86_400], ['h', 3_600], ['min', 60], ['s', 1]];
  const first = units.findIndex(([, size]) => total >= size);
  const [unit, size] = units[first];
  const rest = units[first + 1];
  const more = rest ? Math.floor((total % size) / rest[1]) : 0;
  return `${Math.floor(total / size)} ${unit}${more ? ` ${more} ${rest[0]}` : ''}`;
}

function formatted(at, options) {
  const date = at instanceof Date ? at : new Date(typeof at === 'string' ? at : at * 1000);
  if (Number.isNaN(date.getTime())) return '–';
  return new Intl.DateTimeFormat('en-GB', { ...options, timeZone: utc ? 'UTC' : undefined }).format(date);
}

/** The time of day. `at` is Unix seconds, or a text in the form of RFC 3339. */
export function clock(at, withSeconds = true) {
  return formatted(at, { hour: '2-digit', minute: '2-digit', second: withSeconds ? '2-digit' : undefined });
}

export function dateTime(at) {
  const day = { day: 'numeric', month: 'short', year: 'numeric' };
  const text = formatted(at, { ...day, hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short' });
  return text;
}

/** A text of the server, with its times in the zone of the reader. */
export function withTimes(text) {
  return text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g, (time) => dateTime(time));
}

/** Unix seconds of a time in either form. */
export function unix(at) {
  return typeof at === 'string' ? Date.parse(at) / 1000 : at;
}

export function ago(at, now = Date.now() / 1000) {
  const seconds = Math.max(0, now - unix(at));
  return seconds < 2 ? 'just now' : `${span(Math.round(seconds))} ago`;
}
