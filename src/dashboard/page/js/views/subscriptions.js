// Event subscriptions: figures of all of them, searched and sorted by the server, and actions on many.
import { ACTIONS, operateAll } from '../actions.js';
import { may } from '../api.js';
import { duration, num, percent, rate, shortName, subscriptionId } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { top } from '../resources.js';
import { link, useParam, useParams } from '../state.js';
import { Table } from '../table.js';
import { Command, Head, Health, Loaded, Search, Select, Time } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']['TopLine']} TopLine */

const ORDERS = [
  ['health', 'health, worst first'],
  ['activity', 'activity'],
  ['backlog', 'backlog'],
  ['pending', 'pending'],
  ['failures', 'failures'],
  ['inFlight', 'in flight'],
  ['name', 'name'],
];
const HEALTH = [['', 'all'], ['unhealthy', 'unhealthy or held'], ['healthy', 'healthy'], ['suspended', 'suspended'], ['probing', 'probing'], ['held', 'held']];

/** So many rows are read at a time, around those that are looked at. */
const PAGE = 200;
const AROUND = 60;

const idOf = (/** @type {TopLine} */ line) => subscriptionId(line.topic, line.subscription);

export default function Subscriptions() {
  const [text, setText] = useParam('q');
  const [order, setOrder] = useParam('by', 'health');
  const [health, setHealth] = useParam('health');
  const [topic, setTopic] = useParam('topic');
  const params = useParams();
  const [selected, select] = useState(/** @type {Set<string>} */ (new Set()));
  const [results, setResults] = useState(/** @type {Map<string, string>} */ (new Map()));
  const [skip, setSkip] = useState(0);
  const query = { by: order, search: text, health, topic };
  const poll = usePoll(async (signal) => ({ skip, ...(await top({ ...query, top: PAGE, skip: skip || '' }, signal)) }), ['all', query]);
  useChanges(poll.refresh);
  useEffect(() => {
    if (poll.at > 0) poll.refresh();
  }, [skip]);
  useEffect(() => {
    if (params.get('focus') === 'search') /** @type {HTMLElement | null} */ (document.querySelector('#main [data-search]'))?.focus();
  }, []);
  const onWindow = (from, to) => {
    if (from < skip || to > skip + PAGE) setSkip(Math.max(0, Math.floor(from / AROUND) * AROUND - AROUND));
  };
  const act = async (action) => setResults(await operateAll(action, [...selected]));
  return html`
    <${Head} title="Event subscriptions" />
    <div class="filters">
      <${Search} label="Search by name or endpoint" value=${text} onChange=${setText} />
      <${Select} label="Health" value=${health} onChange=${setHealth} options=${HEALTH} />
      <${Select} label="Order by" value=${order} onChange=${setOrder} options=${ORDERS} />
      ${topic && html`<div class="acts"><button type="button" onClick=${() => setTopic('')}>Only ${shortName(topic)} <span aria-hidden="true">×</span></button></div>`}
    </div>
    <${Loaded} poll=${poll} isEmpty=${(data) => data.subscriptions === 0} empty=${html`<p>There is no event subscription yet. Open a <a href=${link('topics')}>topic</a> to create one, or use a shell:</p><${Command} parts=${['subscriptions', 'create', 'orders', 'billing', '--endpoint', 'http://127.0.0.1:9090/']} />`}>
      ${(data) => {
        return html`
          <div class="toolbar">
            <span class="faint" role="status">${num(data.matching)} of ${num(data.subscriptions)}, ${num(data.suspended)} suspended, ${num(data.held)} held</span>
            ${may('operate') && Object.values(ACTIONS).map((action) => html`<button type="button" key=${action.verb} disabled=${selected.size === 0} title=${action.about} onClick=${() => act(action)}>${action.name}${selected.size > 0 ? ` ${selected.size}` : ''}</button>`)}
          </div>
          ${data.missingShards && html`<p class="notice" role="status">Without the event subscriptions of shards that have no owner: ${data.missingShards.join(', ')}.</p>`}
          ${data.matching === 0 && html`<div class="empty">No event subscription matches.</div>`}
          <${Table} name="Event subscriptions" rows=${data.top} first=${data.skip} total=${data.matching} onWindow=${onWindow} id=${idOf} sort=${order} onSort=${setOrder}
            selected=${selected} onSelect=${may('operate') ? select : undefined}
            columns=${/** @type {import('../table.js').Columns<TopLine>} */ ([
              { key: 'name', name: 'Name', sort: true, cell: (line) => html`<a data-open href=${link('subscription', { id: idOf(line) })}>${line.subscription}</a>` },
              { key: 'topic', name: 'Topic', cell: (line) => html`<a href=${link('topic', { id: line.topic })} title=${line.topic}>${shortName(line.topic)}</a>` },
              { key: 'endpoint', name: 'Endpoint', cell: (line) => (line.endpoint ? html`<span title=${line.endpoint}>${line.endpoint.replace(/^https?:\/\//, '')}</span>` : 'pull') },
              { key: 'health', name: 'Health', sort: true, cell: (line) => html`<${Health} health=${line.health} heldBy=${line.heldBy} />` },
              { key: 'activity', name: 'Delivered', num: true, sort: true, cell: (line) => rate(line.deliveredPerSecond) },
              { key: 'success', name: 'Success', num: true, cell: (line) => percent(line.successShare) },
              { key: 'failures', name: 'Failed', num: true, sort: true, cell: (line) => rate(line.failedPerSecond) },
              { key: 'backlog', name: 'Backlog', num: true, sort: true, cell: (line) => num(line.backlog) },
              { key: 'age', name: 'Oldest', num: true, cell: (line) => duration(line.oldestUnreadAgeSeconds) },
              { key: 'pending', name: 'Pending', num: true, sort: true, cell: (line) => num(line.pending) },
              { key: 'due', name: 'Next due', cell: (line) => html`<${Time} at=${line.nextDue} />` },
              { key: 'inFlight', name: 'In flight', num: true, sort: true, cell: (line) => `${num(line.inFlight)}/${num(line.concurrency)}` },
              { key: 'dead', name: 'Dead letters', num: true, cell: (line) => num(line.deadLettered) },
              results.size > 0 && { key: 'result', name: 'Last action', cell: (line) => results.get(idOf(line)) ?? '' },
            ])} />
          <${Command} parts=${['top', '--by', order.replace('inFlight', 'in-flight')]} />`;
      }}
    <//>
  `;
}
