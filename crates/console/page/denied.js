// The last denied requests of a client: evidence of what it does.

import { get } from './api.js';
import { el, put, visible } from './dom.js';
import { clock, dateTime } from './format.js';
import { reasonText } from './reasons.js';
import { plainTable } from './table.js';

const MOST = 10;

/** The samples that the servers keep of a client of a rule. */
export async function readDenied(rule, value) {
  const query = new URLSearchParams({ rule, key: value, limit: MOST });
  return (await get(`denied?${query}`)).denied;
}

const text = (value) => (value === null || value === undefined ? '–' : el('bdi', {}, visible(value)));

/** A table of denied requests, newest first. `show(samples)` fills it. */
export function deniedTable() {
  const element = el('div', { class: 'samples' }, el('p', { class: 'empty' }, 'Loading…'));
  return {
    element,
    show(samples) {
      // A reader who scrolls in it is not disturbed.
      if (element.contains(document.activeElement)) return;
      const several = new Set(samples.map(({ instance }) => instance)).size > 1;
      const columns = [['Time'], ['Method'], ['Path'], ['Address'], ['Front end'], ['Reason'], several && ['Instance']].filter(Boolean);
      const rows = samples.map((one) => [
        el('span', { title: dateTime(one.at) }, clock(one.at)), text(one.method), el('span', { class: 'mono' }, text(one.path)), el('span', { class: 'mono' }, text(one.address)),
        text(one.front_end), reasonText(one.reason), several && el('span', { class: 'mono' }, text(one.instance)),
      ].filter((cell) => cell !== false));
      put(element, samples.length === 0 ? el('p', { class: 'empty' }, 'No sample of a denied request is kept.') : plainTable('Denied requests of this client', columns, rows));
    },
  };
}
