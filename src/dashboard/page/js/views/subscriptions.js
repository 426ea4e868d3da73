// Event subscriptions: figures of all of them, searched and sorted by the server, and actions on many.
import { ACTIONS, operateAll } from '../actions.js';
import { hasRole } from '../api.js';
import {
  formatCount,
  formatDuration,
  formatMillis,
  formatNumber,
  formatPercent,
  formatRate,
  shortName,
  subscriptionId,
} from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { getTop } from '../resources.js';
import { link, createStore, useParam, useStepState, useStore } from '../state.js';
import { Middle, NO_ROWS, Table } from '../table.js';
import { Command, Condition, Head, Loaded, Search, Select, Time, ViewLink, showMessage } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']['TopLine']} TopLine */

const ORDERS = [
  ['health', 'health, worst first'],
  ['activity', 'activity'],
  ['backlog', 'backlog'],
  ['pending', 'pending'],
  ['failures', 'failures'],
  ['responseP50', 'response time, p50, slowest first'],
  ['responseP95', 'response time, p95, slowest first'],
  ['responseP99', 'response time, p99, slowest first'],
  ['inFlight', 'in flight'],
  ['name', 'name'],
];
const HEALTH = [
  ['', 'all'],
  ['unhealthy', 'all that need attention'],
  ['failing', 'failing'],
  ['suspended', 'suspended'],
  ['probing', 'probing'],
  ['held', 'held'],
  ['waiting', 'waiting'],
  ['slow', 'slow'],
  ['healthy', 'healthy'],
  ['idle', 'idle'],
];
const WINDOWS = [
  ['1m', '1 min'],
  ['1h', '1 h'],
  ['24h', '24 h'],
];
/** The page size with which all matching event subscriptions are selected: the maximum of the API. */
const SELECTED_PAGE = 500;

/** The number of rows that are read at a time, around the visible ones. */
const PAGE = 200;
const AROUND = 60;

/** Whether the columns are shown that a narrow window hides. */
const everyColumn = createStore(false);

const idOf = (/** @type {TopLine} */ line) => subscriptionId(line.topic, line.subscription);

