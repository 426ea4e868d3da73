// The resources of the server, as several views list them.
import { readAllPages, getJson, pathOf, withQuery } from './api.js';

/** @typedef {import('./openapi').components['schemas']} Schemas */
/** Every state of an endpoint, with what some of them have. @typedef {{ state: string, failures?: number, cause?: string, since?: string, nextProbe?: string, consecutiveSuspensions?: number }} Health */
/** @typedef {{ id: string, kind: 'topic' | 'domain' | 'namespace' | 'domain topic' | 'namespace topic', name: string, properties: any, tags?: any, systemData?: any, sku?: any }} Topic */

const listOfKinds = async (kinds, signal) => {
  const accounts = (await getJson('/subscriptions', signal)).value;
  const lists = accounts.flatMap(({ subscriptionId }) =>
    kinds.map((kind) =>
      readAllPages(
        `/subscriptions/${encodeURIComponent(subscriptionId)}/providers/Microsoft.EventGrid/${kind}`,
        signal,
        5000,
      ),
    ),
  );
  return (await Promise.all(lists)).flat();
};

const KINDS = { topics: 'topic', domains: 'domain', namespaces: 'namespace' };
const kindOf = (type) => KINDS[type.split('/').at(-1)] ?? 'topic';

/**
 * All topics, domains and namespaces.
 * @returns {Promise<Topic[]>}
 */
export async function listTopics(signal) {
  const found = await listOfKinds(['topics', 'domains', 'namespaces'], signal);
  return found.map((one) => ({ ...one, kind: kindOf(one.type) }));
}

/**
 * The properties of an event subscription with its destinations in one place, also where they have an identity.
 * @template T
 * @param {T} all
 * @returns {T}
 */
export function withOneDestination(all) {
  const {
    deliveryWithResourceIdentity: delivery,
    deadLetterWithResourceIdentity: letters,
    ...properties
  } = /** @type {any} */ (all);
  return {
    ...properties,
    ...(delivery && { destination: delivery.destination }),
    ...(letters && { deadLetterDestination: letters.deadLetterDestination }),
  };
}

/**
 * The properties as `withOneDestination` returns them, with the delivery settings of a namespace's event subscription on the same level.
 * @returns {any}
 */
export function flattenProperties(all) {
  const { deliveryConfiguration, ...properties } = withOneDestination(all);
  const { deliveryMode, push, queue } = deliveryConfiguration ?? {};
  const { deadLetterDestinationWithResourceIdentity: letters, ...delivery } = withOneDestination(push ?? queue ?? {});
  return {
    ...properties,
    ...delivery,
    ...(deliveryMode && { deliveryMode }),
    ...(letters && { deadLetterDestination: letters.deadLetterDestination }),
  };
}

/** The destination of an event subscription. */
export const destinationOf = (all) => flattenProperties(all).destination;

/** Where an event subscription delivers to: the address of a webhook, or the kind and the resource of another destination. */
export function addressOf(all) {
  const { destination, deliveryMode } = flattenProperties(all);
  const { endpointType, properties } = destination ?? {};
  return (
    properties?.endpointBaseUrl ??
    ([endpointType, properties?.resourceId].filter(Boolean).join(' ') || deliveryMode || '–')
  );
}

/** The topics of a domain or a namespace. */
export const listInnerTopics = (id, signal) => readAllPages(`${pathOf(id)}/topics`, signal, 5000);

/** The first event subscriptions of a topic. */
export const subscriptionsOf = (id, signal) => readAllPages(`${pathOf(id)}/eventSubscriptions`, signal, 1000);

/** @returns {Promise<Schemas['Top']>} */
export const getTop = (query, signal) => getJson(withQuery('/top', query), signal);

/** @returns {Promise<Schemas['Status']>} */
export const statusOf = (id, signal) => getJson(`${pathOf(id)}/status`, signal);

/** @returns {Promise<Schemas['Readiness']>} */
export const getReadiness = (signal) =>
  getJson('/readyz', signal).catch((error) => {
    if (error.status !== 503) throw error;
    return { ready: false, phase: 'recovering', journal: 'unknown', lostEvents: 0, problems: [error.message] };
  });
