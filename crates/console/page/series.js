// Time series of one window, as the server sends them: whole, or the newest points to be appended.

export const NAMES = ['allowed', 'denied', 'shadow_denied', 'delayed', 'degraded', 'cost', 'candidate_denied'];

export class ActivityWindow {
  /** A window of so many points. */
  constructor(length) {
    this.length = length;
    this.clear();
  }

  clear() {
    this.from = 0;
    this.step = 1;
    this.total = {};
    this.rules = new Map();
    this.changes = [];
    this.gaps = [];
    this.instances = [];
    this.leftOut = 0;
  }

  get isEmpty() {
    return this.from === 0;
  }

  /** Takes an answer of `/v1/activity` or an event of its stream. */
  absorb(message) {
    const sent = message.total.allowed?.length ?? 0;
    const known = this.total.allowed?.length ?? 0;
    const at = (message.from - this.from) / message.step;
    const isNext = !this.isEmpty && message.step === this.step && at > 0 && at <= known && sent < this.length;
    const offset = isNext ? at : 0;
    if (!isNext) {
      this.from = message.from;
      this.step = message.step;
    }
    const size = offset + sent;
    this.total = joined(isNext ? this.total : {}, message.total, offset, size);
    const rules = new Map();
    for (const rule of message.rules) {
      rules.set(rule.rule, joined(isNext ? this.rules.get(rule.rule) : {}, rule, offset, size));
    }
    if (isNext) {
      for (const [id, series] of this.rules) {
        if (!rules.has(id)) rules.set(id, joined(series, {}, offset, size));
      }
    }
    this.rules = rules;
    this.cut(size - this.length);
    // A message about the newest points has only the changes of that time.
    const name = ({ at, version, override }) => JSON.stringify([at, version, override]);
    const changes = new Map((isNext ? this.changes : []).concat(message.changes ?? []).map((change) => [name(change), change]));
    this.changes = [...changes.values()].filter((change) => change.at >= this.from);
    const earlier = isNext ? this.gaps.map(({ from, to }) => ({ from, to: Math.min(to, message.from) })) : [];
    this.gaps = earlier.concat(message.gaps ?? []).filter(({ from, to }) => from < to && to > this.from);
    this.instances = message.instances ?? this.instances;
    // Rules with little traffic of which no series are sent.
    this.leftOut = message.rules_left_out ?? 0;
  }

  /** Removes points that are older than the window. */
  cut(surplus) {
    if (surplus <= 0) return;
    this.from += surplus * this.step;
    for (const series of [this.total, ...this.rules.values()]) {
      for (const name of Object.keys(series)) series[name] = series[name].slice(surplus);
    }
  }

  times() {
    return Array.from({ length: this.total.allowed?.length ?? 0 }, (_, index) => this.from + index * this.step);
  }

  /** For each point, whether no server counted then: its zeros are no numbers. */
  missing() {
    return this.times().map((at) => this.gaps.some(({ from, to }) => from <= at && at + this.step <= to));
  }

  /** The changes of rules, and of overrides of all rules or of one. */
  marks(rule) {
    return this.changes.filter(({ override }) => !override || rule === undefined || override.rule === rule);
  }

  /** The series of a rule, or in total. */
  of(rule) {
    return (rule === undefined ? this.total : this.rules.get(rule)) ?? {};
  }
}

/** The series up to `offset`, followed by those of a message, each of `size` points. */
function joined(before, message, offset, size) {
  const series = {};
  for (const name of NAMES) {
    const old = before?.[name] ?? [];
    const kept = Array.from({ length: offset }, (_, index) => old[index] ?? 0);
    const added = message[name] ?? [];
    series[name] = kept.concat(added, new Array(Math.max(0, size - offset - added.length)).fill(0));
  }
  return series;
}

export const sum = (values = []) => values.reduce((total, value) => total + value, 0);

/** The mean per second of the whole points that are not `missing`. The newest point is not whole yet. */
export function average(values = [], missing = [], step = 1) {
  const known = values.slice(0, -1).filter((_, index) => !missing[index]);
  return known.length === 0 ? 0 : sum(known) / known.length / step;
}

/** The mean per second of the newest whole points. The newest point is not whole yet. */
export function latest(values = [], step = 1, points = 5) {
  const whole = values.slice(-points - 1, -1);
  return whole.length === 0 ? 0 : sum(whole) / whole.length / step;
}
