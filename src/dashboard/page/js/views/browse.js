// The newest events of a topic, the text of each, and a form that publishes a test event.
import { runAction } from '../actions.js';
import { callApi, getJson, pathOf, withQuery } from '../api.js';
import { formatBytes, formatCommand, formatNumber, topicArgument } from '../format.js';
import { html, useState } from '../html.js';
import { isJson, indentJson } from '../json.js';
import { useChanges, usePoll } from '../poll.js';
import { link, setParams, useParam } from '../state.js';
import { Table } from '../table.js';
import { Command, Dialog, Failed, Field, Loaded, Loading, Payload, Search, Time } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

export function Browse({ topic }) {
  const [type, setType] = useParam('type');
  const [subject, setSubject] = useParam('subject');
  const [before, setBefore] = useParam('before');
  const path = withQuery(`${pathOf(topic)}/events`, { type, subject, before, top: 100 });
  const poll = usePoll(
    (signal) => /** @type {Promise<Schemas['EventList']>} */ (getJson(path, signal)),
    ['events', path],
  );
  useChanges(poll.refresh);
  const choose = (set) => (value) => {
    setParams({ before: '' });
    set(value);
  };
  return html`
    <h2>Newest events</h2>
    <div class="filters">
      <${Search} label="Type" value=${type} onChange=${choose(setType)} />
      <${Search} label="Subject contains" value=${subject} onChange=${choose(setSubject)} />
    </div>
    <${Loaded}
      poll=${poll}
      isEmpty=${(page) => page.events.length === 0 && !page.before}
      empty="No event is stored, or none matches. The log keeps events until they are delivered everywhere, or for journal.retention."
    >
      ${(/** @type {Schemas['EventList']} */ page) => html`
        <${Table}
          name="Newest events"
          hold=${path}
          rows=${page.events}
          id=${(row) => `${row.shard ?? ''}:${row.sequence}`}
          columns=${
            /** @type {import('../table.js').Columns<Schemas['EventListLine']>} */ ([
              {
                key: 'sequence',
                name: 'Sequence',
                num: true,
                cell: (row) => html`<a
                  data-open
                  aria-label=${`Event ${formatNumber(row.sequence)}`}
                  href=${link(
                    'event',
                    row.shard === undefined ? { topic, sequence: row.sequence } : { topic, id: row.id },
                  )}
                >
                  ${formatNumber(row.sequence)}
                </a>`,
              },
              { key: 'at', name: 'Published', cell: (row) => html`<${Time} at=${row.at} />` },
              { key: 'type', name: 'Type', cell: (row) => row.eventType },
              { key: 'subject', name: 'Subject', cell: (row) => row.subject },
              { key: 'id', name: 'Event id', cell: (row) => html`<code>${row.id}</code>` },
              { key: 'bytes', name: 'Size', num: true, cell: (row) => formatBytes(row.bytes) },
            ])
          }
        />
        <div class="toolbar">
          <button type="button" disabled=${!before} onClick=${() => setBefore('')}>
            Newest
          </button>
          <button type="button" disabled=${!page.before} onClick=${() => setBefore(page.before ?? '')}>
            Older
          </button>
        </div>
      `}
    <//>
  `;
}

/** The event as it is stored, read on request only. */
export function EventText({ topic, sequence, shard = undefined }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Payload</summary>
    ${isOpen && html`<${Text} topic=${topic} sequence=${sequence} shard=${shard} />`}
  </details>`;
}

function Text({ topic, sequence, shard }) {
  const path = withQuery(`${pathOf(topic)}/events/${sequence}`, { shard });
  const poll = usePoll((signal) => callApi('GET', path, { signal, text: true }), ['event', path], 0);
  if (poll.error) return html`<${Failed} error=${poll.error} retry=${poll.refresh} />`;
  if (poll.data === undefined) return html`<${Loading} />`;
  return html`<${Payload} text=${isJson(poll.data) ? indentJson(poll.data) : poll.data} name=${`event-${sequence}.json`} />`;
}

/** @param {string} schema @param {{ type: string, version: string, data: any }} [of] */
const sampleEvent = (schema, of = { type: 'Test', version: '1', data: {} }) => {
  const id = `test-${Date.now().toString(36)}`;
  const time = new Date().toISOString();
  if (schema === 'CloudEventSchemaV1_0')
    return { specversion: '1.0', id, source: '/dashboard', type: of.type, subject: 'test', time, data: of.data };
  return { id, eventType: of.type, subject: 'test', dataVersion: of.version, eventTime: time, data: of.data };
};

/** Publishes one event, which every event subscription receives whose filter matches. */
export function TestEvent({ topic, schema, onClose, example = undefined }) {
  const [text, setText] = useState(() => JSON.stringify(sampleEvent(schema, example), null, 2));
  const line = `${formatCommand('publish', topicArgument(topic))} event.json`;
  const submit = async (event) => {
    event.preventDefault();
    const trimmed = text.trim();
    const isDone = await runAction(
      () =>
        callApi('POST', `${pathOf(topic)}/publish`, { body: trimmed.startsWith('[') ? trimmed : `[${trimmed}]` }).then(
          () => true,
        ),
      'Event published',
      line,
    );
    if (isDone) onClose();
  };
  return html`<${Dialog} title="Publish a test event" onClose=${onClose}>
    <form class="fields" onSubmit=${submit}>
      <p class="about">It is a real event: every event subscription whose filter matches receives it.</p>
      <${Field} label="Event (JSON)">
        ${(a11y) => html`<textarea
          ...${a11y}
          rows="12"
          spellcheck=${false}
          value=${text}
          onInput=${(event) => setText(event.currentTarget.value)}
        ></textarea>`}
      <//>
      <${Command} line=${line} parts=${[]} />
      <div class="acts">
        <button type="submit" class="primary">
          Publish
        </button>
        <button type="button" onClick=${onClose}>
          Cancel
        </button>
      </div>
    </form>
  <//>`;
}
