// What an operator does: each action with its question, its command and what came of it.
import { call, parts, pathOf, post } from './api.js';
import { command, num, splitId, topicArgument } from './format.js';
import { changed } from './poll.js';
import { ask, tell } from './ui.js';

/** @typedef {{ verb: string, name: string, role: 'operate' | 'admin', done: string, about: string, danger?: boolean }} Action */

/** @type {Record<string, Action>} */
export const ACTIONS = {
  hold: { verb: 'hold', name: 'Hold', role: 'operate', done: 'held', about: 'Stop delivery; published events wait' },
  resume: { verb: 'resume', name: 'Resume', role: 'operate', done: 'resumed', about: 'Continue delivery after a hold' },
  probe: {
    verb: 'probe',
    name: 'Probe now',
    role: 'operate',
    done: 'probed',
    about: 'Send a probe to the suspended endpoint now',
  },
  release: {
    verb: 'release',
    name: 'Release',
    role: 'operate',
    done: 'released',
    about: 'Treat the suspended endpoint as healthy',
  },
};

/** Runs something, tells what came of it, and reads the page again. */
export async function run(work, done, line) {
  try {
    const result = await work();
    tell(typeof done === 'function' ? done(result) : done, { line });
    changed();
    return result;
  } catch (error) {
    tell(`${error.status ? `${error.status} ` : ''}${error.message}`, { kind: 'bad', line });
    return undefined;
  }
}

/** The command of an action on an event subscription. */
export function actionLine(verb, id) {
  const { topic, name } = splitId(id);
  return command('subscriptions', verb, topicArgument(topic), name);
}

/** One action on one event subscription. */
export const operate = (action, id) =>
  run(() => post(`${pathOf(id)}/${action.verb}`), `${splitId(id).name} ${action.done}`, actionLine(action.verb, id));

/** Decides about the events that block their order key. */
export const unblock = (id, retry) =>
  run(
    () => post(`${pathOf(id)}/unblock`, { retry }),
    `${splitId(id).name} unblocked`,
    `${actionLine('unblock', id)} --all${retry ? ' --retry' : ''}`,
  );

/**
 * One action on many event subscriptions, a few at a time.
 * @returns {Promise<Map<string, string>>} what was answered, by id
 */
export async function operateAll(action, ids) {
  const results = new Map();
  const waiting = [...ids];
  const worker = async () => {
    for (let id = waiting.shift(); id; id = waiting.shift()) {
      const own = id;
      await post(`${pathOf(own)}/${action.verb}`).then(
        () => results.set(own, action.done),
        (error) => results.set(own, `${error.status} ${error.message}`),
      );
    }
  };
  await Promise.all([worker(), worker(), worker()]);
  const failed = [...results.values()].filter((result) => result !== action.done).length;
  const text = `${results.size - failed} of ${results.size} ${action.done}${failed ? `, ${failed} refused: see the rows` : ''}`;
  tell(text, { kind: failed ? 'warn' : 'ok', line: ids.length === 1 ? actionLine(action.verb, ids[0]) : undefined });
  changed();
  return results;
}

/** Retries the pending deliveries of these events now, or of all events. */
export function retry(id, sequences = []) {
  const { topic, name } = splitId(id);
  const work = async () => {
    let events = 0;
    for await (const part of /** @type {AsyncGenerator<import('./openapi').components['schemas']['Retried']>} */ (
      parts(`${pathOf(id)}/retry`, sequences.length > 0 ? { sequences: sequences.map(Number) } : { all: true })
    ))
      events += Number(part.events);
    return events;
  };
  const line = command('subscriptions', 'retry', topicArgument(topic), name, ...sequences);
  return run(work, (events) => `${num(events)} pending deliveries of ${name} are due now`, line);
}

/** Deletes a topic or an event subscription, once its name was typed. */
export async function remove(id, name, about, line) {
  const yes = await ask({ title: `Delete ${name}?`, body: about, confirm: 'Delete', danger: true, typed: name, line });
  if (!yes) return false;
  let isGone = false;
  await run(() => call('DELETE', pathOf(id)).then(() => (isGone = true)), `${name} deleted`, line);
  return isGone;
}
