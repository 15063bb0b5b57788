// Differences between texts, line by line.

import { el } from './dom.js';

const KINDS = { '+': 'added', '-': 'removed', '@': 'place' };

/** A unified diff, as the server writes it. */
export function unified(text) {
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  return frame(lines.map((line) => [line.startsWith('+++') || line.startsWith('---') ? '@' : line[0], line]));
}

/** The differences between two texts. */
export function between(before, after) {
  return frame(compare(before.trimEnd().split('\n'), after.trimEnd().split('\n')));
}

export const isSame = (before, after) => before.trimEnd() === after.trimEnd();

function frame(lines) {
  const names = { '+': 'added: ', '-': 'removed: ' };
  return el('div', { class: 'diff', role: 'group', 'aria-label': 'Differences', tabindex: 0 },
    lines.map(([sign, line]) => el('div', { class: KINDS[sign] },
      names[sign] && el('span', { class: 'hidden' }, names[sign]), line || ' ')));
}

/** The longest common subsequence, by a table: rules are short. */
function compare(before, after) {
  const common = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      common[i][j] = before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      lines.push([' ', `  ${before[i]}`]);
      i += 1;
      j += 1;
    } else if (i < before.length && (j === after.length || common[i + 1][j] >= common[i][j + 1])) {
      lines.push(['-', `- ${before[i]}`]);
      i += 1;
    } else {
      lines.push(['+', `+ ${after[j]}`]);
      j += 1;
    }
  }
  return lines;
}
