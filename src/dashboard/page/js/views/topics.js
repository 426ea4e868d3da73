// Topics, domains and namespaces.
import { hasRole, callApi, pathOf } from '../api.js';
import { formatCommand, idOf, formatNumber, shortName } from '../format.js';
import { html, useState } from '../html.js';
import { refreshAll, useChanges, usePoll } from '../poll.js';
import { listTopics } from '../resources.js';
import { goTo, link, useParam } from '../state.js';
import { Table } from '../table.js';
import { Badge, Command, Dialog, Failed, Field, Head, Loaded, Search, Select, Time, showMessage } from '../ui.js';

export default function Topics() {
  const poll = usePoll(listTopics, ['topics'], 5000);
  useChanges(poll.refresh);
  const [text, setText] = useParam('q');
  const [isNew, setNew] = useState(false);
  const wanted = text.toLowerCase();
  return html`
    <${Head}
      title="Topics"
      about="What publishers send to: topics, domains of many topics, and namespaces for pull delivery."
    >
      ${hasRole('admin') && html`<button type="button" class="primary" onClick=${() => setNew(true)}>
        New topic …
      </button>`}
    <//>
    <div class="filters">
      <${Search} label="Search by name or tag" value=${text} onChange=${setText} />
    </div>
    <${Loaded}
      poll=${poll}
      empty=${
        html`
          <p>There is no topic yet. Create one here, or from a shell:</p>
          <${Command} parts=${['topics', 'create', 'orders']} />
        `
      }
    >
      ${(all) => {
        const rows = all.filter((one) =>
          `${one.id} ${JSON.stringify(one.tags ?? {})}`.toLowerCase().includes(wanted),
        );
        return html`
          <p class="faint" role="status">
            ${formatNumber(rows.length)} of ${formatNumber(all.length)}
          </p>
          <${Table}
            name="Topics"
            rows=${rows}
            id=${(row) => row.id}
            columns=${
              /** @type {import('../table.js').Columns<import('../resources.js').Topic>} */ ([
                {
                  key: 'name',
                  name: 'Name',
                  cell: (row) => html`<a data-open href=${link('topic', { id: row.id })} title=${row.id}>
                    ${shortName(row.id)}
                  </a>`,
                },
                { key: 'kind', name: 'Kind', cell: (row) => row.kind },
                { key: 'schema', name: 'Schema', cell: (row) => row.properties.inputSchema ?? '–' },
                { key: 'edition', name: 'Edition', cell: (row) => row.properties.edition ?? '–' },
                {
                  key: 'state',
                  name: 'State',
                  cell: (row) =>
                    row.properties.provisioningState === 'Succeeded' ? html`<${Badge} kind="ok">Succeeded<//>` : html`<${Badge} kind="warn">${row.properties.provisioningState}<//>`,
                },
                {
                  key: 'tags',
                  name: 'Tags',
                  cell: (row) =>
                    Object.entries(row.tags ?? {})
                      .map(([name, value]) => `${name}=${value}`)
                      .join(', '),
                },
                {
                  key: 'changed',
                  name: 'Changed',
                  cell: (row) => html`
                    <${Time} at=${row.systemData?.lastModifiedAt} />${' '}
                    ${row.systemData?.lastModifiedBy ? `by ${row.systemData.lastModifiedBy}` : ''}
                  `,
                },
              ])
            }
          />
        `;
      }}
    <//>
    ${isNew && html`<${NewTopic} onClose=${() => setNew(false)} />`}
  `;
}

const KINDS = { topics: 'topic', domains: 'domain', namespaces: 'namespace' };
const SCHEMAS = [
  ['EventGridSchema', 'Event Grid'],
  ['CloudEventSchemaV1_0', 'CloudEvents 1.0'],
];

function NewTopic({ onClose }) {
  const [kind, setKind] = useState('topics');
  const [name, setName] = useState('');
  const [schema, setSchema] = useState(SCHEMAS[0][0]);
  const [error, setError] = useState(/** @type {any} */ (null));
  const isNamespace = kind === 'namespaces';
  const line = formatCommand(
    'topics',
    'create',
    kind === 'topics' ? name || 'NAME' : `${kind}/${name || 'NAME'}`,
    ...(isNamespace ? [] : ['--input-schema', schema]),
  );
  const submit = async (event) => {
    event.preventDefault();
    const id = idOf(`${kind}/${name}`);
    const body = isNamespace ? { location: 'local' } : { location: 'local', properties: { inputSchema: schema } };
    setError(null);
    try {
      await callApi('PUT', pathOf(id), { body, match: null });
    } catch (problem) {
      setError(problem);
      return;
    }
    showMessage(`${name} created`, { line });
    refreshAll();
    onClose();
    goTo('topic', { id });
  };
  // The request has If-None-Match: *, so 412 means that the name exists.
  const isTaken = error?.status === 412;
  return html`<${Dialog} title="New topic" onClose=${onClose}>
    <form class="fields" onSubmit=${submit}>
      <${Select} label="Kind" value=${kind} onChange=${setKind} options=${Object.entries(KINDS)} />
      <${Field}
        label="Name"
        value=${name}
        required
        data-first
        error=${
          isTaken
            ? `A ${KINDS[kind]} with this name exists. Choose another one.`
            : error?.target
              ? error.message
              : null
        }
        hint="3 to 50 letters, digits and hyphens"
        onInput=${(event) => setName(event.currentTarget.value)}
      />
      ${!isNamespace && html`<${Select} label="Schema of published events" value=${schema} onChange=${setSchema} options=${SCHEMAS} />`}
      ${!isTaken && !error?.target && html`<${Failed} error=${error} />`}
      <${Command} line=${line} parts=${[]} />
      <div class="acts">
        <button type="submit" class="primary">
          Create
        </button>
        <button type="button" onClick=${onClose}>
          Cancel
        </button>
      </div>
    </form>
  <//>`;
}
