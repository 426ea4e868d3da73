// What an operator does: each action with its confirmation, its command and its result.
import { callApi, readParts, pathOf, postJson } from './api.js';
import { formatCommand, formatNumber, splitId, topicArgument } from './format.js';
import { refreshAll } from './poll.js';
import { askOperator, showMessage } from './ui.js';

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

/** Runs an action, shows its result, and reads the page again. */
export async function runAction(work, done, line) {
  try {
    const result = await work();
    showMessage(typeof done === 'function' ? done(result) : done, { line });
    refreshAll();
    return result;
  } catch (error) {
    showMessage(`${error.status ? `${error.status} ` : ''}${error.message}`, { kind: 'bad', line });
    return undefined;
  }
}

/** The command of an action on an event subscription. */
export function actionLine(verb, id) {
  const { topic, name } = splitId(id);
  return formatCommand('subscriptions', verb, topicArgument(topic), name);
}

/** One action on one event subscription. */
export const operateSubscription = (action, id) =>
  runAction(
    () => postJson(`${pathOf(id)}/${action.verb}`),
    `${splitId(id).name} ${action.done}`,
    actionLine(action.verb, id),
  );

/** Decides about the events that block their order key. */
export const unblockEvents = (id, retry) =>
  runAction(
    () => postJson(`${pathOf(id)}/unblock`, { retry }),
    `${splitId(id).name} unblocked`,
    `${actionLine('unblock', id)} --all${retry ? ' --retry' : ''}`,
  );

/**
 * One action on many event subscriptions, a few at a time.
 * @returns {Promise<Map<string, string>>} the result of each, by id
 */
export async function operateAll(action, ids) {
  const results = new Map();
  const waiting = [...ids];
  const worker = async () => {
    for (let id = waiting.shift(); id; id = waiting.shift()) {
      const own = id;
      await postJson(`${pathOf(own)}/${action.verb}`).then(
        () => results.set(own, action.done),
        (error) => results.set(own, `${error.status} ${error.message}`),
      );
    }
  };
  await Promise.all([worker(), worker(), worker()]);
  const failed = [...results.values()].filter((result) => result !== action.done).length;
  const text = `${results.size - failed} of ${results.size} ${action.done}${failed ? `, ${failed} refused: see the rows` : ''}`;
  showMessage(text, {
    kind: failed ? 'warn' : 'ok',
    line: ids.length === 1 ? actionLine(action.verb, ids[0]) : undefined,
  });
  refreshAll();
  return results;
}

/** Retries the pending deliveries of these events now, or of all events. */
export function retryDeliveries(id, sequences = []) {
  const { topic, name } = splitId(id);
  const work = async () => {
    let events = 0;
    for await (const part of /** @type {AsyncGenerator<import('./openapi').components['schemas']['Retried']>} */ (
      readParts(`${pathOf(id)}/retry`, sequences.length > 0 ? { sequences: sequences.map(Number) } : { all: true })
    ))
      events += Number(part.events);
    return events;
  };
  const line = formatCommand('subscriptions', 'retry', topicArgument(topic), name, ...sequences);
  return runAction(work, (events) => `${formatNumber(events)} pending deliveries of ${name} are due now`, line);
}

/** Deletes a topic or an event subscription, once its name was typed. */
export async function removeResource(id, name, about, line) {
  const yes = await askOperator({
    title: `Delete ${name}?`,
    body: about,
    confirm: 'Delete',
    danger: true,
    typed: name,
    line,
  });
  if (!yes) return false;
  let isGone = false;
  await runAction(() => callApi('DELETE', pathOf(id)).then(() => (isGone = true)), `${name} deleted`, line);
  return isGone;
}
