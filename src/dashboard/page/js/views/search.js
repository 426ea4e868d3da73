// Search over everything: topics and event subscriptions by name, endpoints by address, and events by id in all topics.
import { getJson, hasRole, withQuery } from '../api.js';
import { formatNumber, shortName, subscriptionId } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { usePoll } from '../poll.js';
import { getTop, listTopics } from '../resources.js';
import { link } from '../state.js';
import { Dialog, Failed, Field } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */
/** @typedef {{ href: string, name: string, about: string }} Hit */

/** The number of hits of each kind that are listed. */
const LISTED = 8;
/** The pause in typing after which a search begins, in milliseconds. */
const REST = 200;

/** The events with an id, in all topics. @returns {Promise<Schemas['Search']>} */
export const findEvent = (id, signal) => getJson(withQuery('/search', { id }), signal);

/** @param {string} text @param {AbortSignal} signal @returns {Promise<Hit[]>} */
async function searchServer(text, signal) {
  const wanted = text.toLowerCase();
  const [all, lines, events] = await Promise.all([
    hasRole('read') ? listTopics(signal) : [],
    getTop({ by: 'name', search: text, top: LISTED }, signal),
    hasRole('read') ? findEvent(text, signal) : { events: [] },
  ]);
  const named = all.filter((topic) => topic.name.toLowerCase().includes(wanted)).slice(0, LISTED);
  return [
    ...events.events.map((event) => ({
      href: link('event', { topic: event.topic, sequence: event.sequence }),
      name: text,
      about: `event ${formatNumber(event.sequence)} of ${shortName(event.topic)}`,
    })),
    ...named.map((topic) => ({ href: link('topic', { id: topic.id }), name: shortName(topic.id), about: topic.kind })),
    ...lines.top.map((line) => ({
      href: link('subscription', { id: subscriptionId(line.topic, line.subscription) }),
      name: line.subscription,
      about: `event subscription of ${shortName(line.topic)} ${line.endpoint ?? ''}`,
    })),
  ];
}

export default function SearchDialog({ onClose }) {
  const [text, setText] = useState('');
  const [wanted, setWanted] = useState('');
  const poll = usePoll(wanted ? (signal) => searchServer(wanted, signal) : null, ['search', wanted], 0);
  useEffect(() => {
    const timer = setTimeout(() => setWanted(text.trim()), REST);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    addEventListener('hashchange', onClose);
    return () => removeEventListener('hashchange', onClose);
  }, []);
  const hits = poll.data ?? [];
  const submit = (event) => {
    event.preventDefault();
    if (hits.length > 0) location.hash = hits[0].href;
  };
  return html`<${Dialog} title="Search everything" onClose=${onClose}>
    <form onSubmit=${submit}>
      <${Field}
        label="Event id, name or endpoint"
        type="search"
        data-first
        value=${text}
        onInput=${(event) => setText(event.currentTarget.value)}
      />
    </form>
    <${Failed} error=${poll.error} />
    <p class="hint" role="status">
      ${wanted && poll.data
        ? hits.length === 0
          ? 'Nothing has this name or id.'
          : `${formatNumber(hits.length)} found; Enter opens the first`
        : ''}
    </p>
    <ul class="plain" data-list>
      ${hits.map(({ href, name, about }) => html`<li key=${href} data-row>
        <a data-open href=${href}>
          <b>${name}</b>
        </a>${' '}
        <span class="faint">${about}</span>
      </li>`)}
    </ul>
  <//>`;
}
