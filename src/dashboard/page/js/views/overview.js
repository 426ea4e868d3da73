// Overview: the state of the server, its throughput, and what is wrong now.
import { hasRole } from '../api.js';
import { nextStep } from '../causes.js';
import {
  formatCount,
  formatDuration,
  formatNumber,
  formatRate,
  shortName,
  subscriptionId,
  formatCode,
} from '../format.js';
import { html, useRef } from '../html.js';
import { usePoll } from '../poll.js';
import { getReadiness, getTop } from '../resources.js';
import { link } from '../state.js';
import { History } from './history.js';
import Start from './start.js';
import { Command, Condition, Failed, Figure, Head, Loaded, Time, conditionText } from '../ui.js';

/** The number of failing event subscriptions that are listed. */
const LISTED = 10;

export default function Overview() {
  const ready = usePoll(getReadiness, ['ready']);
  const poll = usePoll((signal) => getTop({ by: 'health', health: 'unhealthy', top: LISTED }, signal), ['sick']);
  const day = usePoll((signal) => getTop({ window: '24h', by: 'name', top: 1 }, signal), ['day'], 10000);
  const state = ready.data;
  // The first run goes on once it has created the first event subscription.
  const isFirstRun = useRef(false);
  if (poll.data?.subscriptions === 0) isFirstRun.current = hasRole('admin');
  return html`
    <${Head} title="Overview" />
    <${Failed} error=${ready.error} retry=${ready.refresh} />
    ${state && !state.ready && html`<div class="notice bad" role="alert">
      <strong>The server does not accept events (${state.phase}).</strong>
      <ul>
        ${state.problems.map((problem) => html`<li>${problem}</li>`)}
      </ul>
    </div>`}
    <${Loaded} poll=${poll}>
      ${(/** @type {import('../openapi').components['schemas']['Top']} */ data) => html`
        <dl class="figures">
          <${Figure}
            name="Server"
            value=${state ? (state.ready ? 'ready' : state.phase) : '–'}
            kind=${state?.ready === false ? 'bad' : ''}
            href=${link('server')}
          />
          <${Figure} name="Delivered" value=${formatRate(data.deliveredPerSecond)} title="In the last minute" />
          <${Figure}
            name="Failed requests"
            value=${formatRate(data.failedPerSecond)}
            kind=${data.failedPerSecond > 0 ? 'warn' : ''}
            title="In the last minute"
          />
          <${Figure}
            name="Backlog"
            value=${formatNumber(data.backlog)}
            href=${link('subscriptions', { by: 'backlog' })}
            title="Events that are not yet read by their event subscription"
          />
          <${Figure}
            name="Pending"
            value=${formatNumber(data.pending)}
            href=${link('subscriptions', { by: 'pending' })}
            title="Events that failed and are tried again"
          />
          <${Figure} name="In flight" value=${formatNumber(data.inFlight)} />
          <${Figure}
            name="Given up, 24 h"
            value=${formatNumber(day.data?.givenUpInWindow)}
            kind=${day.data?.givenUpInWindow > 0 ? 'bad' : ''}
            href=${link('dead-letters')}
            title="Events that were dead-lettered or dropped in the last day, or since the start of the server"
          />
          <${Figure}
            name="Failing"
            value=${formatNumber(data.conditions.failing)}
            kind=${data.conditions.failing > 0 ? 'bad' : ''}
            href=${link('subscriptions', { health: 'failing' })}
          />
          <${Figure}
            name="Suspended"
            value=${formatNumber(data.suspended)}
            kind=${data.suspended > 0 ? 'bad' : ''}
            href=${link('subscriptions', { health: 'suspended' })}
          />
          <${Figure}
            name="Held"
            value=${formatNumber(data.held)}
            kind=${data.held > 0 ? 'warn' : ''}
            href=${link('subscriptions', { health: 'held' })}
          />
          <${Figure} name="Subscriptions" value=${formatNumber(data.subscriptions)} href=${link('subscriptions')} />
        </dl>
        ${isFirstRun.current ? html`<${Start} />` : html`
          <${History} />
          <${Wrong} lines=${data.top} all=${data.matching} />
        `}
      `}
    <//>
  `;
}

/** @param {{ lines: import('../openapi').components['schemas']['TopLine'][], all: number }} props */
function Wrong({ lines, all }) {
  return html`<section class="panel" aria-labelledby="wrong">
    <h2 id="wrong">What is wrong now</h2>
    ${lines.length === 0 && html`<p>Nothing: no endpoint fails, nothing is held, and nothing waits for a receiver.</p>`}
    <ul class="plain" data-list>
      ${lines.map((line) => {
        const id = subscriptionId(line.topic, line.subscription);
        /** @type {import('../resources.js').Health} */
        const health = line.health;
        return html`<li key=${id} data-row class="sick">
          <div class="toolbar">
            <${Condition} line=${line} />
            <a data-open href=${link('subscription', { id })}>
              <b>${line.subscription}</b>
            </a>
            <span class="faint">of ${shortName(line.topic)}</span>
            ${health.since && html`<span class="faint">
              ${formatCode(health.cause)}, since <${Time} at=${health.since} />
            </span>`}
            ${health.nextProbe && html`<span class="faint">
              next probe <${Time} at=${health.nextProbe} />
            </span>`}
            <span class="faint">
              ${formatNumber(line.backlog)} behind
              ${line.oldestUnreadAgeSeconds ? `, oldest ${formatDuration(line.oldestUnreadAgeSeconds)}` : ''},${' '}
              ${formatNumber(line.pending)} pending
            </span>
          </div>
          <p class="hint">
            ${line.condition.state === 'suspended'
              ? nextStep(health.cause)
              : `${conditionText(line)}. ${STEPS[line.condition.state]}`}
          </p>
        </li>`;
      })}
    </ul>
    ${all > lines.length && html`<p>
      <a href=${link('subscriptions', { health: 'unhealthy' })}>
        and ${formatCount(all - lines.length, 'more', 'more')}
      </a>
    </p>`}
    ${lines.length > 0 && html`<${Command} parts=${['top', '--by', 'health']} />`}
  </section>`;
}

/** What an operator does about a condition. */
const STEPS = {
  failing: 'Look at the last failure.',
  held: 'Nothing is sent until it is resumed.',
  waiting: 'Start a receiver.',
  slow: 'Look at the pace and the response times.',
};
