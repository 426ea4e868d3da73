// Search over everything: topics and event subscriptions by name, endpoints by address, and events by id in all topics.
import { get, may, withQuery } from '../api.js';
import { num, shortName, subscriptionId } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { usePoll } from '../poll.js';
import { top, topics } from '../resources.js';
import { link } from '../state.js';
import { Dialog, Failed, Field } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */
/** @typedef {{ href: string, name: string, about: string }} Hit */

/** So many of each kind are listed. */
const LISTED = 8;
/** The operator rests so long before a search, in milliseconds. */
const REST = 200;

/** The events with an id, in all topics. @returns {Promise<Schemas['Search']>} */
export const findEvent = (id, signal) => get(withQuery('/search', { id }), signal);

/** @param {string} text @param {AbortSignal} signal @returns {Promise<Hit[]>} */
async function search(text, signal) {
  const wanted = text.toLowerCase();
  const [all, lines, events] = await Promise.all([
    may('read') ? topics(signal) : [],
    top({ by: 'name', search: text, top: LISTED }, signal),
    may('read') ? findEvent(text, signal) : { events: [] },
  ]);
  const named = all.filter((topic) => topic.name.toLowerCase().includes(wanted)).slice(0, LISTED);
  return [
    ...events.events.map((event) => ({
      href: link('event', { topic: event.topic, sequence: event.sequence }),
      name: text,
      about: `event ${num(event.sequence)} of ${shortName(event.topic)}`,
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
  const poll = usePoll(wanted ? (signal) => search(wanted, signal) : null, ['search', wanted], 0);
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
          : `${num(hits.length)} found; Enter opens the first`
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
