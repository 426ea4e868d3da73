// One event subscription: how its endpoint is, what was counted, its attempts, and what an operator may do.
import { ACTIONS, actionLine, operate, remove, retry, unblock } from '../actions.js';
import { isPortal, may, get, pathOf } from '../api.js';
import { nextStep } from '../causes.js';
import { command, duration, num, rate, shortName, splitId, topicArgument } from '../format.js';
import { html } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { address, destinationOf, statusOf } from '../resources.js';
import { go, link, useParam, useParams } from '../state.js';
import { Badge, Command, Facts, Failed, Figure, Head, Loaded, Tabs, Time } from '../ui.js';
import { Attempts } from './attempts.js';
import { Configuration } from './configuration.js';
import { DeadLettersOf } from './dead-letters.js';
import { History } from './history.js';
import { JobsOf } from './jobs.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

const TABS = [['attempts', 'Attempts'], ['dead-letters', 'Dead letters'], ['jobs', 'Jobs'], ['settings', 'Settings and filter'], ['actor', 'Actor']];

export default function Subscription() {
  const id = useParams().get('id') ?? '';
  const [tab, setTab] = useParam('tab', 'attempts');
  const { topic, name } = splitId(id);
  const status = usePoll((signal) => statusOf(id, signal), ['status', id]);
  const resource = usePoll((signal) => get(pathOf(id), signal), ['resource', id], 10000);
  useChanges(status.refresh);
  useChanges(resource.refresh);
  const data = status.data;
  const state = data?.health.state;
  const offered = data ? [data.heldBy ? 'resume' : 'hold', ...(state === 'healthy' ? [] : ['probe', 'release'])] : [];
  const removal = command('subscriptions', 'delete', topicArgument(topic), name, '--yes');
  const gone = async () => {
    if (await remove(id, name, 'Its pending deliveries are canceled. The events stay in the topic for the others.', removal)) go('topic', { id: topic });
  };
  return html`
    <${Head} title=${name} crumbs=${[['Topics', link('topics')], [shortName(topic), link('topic', { id: topic })]]}>
      ${may('operate') && offered.map((verb) => html`<button type="button" key=${verb} title=${`${ACTIONS[verb].about}: ${actionLine(verb, id)}`} onClick=${() => operate(ACTIONS[verb], id)}>${ACTIONS[verb].name}</button>`)}
      ${may('operate') && data?.counters.pending > 0 && !data.heldBy && resource.data?.properties.deliveryConfiguration?.deliveryMode !== 'Queue' && html`<button type="button" title="Send pending events now instead of when they are due" onClick=${() => retry(id)}>Retry now</button>`}
      ${may('read') && html`<a href=${link('tail', { topic, subscription: name })}>Live tail</a>`}
      <a href=${link('filter', { id })}>Filter bench</a>
      ${may('operate') && html`<button type="button" onClick=${() => go('jobs', { id, new: 'replay' })}>Replay …</button>`}
      ${isPortal() && resource.data && destinationOf(resource.data.properties)?.endpointType === 'WebHook' && html`<button type="button" onClick=${() => go('endpoint', { id })}>Change the endpoint …</button>`}
      ${may('admin') && html`<button type="button" onClick=${() => go('edit', { id })}>Edit …</button>
        <button type="button" class="danger" onClick=${gone}>Delete …</button>`}
    <//>
    <${Loaded} poll=${status}>${(/** @type {Schemas['Status']} */ now) => html`
      <${State} id=${id} data=${now} resource=${resource.data} />
      <${Counters} counters=${now.counters} data=${now} />
      ${may('read') && html`<${History} topic=${topic} subscription=${name} />`}
      <${Tabs} name="Parts of the event subscription" tabs=${TABS} value=${tab} onChange=${setTab} />
      ${tab === 'attempts' && html`<${Attempts} id=${id} />`}
      ${tab === 'dead-letters' && html`<${DeadLettersOf} id=${id} />`}
      ${tab === 'jobs' && html`<${JobsOf} id=${id} />`}
      ${tab === 'settings' && html`<${Failed} error=${resource.error} />${resource.data && html`<${Configuration} id=${id} data=${resource.data} />`}`}
      ${tab === 'actor' && html`<${Actor} actor=${now.actor} />`}
    `}<//>
  `;
}

/**
 * The state machine, where it is in it, and why.
 * @param {{ id: string, data: Schemas['Status'], resource: any }} props
 */