export default function Subscriptions() {
  const [text, setText] = useParam('q');
  const [order, setOrder] = useParam('by', 'health');
  const [health, setHealth] = useParam('health');
  const [topic, setTopic] = useParam('topic');
  const [window, setWindow] = useParam('window', '1m');
  const isEvery = useStore(everyColumn);
  // An action never applies to rows that are not shown.
  const [selected, setSelected] = useStepState('selected', [text, health, topic], NO_ROWS);
  const [results, setResults] = useState(/** @type {Map<string, string>} */ (new Map()));
  const [skip, setSkip] = useState(0);
  const query = { by: order, search: text, health, topic, window };
  const poll = usePoll(
    async (signal) => ({ skip, ...(await getTop({ ...query, top: PAGE, skip: skip || '' }, signal)) }),
    ['all', query],
  );
  useChanges(poll.refresh);
  useEffect(() => {
    if (poll.at > 0) poll.refresh();
  }, [skip]);
  useEffect(() => {
    setResults(new Map());
  }, [text, health, topic]);
  const onWindow = (from, to) => {
    if (from < skip || to > skip + PAGE) setSkip(Math.max(0, Math.floor(from / AROUND) * AROUND - AROUND));
  };
  const selectAll = async (matching) => {
    const ids = [];
    for (let from = 0; from < matching; from += SELECTED_PAGE) {
      const page = await getTop({ ...query, by: 'name', top: SELECTED_PAGE, skip: from || '' });
      ids.push(...page.top.map(idOf));
    }
    setSelected(new Set(ids));
  };
  const act = async (action) => setResults(await operateAll(action, [...selected]));
  return html`
    <${Head} title="Event subscriptions" />
    <div class="filters">
      <${Search} label="Search by name or endpoint" value=${text} onChange=${setText} />
      <${Select} label="Health" value=${health} onChange=${setHealth} options=${HEALTH} />
      <${Select} label="Order by" value=${order} onChange=${setOrder} options=${ORDERS} />
      <${Select} label="Rates over" value=${window} onChange=${setWindow} options=${WINDOWS} />
      ${topic && html`<div class="acts">
        <button type="button" onClick=${() => setTopic('')}>
          Only ${shortName(topic)} <span aria-hidden="true">×</span>
        </button>
      </div>`}
    </div>
    <${Loaded}
      poll=${poll}
      isEmpty=${(data) => data.subscriptions === 0}
      empty=${
        html`
          <p>
            There is no event subscription yet.${' '}
            ${hasRole('read') && html`
              Open a <a href=${link('topics')}>topic</a> to create one, or use a shell:
            `}
          </p>
          <${Command} parts=${['subscriptions', 'create', 'orders', 'billing', '--endpoint', 'http://127.0.0.1:9090/']} />
        `
      }
    >
      ${(data) => {
        return html`
          <div class="toolbar">
            <span class="faint" role="status">
              ${formatNumber(data.matching)} of ${formatNumber(data.subscriptions)},${' '}
              ${formatNumber(data.conditions.failing)} failing, ${formatNumber(data.suspended)} suspended,${' '}
              ${formatNumber(data.held)} held
            </span>
            <label>
              <input type="checkbox" checked=${isEvery} onChange=${() => everyColumn.set(!isEvery)} /> All columns
            </label>
            ${hasRole('operate') &&
              Object.values(ACTIONS).map((action) => html`<button
                type="button"
                key=${action.verb}
                disabled=${selected.size === 0}
                title=${action.about}
                onClick=${() => act(action)}
              >
                ${action.name}
                ${selected.size > 0 ? ` ${selected.size}` : ''}
              </button>`)}
          </div>
          ${selected.size > 0 && selected.size < data.matching && html`<p class="hint">
            ${formatCount(selected.size, 'is', 'are')} selected.${' '}
            <button
              type="button"
              class="small"
              onClick=${() =>
                selectAll(data.matching).catch((error) => showMessage(error.message, { kind: 'bad' }))
              }
            >
              Select all ${formatNumber(data.matching)} that match
            </button>
          </p>`}
          ${data.missingShards && html`<p class="notice" role="status">
            Without the event subscriptions of shards that have no owner: ${data.missingShards.join(', ')}.
          </p>`}
          ${data.matching === 0 && html`<div class="empty">No event subscription matches.</div>`}
          <${Table}
            name="Event subscriptions"
            hold=${JSON.stringify(query)}
            isEvery=${isEvery}
            rows=${data.top}
            first=${data.skip}
            total=${data.matching}
            onWindow=${onWindow}
            id=${idOf}
            sort=${order}
            onSort=${setOrder}
            selected=${selected}
            onSelect=${hasRole('operate') ? setSelected : undefined}
            columns=${
              /** @type {import('../table.js').Columns<TopLine>} */ ([
                {
                  key: 'name',
                  name: 'Name',
                  sort: true,
                  rank: 'sticky',
                  cell: (line) => html`<a data-open href=${link('subscription', { id: idOf(line) })}>
                    ${line.subscription}
                  </a>`,
                },
                { key: 'health', name: 'Condition', sort: true, cell: (line) => html`<${Condition} line=${line} />` },
                {
                  key: 'topic',
                  name: 'Topic',
                  rank: 'mid',
                  cell: (line) => html`<${ViewLink} href=${link('topic', { id: line.topic })} title=${line.topic}>
                    ${shortName(line.topic)}
                  <//>`,
                },
                {
                  key: 'endpoint',
                  name: 'Endpoint',
                  rank: 'mid',
                  cell: (line) =>
                    line.endpoint ? html`<${Middle} text=${line.endpoint.replace(/^https?:\/\//, '')} />` : 'pull',
                },
                {
                  key: 'activity',
                  name: 'Delivered',
                  num: true,
                  sort: true,
                  cell: (line) => formatRate(line.deliveredPerSecond),
                },
                { key: 'success', name: 'Success', num: true, cell: (line) => formatPercent(line.successShare) },
                {
                  key: 'failures',
                  name: 'Failed',
                  num: true,
                  sort: true,
                  rank: 'low',
                  cell: (line) => formatRate(line.failedPerSecond),
                },
                {
                  key: 'responseP50',
                  name: 'p50',
                  num: true,
                  sort: true,
                  rank: 'low',
                  cell: (line) => formatMillis(line.responseP50Milliseconds),
                },
                {
                  key: 'responseP95',
                  name: 'p95',
                  num: true,
                  sort: true,
                  rank: 'low',
                  cell: (line) => formatMillis(line.responseP95Milliseconds),
                },
                {
                  key: 'responseP99',
                  name: 'p99',
                  num: true,
                  sort: true,
                  cell: (line) => formatMillis(line.responseP99Milliseconds),
                },
                {
                  key: 'backlog',
                  name: 'Backlog',
                  num: true,
                  sort: true,
                  cell: (line) => formatNumber(line.backlog),
                },
                {
                  key: 'age',
                  name: 'Oldest',
                  num: true,
                  rank: 'low',
                  cell: (line) => formatDuration(line.oldestUnreadAgeSeconds),
                },
                {
                  key: 'pending',
                  name: 'Pending',
                  num: true,
                  sort: true,
                  rank: 'mid',
                  cell: (line) => formatNumber(line.pending),
                },
                { key: 'due', name: 'Next due', rank: 'low', cell: (line) => html`<${Time} at=${line.nextDue} />` },
                {
                  key: 'inFlight',
                  name: 'In flight',
                  num: true,
                  sort: true,
                  rank: 'low',
                  cell: (line) => `${formatNumber(line.inFlight)}/${formatNumber(line.concurrency)}`,
                },
                {
                  key: 'dead',
                  name: 'Dead letters',
                  num: true,
                  rank: 'low',
                  cell: (line) => formatNumber(line.deadLettered),
                },
                results.size > 0 && {
                  key: 'result',
                  name: 'Last action',
                  cell: (line) => results.get(idOf(line)) ?? '',
                },
              ])
            }
          />
          <${Command} parts=${['top', '--by', order.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)]} />
        `;
      }}
    <//>
  `;
}
