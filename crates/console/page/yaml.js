// The YAML of rules: written by the server, so that it is the same everywhere, and shown with its keys marked.

import { post } from './api.js';
import { descriptorYaml } from './descriptor.js';
import { el } from './dom.js';

/** Checks the text of a rule. Nothing changes. */
export function validate(id, text, signal) {
  return post(`rules/${encodeURIComponent(id)}/validate`, { text }, { signal });
}

/** A rule as YAML, and what it promises in words. */
export async function readRule(id, rule) {
  if (rule.descriptor) {
    // What a limit promises has nothing to do with its key.
    const { limit, algorithm, max_delay } = rule;
    const { promises } = await validate(id, JSON.stringify({ per: [], limit, algorithm, max_delay }));
    return { yaml: descriptorYaml(rule), promises };
  }
  const { yaml, promises } = await validate(id, JSON.stringify(rule));
  return { yaml: yaml ?? JSON.stringify(rule, null, 2), promises };
}

/** A rule as YAML. */
export async function yamlOf(id, rule) {
  return (await readRule(id, rule)).yaml;
}

export function yamlView(text) {
  const lines = text.trimEnd().split('\n').flatMap((line) => {
    const found = /^(\s*(?:- )?)([\w.-]+)(:.*)?$/.exec(line);
    if (!found || found[3] === undefined) return [line, '\n'];
    return [found[1], el('span', { class: 'key' }, found[2]), found[3], '\n'];
  });
  return el('pre', { class: 'code', tabindex: 0, 'aria-label': 'The rule as YAML' }, el('code', {}, lines));
}