function State({ id, data, resource }) {
  /** @type {import('../resources.js').Health} */
  const health = data.health;
  const { endpoint, order } = data;
  const states = [['healthy', 'ok'], ['suspended', 'bad'], ['probing', 'info']];
  const provisioning = resource?.properties.provisioningState;
  return html`<section class="panel" aria-label="Health">
    <div class="states">
      ${states.map(([name, kind], index) => html`${index > 0 && html`<span aria-hidden="true">→</span>`}<span key=${name} class=${`state ${kind}`} aria-current=${health.state === name ? 'step' : undefined}>${name}</span>`)}
      ${data.heldBy && html`<${Badge} kind="held">held by ${data.heldBy}<//>`}
      ${provisioning && provisioning !== 'Succeeded' && html`<${Badge} kind="warn">${provisioning}<//>`}
    </div>
    ${health.state !== 'healthy' && html`<p class="notice bad">${health.cause} since <${Time} at=${health.since} />, ${num(health.consecutiveSuspensions)} suspensions in a row${health.nextProbe ? html`; next probe <${Time} at=${health.nextProbe} />` : ''}. ${nextStep(health.cause)}</p>`}
    ${health.state === 'healthy' && health.failures > 0 && html`<p class="notice warn">The last ${num(health.failures)} requests failed. The endpoint is suspended if this goes on.</p>`}
    ${data.heldBy && html`<p class="notice warn">Held by ${data.heldBy}: nothing is sent until it is resumed.</p>`}
    ${order?.blockedKeys > 0 && html`<p class="notice bad">${num(order.blockedKeys)} keys are blocked, the first by <a href=${link('event', { topic: splitId(id).topic, sequence: order.firstBlockingSequence })}>event ${num(order.firstBlockingSequence)}</a>. ${may('operate') && [['Attempt again', true], ['Give up', false]].map(([name, retry]) => html`<button type="button" class="small" onClick=${() => unblock(id, retry)}>${name}</button> `)}</p>`}
    ${provisioning === 'AwaitingManualAction' && html`<p class="notice warn">The endpoint has to be validated: somebody with access to it opens the validation URL that it received, within ten minutes.</p>`}
    <${Facts} rows=${[
      ['Endpoint', resource && html`<code>${address(resource.properties)}</code>`],
      ['Pace', `${endpoint.rate ? rate(endpoint.rate) : 'not limited'}; ${num(data.inFlight)} of ${num(endpoint.concurrency)} requests in flight; ${num(endpoint.eventsPerRequest)} events a request${endpoint.healthyRate ? `; ${rate(endpoint.healthyRate)} when it was healthy` : ''}`],
      ['Backlog', html`${num(data.backlog)} events${data.oldestUnreadAgeSeconds ? `, the oldest waits for ${duration(data.oldestUnreadAgeSeconds)}` : ''}`],
      ['Next attempt of a pending event', data.nextDue && html`<${Time} at=${data.nextDue} />`],
      order && ['Order by key', `${num(order.heldBackEvents)} events wait behind others of ${num(order.holdingKeys)} keys`],
      data.lateRequests > 0 && ['Late requests', `${num(data.lateRequests)} whose answer may still come`],
    ]} />
  </section>`;
}

/** What matched is delivered, pending or ended: the sum is shown, so that a loss would be seen.
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
      <${Figure} name="Read" value=${num(counters.passed)} title="Events of the topic that this event subscription has read" />
      <${Figure} name="Filtered out" value=${num(counters.filtered)} />
      <${Figure} name="Matched" value=${num(counters.matched)} />
      ${parts.map(([key, name, kind]) => html`<${Figure} key=${key} name=${name} value=${num(counters[key])} kind=${kind === 'bad' && counters[key] > 0 ? 'bad' : ''} />`)}
      <${Figure} name="Requests" value=${num(counters.requests)} />
      <${Figure} name="Failed requests" value=${num(counters.requestsFailed)} kind=${counters.requestsFailed > 0 ? 'warn' : ''} />
    </dl>
    <div class="meter" aria-hidden="true">${parts.map(([key, , kind]) => html`<span key=${key} class=${`fill-${kind}`} style=${{ flexGrow: Number(counters[key]) }}></span>`)}</div>
    <p class=${isWhole ? 'hint' : 'wrong'}>
      matched ${num(counters.matched)} ${isWhole ? '=' : '≠'} ${parts.map(([key, name]) => `${name.toLowerCase()} ${num(counters[key])}`).join(' + ')}
      ${data.replayed && html`; replayed events are counted apart: ${num(data.replayed.delivered)} delivered of ${num(data.replayed.matched)}`}
    </p>
  </section>`;
}

/** @param {{ actor: Schemas['ActorIncarnations'] }} props */
function Actor({ actor }) {
  return html`<div class="panel"><${Facts} rows=${[
    ['Incarnation', num(actor.incarnation)],
    ['Restarts', num(actor.restarts)],
    ['Ends', Object.entries(actor.ends).map(([kind, n]) => `${kind} ${num(n)}`).join(', ')],
    ['Last end', actor.lastEnd && html`<${Time} at=${actor.lastEnd} />`],
    ['Last cause', actor.lastCause],
    ['Recovery', actor.recovery.count > 0 ? `last ${duration(actor.recovery.last)}, p50 ${duration(actor.recovery.p50)}, p99 ${duration(actor.recovery.p99)}` : 'none yet'],
    ['Quarantined events', actor.quarantined?.count > 0 ? `${num(actor.quarantined.count)}: ${actor.quarantined.newest.map((event) => `${event.id} (${event.sequence})`).join(', ')}` : '0'],
  ]} /></div>
  <${Command} parts=${['supervision']} />`;
}
