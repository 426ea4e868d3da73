// One event subscription: how its endpoint is, what was counted, its attempts, and what an operator may do.
import {
  ACTIONS,
  actionLine,
  operateSubscription,
  removeResource,
  retryDeliveries,
  unblockEvents,
} from '../actions.js';
import { isPortal, hasRole, getJson, pathOf, withQuery } from '../api.js';
import { nextStep } from '../causes.js';
import {
  formatCommand,
  formatCount,
  formatDuration,
  serverNow,
  formatNumber,
  formatRate,
  shortName,
  splitId,
  topicArgument,
  formatCode,
} from '../format.js';
import { html } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { addressOf, destinationOf, flattenProperties, statusOf } from '../resources.js';
import { goTo, link, useParam, useParams } from '../state.js';
import {
  Badge,
  Command,
  Condition,
  Facts,
  Failed,
  Figure,
  Head,
  Loaded,
  TabPanel,
  Tabs,
  Time,
  ViewLink,
  Words,
  conditionText,
} from '../ui.js';
import { Attempts, Heads, Request } from './attempts.js';
import { Configuration } from './configuration.js';
import { DeadLettersOf } from './dead-letters.js';
import { History } from './history.js';
import { JobsOf } from './jobs.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

const TABS = [
  ['attempts', 'Attempts'],
  ['charts', 'Charts'],
  ['dead-letters', 'Dead letters'],
  ['jobs', 'Jobs'],
  ['settings', 'Settings and filter'],
  ['actor', 'Actor'],
];

export default function Subscription() {
  const id = useParams().get('id') ?? '';
  const [tab, setTab] = useParam('tab', 'attempts');
  const { topic, name } = splitId(id);
  const status = usePoll((signal) => statusOf(id, signal), ['status', id]);
  const resource = usePoll((signal) => getJson(pathOf(id), signal), ['resource', id], 10000);
  useChanges(status.refresh);
  useChanges(resource.refresh);
  const data = status.data;
  const state = data?.health.state;
  const offered = data ? [data.heldBy ? 'resume' : 'hold', ...(state === 'healthy' ? [] : ['probe', 'release'])] : [];
  const removal = formatCommand('subscriptions', 'delete', topicArgument(topic), name, '--yes');
  const gone = async () => {
    if (
      await removeResource(
        id,
        name,
        'Its pending deliveries are canceled. The events stay in the topic for the others.',
        removal,
      )
    )
      goTo('topic', { id: topic });
  };
  return html`
    <${Head}
      title=${name}
      crumbs=${[
        ['Topics', link('topics')],
        [shortName(topic), link('topic', { id: topic })],
      ]}
    >
      ${hasRole('operate') &&
        offered.map((verb) => html`<button
          type="button"
          key=${verb}
          title=${`${ACTIONS[verb].about}: ${actionLine(verb, id)}`}
          onClick=${() => operateSubscription(ACTIONS[verb], id)}
        >
          ${ACTIONS[verb].name}
        </button>`)}
      ${hasRole('operate') &&
        data?.counters.pending > 0 &&
        !data.heldBy &&
        resource.data?.properties.deliveryConfiguration?.deliveryMode !== 'Queue' && html`<button
          type="button"
          title="Send pending events now instead of when they are due"
          onClick=${() => retryDeliveries(id)}
        >
          Retry now
        </button>`}
      ${hasRole('read') && html`<a href=${link('tail', { topic, subscription: name })}>Live tail</a>`}
      <a href=${link('filter', { id })}>Filter bench</a>
      ${hasRole('operate') && html`<button type="button" onClick=${() => goTo('jobs', { id, new: 'replay' })}>
        Replay …
      </button>`}
      ${isPortal() && resource.data && destinationOf(resource.data.properties)?.endpointType === 'WebHook' && html`<button type="button" onClick=${() => goTo('endpoint', { id })}>
        Change the endpoint …
      </button>`}
      ${hasRole('admin') && html`
        <button type="button" onClick=${() => goTo('edit', { id })}>
          Edit …
        </button>
        <button type="button" class="danger" onClick=${gone}>
          Delete …
        </button>
      `}
    <//>
    <${Loaded} poll=${status}>
      ${(/** @type {Schemas['Status']} */ current) => html`
        <${State} id=${id} data=${current} resource=${resource.data} />
        <${Counters} counters=${current.counters} data=${current} />
        <${Tabs}
          name="Parts of the event subscription"
          tabs=${TABS.filter(([id]) => hasRole('read') || !['charts', 'actor'].includes(id))}
          value=${tab}
          onChange=${setTab}
        />
        <${TabPanel} value=${tab}>
          ${tab === 'attempts' && html`<${Attempts} id=${id} />`}
          ${tab === 'charts' && html`<${History} topic=${topic} subscription=${name} />`}
          ${tab === 'dead-letters' && html`<${DeadLettersOf} id=${id} />`}
          ${tab === 'jobs' && html`<${JobsOf} id=${id} />`}
          ${tab === 'settings' && html`
            <${Failed} error=${resource.error} />
            ${resource.data && html`<${Configuration} id=${id} data=${resource.data} />`}
          `}
          ${tab === 'actor' && html`<${Actor} actor=${current.actor} />`}
        <//>
      `}
    <//>
  `;
}

