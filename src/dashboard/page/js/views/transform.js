// Transformation bench: what would be delivered instead of the newest events. Nothing is sent or changed.
import { pathOf, postJson } from '../api.js';
import { formatCommand, formatNumber, splitId, topicArgument } from '../format.js';
import { html, useState } from '../html.js';
import { isJson, indentJson } from '../json.js';
import { link } from '../state.js';
import { Table } from '../table.js';
import { Badge, Command, Failed, Select } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

/** @param {{ id: string, transform: any }} props */
export function TransformBench({ id, transform }) {
  const [last, setLast] = useState('10');
  const [report, setReport] = useState(/** @type {Schemas['TransformReport'] | null} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const { topic, name } = splitId(id);
  const test = async (event) => {
    event.preventDefault();
    setError(null);
    await postJson(`${pathOf(id)}/testTransform`, { last: Number(last), transform: transform ?? {} }).then(
      setReport,
      setError,
    );
  };
  return html`<form onSubmit=${test} aria-label="Try the transformation">
    <div class="filters">
      <${Select}
        label="Events to transform"
        value=${last}
        onChange=${setLast}
        options=${[
          ['10', 'the newest 10'],
          ['100', 'the newest 100'],
        ]}
      />
      <div class="acts">
        <button type="submit">Test the transformation</button>
      </div>
    </div>
    <${Failed} error=${error} />
    ${report && html`
      <p role="status">
        <b>
          ${formatNumber(report.tested - report.failed)} of ${formatNumber(report.tested)} are transformed
        </b>
      </p>
      <${Table}
        name="Transformed events"
        rows=${report.results}
        id=${(row) => row.id}
        columns=${
          /** @type {import('../table.js').Columns<Schemas['TransformReportLine']>} */ ([
            {
              key: 'id',
              name: 'Event',
              cell: (row) => html`<a data-open href=${link('event', { topic, id: row.id })}>
                ${row.id}
              </a>`,
            },
            {
              key: 'request',
              name: 'Request',
              cell: (row) =>
                row.error ? html`<${Badge} kind="bad">fails<//>` : [
                  row.method,
                  row.pathSuffix,
                  ...Object.entries(row.headers ?? {}).map(([key, value]) => `${key}: ${value}`),
                ]
                  .filter(Boolean)
                  .join(' · '),
            },
            {
              key: 'body',
              name: 'Body',
              wide: true,
              cell: (row) =>
                row.error ?? html`<pre class="text">
                  ${row.body === undefined ? 'the event' : isJson(row.body) ? indentJson(row.body) : row.body}
                </pre>`,
            },
          ])
        }
      />
    `}
    <${Command}
      line=${formatCommand(
        'subscriptions',
        'test-transform',
        topicArgument(topic),
        name,
        '--draft',
        'transform.json',
        '--last',
        last,
      )}
      parts=${[]}
    />
  </form>`;
}
