// The event types of a topic, and the page of one: its versions, schemas and examples.
import { removeResource } from '../actions.js';
import { getJson, hasRole, pathOf } from '../api.js';
import { formatCommand, shortName, topicArgument } from '../format.js';
import { html, useState } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { goTo, link, useParams } from '../state.js';
import { Table } from '../table.js';
import { Badge, Command, Head, Loaded, Payload } from '../ui.js';
import { TestEvent } from './browse.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

export function EventTypes({ topic }) {
  const path = `${pathOf(topic)}/eventTypes`;
  const poll = usePoll(
    (signal) => /** @type {Promise<{ value: Schemas['DeclaredEventType'][] }>} */ (getJson(path, signal)),
    ['event types', topic],
    30000,
  );
  useChanges(poll.refresh);
  return html`
    <h2>Event types</h2>
    <${Loaded}
      poll=${poll}
      isEmpty=${(page) => page.value.length === 0}
      empty=${
        html`
          <p>No event type is declared.</p>
          <${Command} parts=${['event-types', 'put', topicArgument(topic), 'TYPE', '--body', 'type.json']} />
        `
      }
    >
      ${(page) => html`<${Table}
        name="Event types"
        rows=${page.value}
        id=${(row) => row.id}
        columns=${
          /** @type {import('../table.js').Columns<Schemas['DeclaredEventType']>} */ ([
            {
              key: 'name',
              name: 'Name',
              cell: (row) => html`<a data-open href=${link('event-type', { topic, type: row.name })}>
                ${row.name}
              </a>`,
            },
            {
              key: 'versions',
              name: 'Versions',
              cell: (row) => Object.keys(row.properties.versions ?? {}).join(', ') || '–',
            },
            { key: 'description', name: 'Description', cell: (row) => row.properties.description ?? '–' },
            {
              key: 'state',
              name: 'State',
              cell: (row) => row.properties.deprecated && html`<${Badge} kind="warn">deprecated<//>`,
            },
          ])
        }
      />`}
    <//>
  `;
}

export default function EventType() {
  const params = useParams();
  const [topic, type] = [params.get('topic') ?? '', params.get('type') ?? ''];
  const path = `${pathOf(topic)}/eventTypes/${encodeURIComponent(type)}`;
  const poll = usePoll(
    (signal) => /** @type {Promise<Schemas['DeclaredEventType']>} */ (getJson(path, signal)),
    ['event type', path],
    30000,
  );
  const owner = usePoll((signal) => getJson(pathOf(topic), signal), ['topic', topic], 30000);
  const [example, setExample] = useState(/** @type {{ type: string, version: string, data: any } | null} */ (null));
  const removal = formatCommand('event-types', 'delete', topicArgument(topic), type, '--yes');
  const gone = async () => {
    if (await removeResource(`${topic}/eventTypes/${type}`, type, 'Its events are no longer checked.', removal))
      goTo('topic', { id: topic });
  };
  return html`
    <${Head}
      title=${type}
      crumbs=${[
        ['Topics', link('topics')],
        [shortName(topic), link('topic', { id: topic })],
      ]}
    >
      <a href=${link('event', { topic, type })}>Events</a>
      ${hasRole('admin') && html`<button type="button" class="danger" onClick=${gone}>
        Delete …
      </button>`}
    <//>
    <${Loaded} poll=${poll}>
      ${(data) => html`
        ${data.properties.description && html`<p class="about">${data.properties.description}</p>`}
        ${data.properties.deprecated && html`<p>
          <${Badge} kind="warn">deprecated<//>
        </p>`}
        ${data.properties.documentationUrl && html`<p>
          Documentation: <code>${data.properties.documentationUrl}</code>
        </p>`}
        ${example && html`<${TestEvent}
          topic=${topic}
          schema=${owner.data?.properties.inputSchema}
          example=${example}
          onClose=${() => setExample(null)}
        />`}
        ${Object.entries(data.properties.versions ?? {}).map(([version, one]) => html`<section class="panel" key=${version} aria-label=${`Version ${version}`}>
          <h2>
            Version ${version} ${one.deprecated && html`<${Badge} kind="warn">deprecated<//>`}
          </h2>
          ${one.schema && html`
            <h3>JSON Schema</h3>
            <${Payload} text=${JSON.stringify(one.schema, null, 2)} name=${`${type}-${version}.schema.json`} />
          `}
          ${one.examples?.map((value, index) => html`
            <h3>Example ${index + 1}</h3>
            <${Payload} text=${JSON.stringify(value, null, 2)} name=${`${type}-${version}-${index + 1}.json`} />
            ${hasRole('operate') && html`<button type="button" onClick=${() => setExample({ type, version, data: value })}>
              Publish this example …
            </button>`}
          `)}
        </section>`)}
        <${Command} parts=${['event-types', 'show', topicArgument(topic), type]} />
      `}
    <//>
  `;
}
