// Charts of the figures of the server, a topic or an event subscription over time.
import { getJson, withQuery } from '../api.js';
import { Chart } from '../charts.js';
import { formatTime, formatNumber, shortName } from '../format.js';
import { html } from '../html.js';
import { usePoll } from '../poll.js';
import { setParams, useParam } from '../state.js';
import { Table } from '../table.js';
import { Failed } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']['History']} Course */
/** @typedef {{ name: string, values: (number | null)[], kind?: string }} Series */
/** @typedef {{ title: string, unit: string, series: Series[] }} ChartData */

/** Name, text and seconds. @type {[string, string, number][]} */
const RANGES = [
  ['10m', '10 min', 600],
  ['3h', '3 h', 10800],
  ['24h', '24 h', 86400],
];

/** @param {{ topic?: string, subscription?: string }} props the server's without them */
export function History({ topic = '', subscription = '' }) {
  const [range, setRange] = useParam('range', '10m');
  const [from] = useParam('from');
  const [to] = useParam('to');
  const [shown, setShown] = useParam('as', 'charts');
  const path = withQuery('/history', { range, topic, subscription, destinations: !subscription || undefined });
  const poll = usePoll(
    (signal) => /** @type {Promise<Course>} */ (getJson(path, signal)),
    ['history', path],
    range === '10m' ? 5000 : 30000,
  );
  const data = poll.data;
  const choose = (next) => {
    setParams({ from: '', to: '' });
    setRange(next);
  };
  // The finest resolution that reaches back far enough.
  const zoom = (first, last) => {
    const age = Date.now() / 1000 - first;
    setParams({ from: first, to: last, range: (RANGES.find(([, , seconds]) => age < seconds) ?? RANGES[2])[0] });
  };
  return html`<section aria-label="Course">
    <div class="toolbar">
      <span class="acts" role="group" aria-label="Range">
        ${RANGES.map(([id, text]) => html`<button
          type="button"
          class="small"
          key=${id}
          aria-pressed=${range === id && !from}
          onClick=${() => choose(id)}
        >
          ${text}
        </button>`)}
      </span>
      ${from && html`<button type="button" class="small" onClick=${() => setParams({ from: '', to: '' })}>
        ${formatTime(Number(from) * 1000)} to ${formatTime(Number(to) * 1000).slice(11)}${' '}
        <span aria-hidden="true">×</span>
      </button>`}
      <button
        type="button"
        class="small"
        aria-pressed=${shown === 'table'}
        onClick=${() => setShown(shown === 'table' ? 'charts' : 'table')}
      >
        Table
      </button>
      ${!from && shown !== 'table' && html`<span class="faint">Drag over a chart to zoom.</span>`}
    </div>
    <${Failed} error=${poll.error} retry=${poll.refresh} />
    ${data && !data.recorded && html`<p class="hint below">
      The course is recorded for the most active ones only, as many as have metrics of their own.
    </p>`}
    ${data?.recorded && html`<${Figures}
      data=${data}
      isOne=${Boolean(subscription)}
      isTable=${shown === 'table'}
      window=${from ? [Number(from), Number(to)] : null}
      onRange=${zoom}
    />`}
  </section>`;
}

/** @param {{ data: Course, isOne: boolean, isTable: boolean, window: number[] | null, onRange: (from: number, to: number) => void }} props */
function Figures({ data, isOne, isTable, window, onRange }) {
  const start = Date.parse(data.from) / 1000;
  const all = data.published.map((_, index) => start + index * data.stepSeconds);
  const isInside = (_, index) =>
    !window || (all[index] >= window[0] - data.stepSeconds / 2 && all[index] <= window[1] + data.stepSeconds / 2);
  const xs = all.filter(isInside);
  const charts = chartsOf(data, isOne).map(({ series, ...chart }) => ({
    ...chart,
    series: series.map((one) => ({ ...one, values: one.values.filter(isInside) })),
  }));
  if (xs.length === 0) return html`<div class="empty">Nothing is recorded for this time. Choose another range.</div>`;
  if (isTable) return html`<${FigureTable} xs=${xs} charts=${charts} />`;
  return html`<div class="charts">
    ${charts.map((chart) => html`<div class="panel" key=${chart.title}>
      <${Chart} ...${chart} xs=${xs} onRange=${onRange} />
    </div>`)}
  </div>`;
}

/** @param {Course} data @param {boolean} isOne @returns {ChartData[]} */
function chartsOf(data, isOne) {
  const perSecond = (/** @type {(number | null)[]} */ values) =>
    values.map((value) => (value === null ? null : value / data.stepSeconds));
  const other = data.failedRequests.map((failed, index) =>
    failed === null
      ? null
      : Math.max(0, failed - data.refusedRequests[index] - data.busyRequests[index] - data.unansweredRequests[index]),
  );
  const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);
  const destinations = [...(data.destinations ?? [])].sort((a, b) => sum(b.delivered) - sum(a.delivered)).slice(0, 4);
  return [
    {
      title: 'Events',
      unit: '/s',
      series: [
        { name: isOne ? 'published to the topic' : 'published', values: perSecond(data.published) },
        { name: 'given up', kind: 'bad', values: perSecond(data.givenUp) },
        { name: 'delivered', kind: 'ok', values: perSecond(data.delivered) },
      ],
    },
    {
      title: 'Failed requests by status',
      unit: '/s',
      series: [
        { name: 'refused (4xx)', kind: 'bad', values: perSecond(data.refusedRequests) },
        { name: 'busy (429, 503)', kind: 's1', values: perSecond(data.busyRequests) },
        { name: 'no response', values: perSecond(data.unansweredRequests) },
        { name: 'other, such as 500', values: perSecond(other) },
      ],
    },
    {
      title: 'Waiting events',
      unit: '',
      series: [
        { name: 'backlog', values: data.backlog },
        { name: 'pending', kind: 'none', values: data.pending },
      ],
    },
    {
      title: 'Response time',
      unit: ' ms',
      series: [
        { name: 'p50', values: data.responseP50Milliseconds },
        { name: 'p99', values: data.responseP99Milliseconds },
      ],
    },
    ...(isOne || destinations.length === 0
      ? []
      : [
          {
            title: 'Delivered by destination, the busiest',
            unit: '/s',
            series: destinations.map((one) => ({
              name: `${shortName(one.topic)} / ${one.subscription}`,
              values: perSecond(one.delivered),
            })),
          },
        ]),
  ];
}

/** The same figures for readers and keyboard, the newest first. @param {{ xs: number[], charts: ChartData[] }} props */
function FigureTable({ xs, charts }) {
  const rows = xs.map((x, index) => ({ x, index })).reverse();
  const columns = charts.flatMap(({ title, unit, series }) =>
    series.map(({ name, values }) => ({
      key: `${title} ${name}`,
      name: `${name}${unit && `, ${unit.trim()}`}`,
      num: true,
      cell: ({ index }) => (values[index] === null || values[index] === undefined ? '–' : formatNumber(values[index])),
    })),
  );
  return html`<${Table}
    name="Figures"
    rows=${rows}
    id=${(row) => `${row.x}`}
    columns=${[
      {
        key: 'time',
        name: 'Time',
        rank: 'sticky',
        cell: ({ x }) => html`<time datetime=${new Date(x * 1000).toISOString()}>${formatTime(x * 1000)}</time>`,
      },
      ...columns,
    ]}
  />`;
}
