// One event: its result for each event subscription, and why. Without an id: a search for it.
import { retryDeliveries, runAction } from '../actions.js';
import { hasRole, getJson, pathOf, postJson, withQuery } from '../api.js';
import {
  formatCommand,
  formatCount,
  formatMillis,
  formatNumber,
  shortName,
  subscriptionId,
  topicArgument,
  formatCode,
} from '../format.js';
import { html, useState } from '../html.js';
import { usePoll } from '../poll.js';
import { listTopics } from '../resources.js';
import { goTo, link, setParams, useParams } from '../state.js';
import { RESULTS } from '../causes.js';
import { Command, Facts, Failed, Field, Head, Loaded, Outcome, Select, Sentence, Time, Words } from '../ui.js';
import { Request } from './attempts.js';
import { Browse, EventText } from './browse.js';
import { findEvent } from './search.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

export default function Events() {
  const params = useParams();
  const topic = params.get('topic') ?? '';
  const id = params.get('id') ?? '';
  const sequence = params.get('sequence') ?? '';
  const isOne = topic && (id || sequence);
  return isOne ? html`<${One} topic=${topic} id=${id} sequence=${sequence} key=${`${topic} ${id} ${sequence}`} />` : html`<${Find} topic=${topic} />`;
}

function Find({ topic }) {
  const list = usePoll(listTopics, ['topics of events'], 0);
  const [wanted, setWanted] = useState('');
  const choices = (list.data ?? []).filter((one) => one.kind !== 'namespace');
  const chosen = topic || (choices.length === 1 ? choices[0].id : '');
  const submit = (event) => {
    event.preventDefault();
    if (!chosen || !wanted.trim()) return;
    goTo('event', {
      topic: chosen,
      [/^#?\d+$/.test(wanted.trim()) ? 'sequence' : 'id']: wanted.trim().replace('#', ''),
    });
  };
  return html`
    <${Head} title="Events" about="Find an event by its id or its sequence number, or browse the newest of a topic." />
    <${Loaded}
      poll=${list}
      isEmpty=${() => choices.length === 0}
      empty=${
        html`<p>
          There is no topic yet. <a href=${link('topics')}>Create one.</a>
        </p>`
      }
    >
      <form class="filters" onSubmit=${submit}>
        <${Select}
          label="Topic"
          value=${chosen}
          onChange=${(next) => setParams({ topic: next, after: '' })}
          options=${[['', 'choose …'], ...choices.map((one) => [one.id, shortName(one.id)])]}
        />
        <${Field}
          label="Event id or sequence number"
          type="search"
          data-search
          value=${wanted}
          onInput=${(event) => setWanted(event.currentTarget.value)}
        />
        <div class="acts">
          <button type="submit" class="primary" disabled=${!chosen || !wanted.trim()}>
            Find
          </button>
        </div>
      </form>
    <//>
    ${chosen && html`<${Browse} topic=${chosen} key=${chosen} />`}
  `;
}

function One({ topic, id, sequence }) {
  const path = withQuery(`${pathOf(topic)}/trace`, { id, sequence });
  const poll = usePoll((signal) => /** @type {Promise<Schemas['Trace']>} */ (getJson(path, signal)), ['trace', path]);
  return html`
    <${Head}
      title=${id || `Event ${formatNumber(sequence)}`}
      crumbs=${[
        ['Events', link('event', { topic })],
        [shortName(topic), link('topic', { id: topic })],
      ]}
    />
    <${Loaded}
      poll=${poll}
      isEmpty=${(trace) => trace.events.length === 0}
      empty=${
        html`
          <p>
            The topic has no such event. Its log has the sequences that are still kept; events before are known by id
            only.
          </p>
          ${id && html`<${Elsewhere} id=${id} />`}
        `
      }
    >
      ${(/** @type {Schemas['Trace']} */ trace) => html`
        ${trace.events.length > 1 && html`<p class="notice warn">${formatNumber(trace.events.length)} events have this id.</p>`}
        ${trace.events.map((event) => html`<${Story} key=${String(event.sequence)} topic=${topic} event=${event} now=${trace.now} />`)}
      `}
    <//>
    <${Command} parts=${['trace', id || sequence, '--topic', topicArgument(topic), ...(id ? [] : ['--sequence'])]} />
  `;
}

/** A result that the page does not know has -1, and comes first. */
const rankOf = (history) => RESULTS.indexOf(history.result);

/** The other topics that have an event with the id. */
function Elsewhere({ id }) {
  const poll = usePoll((signal) => findEvent(id, signal), ['elsewhere', id], 0);
  const events = poll.data?.events ?? [];
  return (
    events.length > 0 && html`<p>
      ${formatCount(events.length, 'event has', 'events have')} this id elsewhere:${' '}
      ${events.map((event) => html`
        <a key=${event.topic} href=${link('event', { topic: event.topic, sequence: event.sequence })}>
          ${shortName(event.topic)}
        </a>${' '}
      `)}
    </p>`
  );
}

/** @param {{ topic: string, event: Schemas['TracedEvent'] }} props */
function Story({ topic, event }) {
  const histories = [...event.subscriptions].sort((a, b) => rankOf(a) - rankOf(b));
  const before = BigInt(event.sequence) - 1n;
  return html`
    <div class="panel">
      <${Facts}
        rows=${[
          ['Event id', event.id && html`<code>${event.id}</code>`],
          ['Type', event.eventType],
          ['Subject', event.subject],
          [
            'Sequence',
            html`
              ${formatNumber(event.sequence)} ·${' '}
              ${before > 0n && html`
                <a href=${link('event', { topic, sequence: before.toString() })}>previous</a> ·${' '}
              `}
              <a href=${link('event', { topic, sequence: (before + 2n).toString() })}>next</a>
            `,
          ],
          ['Published', event.published && html`<${Time} at=${event.published} />`],
        ]}
      />
      <${EventText} topic=${topic} sequence=${event.sequence} shard=${event.shard} />
    </div>
    <h2>What became of it</h2>
    ${histories.length === 0 && html`<p class="empty">No event subscription was there for it.</p>`}
    <div data-list>
      ${histories.map((history) => html`<${History}
        key=${`${history.domainTopic ?? ''} ${history.subscription}`}
        topic=${topic}
        event=${event}
        history=${history}
      />`)}
    </div>
  `;
}

/** @param {{ topic: string, event: Schemas['TracedEvent'], history: Schemas['DeliveryHistory'] }} props */
function History({ topic, event, history }) {
  const [isForecast, setForecast] = useState(false);
  const parent = history.domainTopic ? `${topic}/topics/${history.domainTopic}` : topic;
  const id = subscriptionId(parent, history.subscription);
  const line = formatCommand(
    'replay',
    'start',
    topicArgument(parent),
    history.subscription,
    '--from-sequence',
    event.sequence,
    '--to-sequence',
    event.sequence,
    '--yes',
  );
  const replay = () =>
    runAction(
      () =>
        postJson(`${pathOf(id)}/replays`, { fromSequence: Number(event.sequence), toSequence: Number(event.sequence) }),
      (job) => `Replay ${job.id} of this event started`,
      line,
    );
  const open = ['pending', 'unread', 'deadLetterWaiting', 'unknown'].includes(history.result);
  return html`<section class="panel" data-row aria-label=${history.subscription}>
    <div class="toolbar">
      <${Outcome} step=${history.result} />
      ${history.deleted ? html`
        <b>${history.subscription}</b> <span class="faint">(deleted)</span>
      ` : html`<a data-open href=${link('subscription', { id })}>
        <b>${history.subscription}</b>
      </a>`}
      <span>
        <${Sentence} text=${history.text} />
      </span>
      ${hasRole('operate') && !history.deleted && html`<button type="button" class="small" title=${line} onClick=${replay}>
        Replay just this one
      </button>`}
      ${hasRole('operate') && history.result === 'pending' && html`<button type="button" class="small" onClick=${() => retryDeliveries(id, [event.sequence])}>
        Retry now
      </button>`}
      ${open && !history.deleted && html`<button type="button" class="small" aria-expanded=${isForecast} onClick=${() => setForecast(!isForecast)}>
        Why it waits, and when it is tried
      </button>`}
    </div>
    <ol class="timeline">
      ${history.lines.map((one, index) => html`<li key=${index}>
        <${Time} at=${one.at} /> <${Outcome} step=${one.step} /> ${one.attempt ? `attempt ${one.attempt}` : ''}${' '}
        ${one.status ? html`<b>${one.status}</b>` : ''} <${Words} code=${one.outcome ?? one.reason} />${' '}
        ${one.milliseconds === undefined || one.milliseconds === null
          ? ''
          : `after ${formatMillis(one.milliseconds)}`}
        ${one.nextAttempt && html`
          ${' '}
          · next attempt due <${Time} at=${one.nextAttempt} />
        `}
        ${one.file && html`
          ${' '}
          · file <code>${one.file}</code>
        `}
        ${one.filter && html`<div class="faint">
          version ${one.filter.version} of the filter
          ${one.filter.stoppedBy ? html`
            : <code>${one.filter.stoppedBy}</code> stopped it, ${one.filter.reason}
            ${one.filter.value ? html`
              ; it saw <code>${one.filter.value}</code>
            ` : ''}
          ` : ''}
        </div>`}
        ${one.response && html`<blockquote>${one.response.text}</blockquote>`}
        ${!history.deleted && html`<${Request} id=${id} line=${one} shard=${event.shard} />`}
      </li>`)}
    </ol>
    ${history.truncated && html`<p class="hint">There are more lines: see the attempts of the event subscription.</p>`}
    ${isForecast && html`<${Forecast} id=${id} sequence=${event.sequence} />`}
  </section>`;
}

const OBSTACLES = {
  held: (one) => `held by ${one.by}`,
  suspended: (one) => html`
    suspended (${formatCode(one.cause)}) since <${Time} at=${one.since} />, next probe <${Time} at=${one.nextProbe} />
  `,
  probing: (one) => html`
    probing (${formatCode(one.cause)}) since <${Time} at=${one.since} />
  `,
  retryAfter: (one) => html`
    the endpoint asked to wait until <${Time} at=${one.until} />
  `,
  paced: (one) => `paced at ${formatNumber(one.rate)} requests a second`,
  full: (one) => `the retry queue is full: ${formatNumber(one.pending)} of ${formatNumber(one.limit)}`,
  noReceiver: () => 'no client receives',
};

function Forecast({ id, sequence }) {
  const path = withQuery(`${pathOf(id)}/explain`, { sequence });
  const poll = usePoll((signal) => getJson(path, signal), ['explain', path]);
  if (poll.error && !poll.data) return html`<${Failed} error=${poll.error} />`;
  const data = poll.data;
  if (!data) return null;
  return html`<${Facts}
    rows=${[
      ['State', html`<${Words} code=${data.state} />`],
      data.behind !== undefined && ['Behind', `${formatCount(data.behind, 'event')} before it`],
      data.nextDue && ['Due', html`<${Time} at=${data.nextDue} />`],
      [
        'Obstacles',
        data.obstacles.length === 0 ? 'none' : html`<ul class="plain">
          ${data.obstacles.map((one) => html`<li>${OBSTACLES[one.kind]?.(one) ?? one.kind}</li>`)}
        </ul>`,
      ],
      data.forecast && [
        'If each attempt fails',
        html`
          with <${Words} code=${data.forecast.ifEachFailsWith} />:${' '}
          <ol class="plain">
            ${data.forecast.attempts.slice(0, 12).map((one) => html`<li>
              attempt ${one.number}: <${Time} at=${one.notBefore} />
              ${one.jitterSeconds ? ` to ${formatNumber(one.jitterSeconds)} s later` : ''}
            </li>`)}
          </ol>
          ${data.forecast.end && html`<p>
            then <${Words} code=${data.forecast.end.reason} />, <${Time} at=${data.forecast.end.at} />
          </p>`}
        `,
      ],
    ]}
  />`;
}
