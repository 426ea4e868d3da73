// The course of the figures of the server, a topic or an event subscription.
import { get, withQuery } from '../api.js';
import { Chart } from '../charts.js';
import { html } from '../html.js';
import { usePoll } from '../poll.js';
import { useParam } from '../state.js';
import { Failed, Time } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']['History']} Course */

const RANGES = [['10m', '10 min'], ['3h', '3 h'], ['24h', '24 h']];

/** @param {{ topic?: string, subscription?: string }} props the server's without them */
export function History({ topic = '', subscription = '' }) {
  const [range, setRange] = useParam('range', '10m');
  const path = withQuery('/history', { range, topic, subscription });
  const poll = usePoll((signal) => /** @type {Promise<Course>} */ (get(path, signal)), ['history', path], range === '10m' ? 5000 : 30000);
  const data = poll.data;
  return html`<section aria-label="Course">
    <div class="toolbar">
      <span class="acts" role="group" aria-label="Range">${RANGES.map(([id, text]) => html`<button type="button" class="small" key=${id} aria-pressed=${range === id} onClick=${() => setRange(id)}>${text}</button>`)}</span>
      ${data?.recorded && html`<span class="faint">recorded since the start of the server, <${Time} at=${data.since} /></span>`}
    </div>
    <${Failed} error=${poll.error} retry=${poll.refresh} />
    ${data && !data.recorded && html`<p class="hint">The course is recorded for the most active ones only, as many as have metrics of their own.</p>`}
    ${data?.recorded && html`<${Charts} data=${data} isOne=${Boolean(subscription)} />`}
  </section>`;
}

/** @param {{ data: Course, isOne: boolean }} props */
function Charts({ data, isOne }) {
  const start = Date.parse(data.from) / 1000;
  const xs = data.published.map((_, index) => start + index * data.stepSeconds);
  const perSecond = (/** @type {(number | null)[]} */ values) => values.map((value) => (value === null ? null : value / data.stepSeconds));
  return html`<div class="charts">
    <div class="panel"><${Chart} title="Events" unit="/s" xs=${xs} series=${[{ name: isOne ? 'published to the topic' : 'published', values: perSecond(data.published) }, { name: 'given up', kind: 'bad', values: perSecond(data.givenUp) }, { name: 'delivered', kind: 'ok', values: perSecond(data.delivered) }]} /></div>
    <div class="panel"><${Chart} title="Waiting" xs=${xs} series=${[{ name: 'backlog', values: data.backlog }, { name: 'pending', kind: 'none', values: data.pending }]} /></div>
    <div class="panel"><${Chart} title="Failed requests" unit="/s" xs=${xs} series=${[{ name: 'failed', kind: 'bad', values: perSecond(data.failedRequests) }]} /></div>
    <div class="panel"><${Chart} title="Response time" unit=" ms" xs=${xs} series=${[{ name: 'p50', values: data.responseP50Milliseconds }, { name: 'p99', values: data.responseP99Milliseconds }]} /></div>
  </div>`;
}