/**
 * The states of an endpoint, with the present one and its cause.
 * @param {{ id: string, data: Schemas['Status'], resource: any }} props
 */
function State({ id, data, resource }) {
  /** @type {import('../resources.js').Health} */
  const health = data.health;
  const { endpoint, order } = data;
  const states = [
    ['healthy', 'ok'],
    ['suspended', 'bad'],
    ['probing', 'info'],
  ];
  const provisioning = resource?.properties.provisioningState;
  const settings = resource ? flattenProperties(resource.properties) : {};
  const isQueue = settings.deliveryMode === 'Queue';
  const condition = data.condition.state;
  const isSuspended = health.state !== 'healthy';
  const hasFailure = !isQueue && data.counters.requestsFailed > 0 && ['failing', 'suspended'].includes(condition);
  const { topic } = splitId(id);
  const parent = usePoll(hasRole('read') ? (signal) => getJson(pathOf(topic), signal) : null, ['parent', topic], 0);
  return html`<section class="panel" aria-label="Health">
    <div class="states">
      <${Condition} line=${data} /> <span class="faint">${conditionText(data)}</span>
      ${!isQueue &&
        isSuspended &&
        states.map(([name, kind], index) => html`
          ${index > 0 && html`<span aria-hidden="true">→</span>`}
          <span key=${name} class=${`state ${kind}`} aria-current=${health.state === name ? 'step' : undefined}>
            ${name}
          </span>
        `)}
      ${provisioning && provisioning !== 'Succeeded' && html`<${Badge} kind="warn">${provisioning}<//>`}
    </div>
    ${isSuspended && html`<p class="notice bad">
      ${formatCode(health.cause)} since <${Time} at=${health.since} />,${' '}
      ${formatCount(health.consecutiveSuspensions, 'suspension')} in a row
      ${health.nextProbe ? html`; next probe ${Date.parse(health.nextProbe) <= serverNow() ? 'due now' : html`<${Time} at=${health.nextProbe} />`}` : ''}
      . ${hasFailure ? '' : nextStep(health.cause, endpoint.responseTimeoutInSeconds)}
    </p>`}
    ${health.state === 'healthy' && health.failures > 0 && html`<p class="notice warn">
      ${Number(health.failures) === 1 ? 'The last request' : `The last ${formatNumber(health.failures)} requests`}${' '}
      failed. The endpoint is suspended if this goes on.
    </p>`}
    ${condition === 'waiting' && html`<p class="notice warn">
      ${formatCount(data.backlog, 'event')} unread and ${formatNumber(data.counters.pending)} received before, and no
      client receives. Start a receiver.
    </p>`}
    ${hasFailure && html`<${LastFailure} id=${id} data=${data} />`}
    ${data.heldBy && html`<p class="notice warn">
      Held by ${isPortal() ? 'an operator' : data.heldBy}: nothing is sent until it is resumed.
    </p>`}
    ${order?.blockedKeys > 0 && html`<p class="notice bad">
      ${formatCount(order.blockedKeys, 'key is', 'keys are')} blocked, the first by${' '}
      <${ViewLink} href=${link('event', { topic, sequence: order.firstBlockingSequence })}>
        event ${formatNumber(order.firstBlockingSequence)}
      <//>
      .${' '}
      ${hasRole('operate') &&
        [
          ['Attempt again', true],
          ['Give up', false],
        ].map(([name, retry]) => html`
          <button type="button" class="small" onClick=${() => unblockEvents(id, retry)}>
            ${name}
          </button>${' '}
        `)}
    </p>`}
    ${provisioning === 'AwaitingManualAction' && html`<p class="notice warn">
      The endpoint has to be validated: somebody with access to it opens the validation URL that it received, within
      ten minutes.
    </p>`}
    <${Facts}
      rows=${[
        ['Endpoint', resource && html`<code>${addressOf(resource.properties)}</code>`],
        !isQueue &&
          hasRole('read') && [
            'Pace',
            `${endpoint.rate ? formatRate(endpoint.rate) : 'not limited'}; ${formatNumber(data.inFlight)} of ${formatNumber(endpoint.concurrency)} requests in flight; ${formatCount(endpoint.eventsPerRequest, 'event')} a request${endpoint.healthyRate ? `; ${formatRate(endpoint.healthyRate)} when it was healthy` : ''}`,
          ],
        [
          'Backlog',
          html`
            ${formatCount(data.backlog, 'event')}
            ${data.oldestUnreadAgeSeconds
              ? `, the oldest waits for ${formatDuration(data.oldestUnreadAgeSeconds)}`
              : ''}
          `,
        ],
        !isQueue && ['Next attempt of a pending event', nextAttempt(data)],
        !isQueue &&
          hasRole('read') && [
            'Retries',
            html`
              ${settings.retryPolicy?.schedule ? `after ${[].concat(settings.retryPolicy.schedule).join(', ')}; ` : ''}
              <a href=${link('editions', { edition: parent.data?.properties?.edition })}>Retry schedule</a>
            `,
          ],
        order && [
          'Order by key',
          `${formatCount(order.heldBackEvents, 'event waits', 'events wait')} behind others of ${formatCount(order.holdingKeys, 'key')}`,
        ],
        hasRole('read') &&
          data.lateRequests > 0 && [
            'Late requests',
            `${formatNumber(data.lateRequests)} whose response may still come`,
          ],
      ]}
    />
  </section>`;
}

/** When a pending event is sent again, as far as anything is sent now. @param {Schemas['Status']} data */
function nextAttempt(data) {
  if (!data.nextDue) return null;
  if (data.heldBy) return 'once it is resumed';
  if (data.health.state !== 'healthy') return 'after a probe that succeeds';
  return Date.parse(data.nextDue) <= serverNow() ? 'due now' : html`<${Time} at=${data.nextDue} />`;
}

/** Steps of the ledger in which a request failed. */
const FAILED_STEPS = ['deferred', 'undeliverable'];

/**
 * The last failed request: its response, time and number of attempts, and what to do.
 * @param {{ id: string, data: Schemas['Status'] }} props
 */
function LastFailure({ id, data }) {
  const load = async (signal) => {
    const read = (outcome) => getJson(withQuery(`${pathOf(id)}/ledger`, { outcome, order: 'newest', top: 1 }), signal);
    const pages = await Promise.all(FAILED_STEPS.map(read));
    return pages.flatMap((page) => page.lines).sort((a, b) => (a.at < b.at ? 1 : -1))[0] ?? null;
  };
  const poll = usePoll(
    /** @type {(signal: AbortSignal) => Promise<Schemas['LedgerLine'] | null>} */ (load),
    ['last failure', id],
    5000,
  );
  const line = poll.data;
  if (!line) return null;
  return html`<div class="notice bad" role="group" aria-label="Last failure">
    <p>
      <b>
        Last failure: ${line.status ?? ''} <${Words} code=${line.outcome} />
      </b>
      , <${Time} at=${line.at} />,${' '}
      <${ViewLink} href=${link('event', { topic: splitId(id).topic, sequence: line.firstSequence })}>
        event ${formatNumber(line.firstSequence)}
      <//>
      , attempt ${formatNumber(line.attempt)}. ${formatCount(data.counters.requestsFailed, 'request')} failed of${' '}
      ${formatNumber(data.counters.requests)}.
    </p>
    ${line.response?.text && html`<blockquote>${line.response.text}</blockquote>`}
    <${Heads} response=${line.response} />
    <${Request} id=${id} line=${line} />
    <p>${nextStep(line.outcome, data.endpoint.responseTimeoutInSeconds)}</p>
  </div>`;
}

/** Every matched event is delivered, pending or ended. The sum is shown, so that a loss is visible.
 * @param {{ counters: Schemas['StatusCounters'], data: Schemas['Status'] }} props */
function Counters({ counters, data }) {
  const big = (value) => BigInt(value);
  const parts = [
    ['delivered', 'Delivered', 'ok'],
    ['pending', 'Pending', 'warn'],
    ['deadLettered', 'Dead-lettered', 'bad'],
    ['dropped', 'Dropped', 'bad'],
    ['canceled', 'Canceled', 'none'],
  ];
  const sum = parts.reduce((total, [key]) => total + big(counters[key]), 0n);
  const isWhole = sum === big(counters.matched);
  return html`<section aria-label="Counters">
    <dl class="figures">
      <${Figure}
        name="Read"
        value=${formatNumber(counters.passed)}
        title="Events of the topic that this event subscription has read"
      />
      <${Figure} name="Filtered out" value=${formatNumber(counters.filtered)} />
      <${Figure} name="Matched" value=${formatNumber(counters.matched)} />
      ${parts.map(([key, name, kind]) => html`<${Figure}
        key=${key}
        name=${name}
        value=${formatNumber(counters[key])}
        kind=${kind === 'bad' && counters[key] > 0 ? 'bad' : ''}
      />`)}
      <${Figure} name="Requests" value=${formatNumber(counters.requests)} />
      <${Figure}
        name="Failed requests"
        value=${formatNumber(counters.requestsFailed)}
        kind=${counters.requestsFailed > 0 ? 'warn' : ''}
      />
    </dl>
    <div class="meter" aria-hidden="true">
      ${parts.map(([key, , kind]) => html`<span key=${key} class=${`fill-${kind}`} style=${{ flexGrow: Number(counters[key]) }}></span>`)}
    </div>
    <p class=${isWhole ? 'hint' : 'wrong'}>
      matched ${formatNumber(counters.matched)} ${isWhole ? '=' : '≠'}${' '}
      ${parts.map(([key, name]) => `${name.toLowerCase()} ${formatNumber(counters[key])}`).join(' + ')}
      ${data.replayed && html`
        ; replayed events are counted apart: ${formatNumber(data.replayed.delivered)} delivered of${' '}
        ${formatNumber(data.replayed.matched)}
      `}
    </p>
  </section>`;
}

/** @param {{ actor: Schemas['ActorIncarnations'] }} props */
function Actor({ actor }) {
  return html`
    <div class="panel">
      <${Facts}
        rows=${[
          ['Incarnation', formatNumber(actor.incarnation)],
          ['Restarts', formatNumber(actor.restarts)],
          [
            'Ends',
            Object.entries(actor.ends)
              .map(([kind, n]) => `${kind} ${formatNumber(n)}`)
              .join(', '),
          ],
          ['Last end', actor.lastEnd && html`<${Time} at=${actor.lastEnd} />`],
          ['Last cause', actor.lastCause],
          [
            'Recovery',
            actor.recovery.count > 0
              ? `last ${formatDuration(actor.recovery.last)}, p50 ${formatDuration(actor.recovery.p50)}, p99 ${formatDuration(actor.recovery.p99)}`
              : 'none yet',
          ],
          [
            'Quarantined events',
            actor.quarantined?.count > 0
              ? `${formatNumber(actor.quarantined.count)}: ${actor.quarantined.newest.map((event) => `${event.id} (${event.sequence})`).join(', ')}`
              : '0',
          ],
        ]}
      />
    </div>
    <${Command} parts=${['supervision']} />
  `;
}
