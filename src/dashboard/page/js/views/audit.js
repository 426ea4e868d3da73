// The audit trail: what operators changed, revealed, and were refused.
import { getJson, withQuery } from '../api.js';
import { formatCommand, formatNumber, shortName, splitId } from '../format.js';
import { html } from '../html.js';
import { usePoll } from '../poll.js';
import { link, setParams, useParam } from '../state.js';
import { Opener, Pages, Table } from '../table.js';
import { Badge, Command, Diff, Facts, Head, Loaded, Search, Select, Time } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

export default function Audit() {
  const [operator, setOperator] = useParam('operator');
  const [text, setText] = useParam('q');
  const [refused, setRefused] = useParam('refused');
  const [opened, setOpened] = useParam('open');
  const [place] = useParam('after');
  const query = { operator, search: text, refused, top: 100, continue: place };
  const poll = usePoll(
    (signal) => /** @type {Promise<Schemas['AuditPage']>} */ (getJson(withQuery('/audit', query), signal)),
    ['audit', query],
  );
  const choose = (set) => (value) => {
    setParams({ after: '', open: '' });
    set(value);
  };
  const isFiltered = operator || text || refused;
  const flags = [operator && ['--operator', operator], text && ['--search', text], refused && ['--refused']]
    .filter(Boolean)
    .flat();
  return html`
    <${Head} title="Audit trail" about="What operators changed, revealed and tried to do." />
    <div class="filters">
      <${Search} label="Search by operation, path or request id" value=${text} onChange=${choose(setText)} />
      <${Search}
        label="Operator"
        value=${operator}
        placeholder="admin, or the name of a token"
        onChange=${choose(setOperator)}
      />
      <${Select}
        label="Result"
        value=${refused}
        onChange=${choose(setRefused)}
        options=${[
          ['', 'all'],
          ['true', 'refused'],
        ]}
      />
    </div>
    <${Loaded}
      poll=${poll}
      isEmpty=${(page) => page.value.length === 0 && !page.continue && !place}
      empty=${isFiltered ? 'No operation matches.' : 'No operation is recorded yet. Reading is not recorded.'}
    >
      ${(/** @type {Schemas['AuditPage']} */ page) => html`
        <${Table}
          name="Operations"
          rows=${page.value}
          id=${(row) => `${row.number}`}
          opened=${opened}
          details=${(row) => html`<${Entry} row=${row} />`}
          columns=${
            /** @type {import('../table.js').Columns<Schemas['AuditEntry']>} */ ([
              {
                key: 'at',
                name: 'Time',
                cell: (row) => html`<${Opener}
                  isOpen=${opened === `${row.number}`}
                  onClick=${() => setOpened(opened === `${row.number}` ? '' : `${row.number}`)}
                >
                  <${Time} at=${row.at} />
                <//>`,
              },
              {
                key: 'operator',
                name: 'Operator',
                cell: (row) => row.operator ?? html`<span class="faint">nobody</span>`,
              },
              {
                key: 'status',
                name: 'Result',
                cell: (row) => html`<${Badge} kind=${row.status < 400 ? 'ok' : 'bad'}>
                  ${row.status < 400 ? 'done' : 'refused'} ${row.status}
                <//>`,
              },
              { key: 'method', name: 'Method', cell: (row) => row.method },
              { key: 'what', name: 'Operation', cell: (row) => shortName(row.path) },
              { key: 'changes', name: 'Changes', num: true, cell: (row) => formatNumber(row.changes.length) },
              { key: 'from', name: 'From', cell: (row) => row.from ?? '' },
            ])
          }
        />
        <${Pages} next=${page.continue} />
      `}
    <//>
    <${Command} parts=${['audit', ...flags]} />
  `;
}

/**
 * The details of one entry.
 * @param {{ row: Schemas['AuditEntry'] }} props
 */
function Entry({ row }) {
  const id = /^.*\/eventSubscriptions\/[^/]+/i.exec(row.path)?.[0];
  return html`
    <${Facts}
      rows=${[
        ['Time', html`<${Time} at=${row.at} />`],
        [
          'Request',
          html`<code>
            ${row.method} ${row.path}
          </code>`,
        ],
        ['Request id', html`<code>${row.requestId}</code>`],
        row.identityType && ['Identity', row.identityType],
        row.suppressed > 0 && [
          'Not recorded before it',
          `${formatNumber(row.suppressed)} attempts of the same identity`,
        ],
        id && ['Event subscription', html`<a href=${link('subscription', { id })}>${splitId(id).name}</a>`],
      ]}
    />
    ${row.changes.length > 0 && html`<${Diff} changes=${row.changes} />`}
  `;
}
