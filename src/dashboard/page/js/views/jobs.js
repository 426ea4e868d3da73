// Replays and redrives, and the wizard that starts a replay.
import { runAction } from '../actions.js';
import { hasRole, getJson, pathOf, postJson } from '../api.js';
import {
  formatCommand,
  formatDuration,
  formatNumber,
  formatRate,
  shortName,
  splitId,
  subscriptionId,
  topicArgument,
} from '../format.js';
import { html, useState } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { getTop } from '../resources.js';
import { link, setParams, useParam, useParams } from '../state.js';
import { Table } from '../table.js';
import { Badge, Command, Field, Head, Loaded, Search, askOperator, showMessage, Time } from '../ui.js';
import { Range, utcInstant } from './attempts.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

export default function Jobs() {
  const id = useParams().get('id') ?? '';
  return html`
    <${Head}
      title=${id ? `Jobs of ${splitId(id).name}` : 'Jobs and replay'}
      crumbs=${
        id
          ? [
              ['Jobs', link('jobs')],
              [shortName(splitId(id).topic), link('topic', { id: splitId(id).topic })],
            ]
          : []
      }
      about=${
        id
          ? null
          : 'A replay sends stored events to one event subscription again; a redrive sends its dead letters again.'
      }
    >
      ${id && html`<a href=${link('subscription', { id })}>Event subscription</a>`}
    <//>
    ${id ? html`<${JobsOf} id=${id} />` : html`
      <${Open} />
      <${Choose} />
    `}
  `;
}

/** The jobs of all event subscriptions that have not ended. */
function Open() {
  const poll = usePoll((signal) => /** @type {Promise<Schemas['Jobs']>} */ (getJson('/jobs', signal)), ['all jobs']);
  useChanges(poll.refresh);
  return html`
    <h2>Running and paused</h2>
    <${Loaded} poll=${poll} isEmpty=${(data) => data.open === 0} empty="No job runs or is paused.">
      ${(/** @type {Schemas['Jobs']} */ data) => html`
        <${JobTable}
          rows=${data.jobs.map((job) => ({ ...job, subscription: subscriptionId(job.topic, job.subscription) }))}
          isOfAll=${true}
        />
        ${data.open > data.jobs.length && html`<p class="hint">
          The newest ${formatNumber(data.jobs.length)} of ${formatNumber(data.open)}.
        </p>`}
      `}
    <//>
    <${Command} parts=${['replay', 'running']} />
  `;
}

/** The event subscription whose jobs are shown, or to which events are sent again. */
function Choose() {
  const [text, setText] = useParam('q');
  const poll = usePoll((signal) => getTop({ by: 'name', search: text, top: 50 }, signal), ['choose', text], 10000);
  return html`
    <h2>Choose an event subscription</h2>
    <div class="filters">
      <${Search} label="Search by name or endpoint" value=${text} onChange=${setText} />
    </div>
    <${Loaded} poll=${poll} isEmpty=${(data) => data.top.length === 0} empty="No event subscription matches.">
      ${(/** @type {Schemas['Top']} */ data) => html`
        <${Table}
          name="Event subscriptions"
          rows=${data.top}
          id=${(line) => subscriptionId(line.topic, line.subscription)}
          columns=${
            /** @type {import('../table.js').Columns<Schemas['TopLine']>} */ ([
              {
                key: 'name',
                name: 'Event subscription',
                cell: (line) => html`<a data-open href=${link('jobs', { id: subscriptionId(line.topic, line.subscription) })}>
                  ${line.subscription}
                </a>`,
              },
              { key: 'topic', name: 'Topic', cell: (line) => shortName(line.topic) },
              {
                key: 'new',
                name: '',
                cell: (line) =>
                  hasRole('operate') && html`<a href=${link('jobs', { id: subscriptionId(line.topic, line.subscription), new: 'replay' })}>
                    New replay …
                  </a>`,
              },
            ])
          }
        />
        ${data.matching > data.top.length && html`<p class="hint">
          The first ${formatNumber(data.top.length)} of ${formatNumber(data.matching)}: search for the others.
        </p>`}
      `}
    <//>
  `;
}

const KINDS = { running: 'info', waiting: 'info', paused: 'held', completed: 'ok', canceled: 'none' };

export function JobsOf({ id }) {
  const isNew = useParams().get('new') === 'replay';
  const { topic, name } = splitId(id);
  const poll = usePoll(
    (signal) => /** @type {Promise<{ value: Schemas['Replay'][] }>} */ (getJson(`${pathOf(id)}/replays`, signal)),
    ['jobs', id],
  );
  useChanges(poll.refresh);
  return html`
    ${hasRole('operate') &&
      (isNew ? html`<${Wizard} id=${id} />` : html`<p>
        <button type="button" onClick=${() => setParams({ new: 'replay' })}>
          New replay …
        </button>
      </p>`)}
    <${Loaded}
      poll=${poll}
      isEmpty=${(list) => list.value.length === 0}
      empty="No job yet. The last 50 that ended stay here."
    >
      ${(list) => html`<${JobTable} rows=${list.value.map((job) => ({ ...job, subscription: id }))} />`}
    <//>
    <${Command} parts=${['replay', 'list', topicArgument(topic), name]} />
  `;
}

/** @typedef {Schemas['Replay'] & { subscription: string }} Job */

/**
 * Jobs with their progress and what can be done with them.
 * @param {{ rows: Job[], isOfAll?: boolean }} props
 */
export function JobTable({ rows, isOfAll = false }) {
  const act = async (job, verb) => {
    const { topic, name } = splitId(job.subscription);
    const line = formatCommand('replay', verb, topicArgument(topic), name, job.id);
    const what = `${job.kind} ${job.id}`;
    if (
      verb === 'cancel' &&
      !(await askOperator({
        title: `Cancel ${what}?`,
        body: 'Delivered events stay delivered; the others are not sent.',
        confirm: 'Cancel the job',
        danger: true,
        line,
      }))
    )
      return;
    await runAction(
      () => postJson(`${pathOf(job.subscription)}/replays/${encodeURIComponent(job.id)}/${verb}`),
      `${what}: ${verb}`,
      line,
    );
  };
  const share = (job) =>
    job.progress.total ? Math.min(1, Number(job.progress.passed) / Number(job.progress.total)) : null;
  return html`<${Table}
    name="Jobs"
    rows=${rows}
    id=${(job) => `${job.subscription} ${job.id}`}
    columns=${
      /** @type {import('../table.js').Columns<Job>} */ ([
        {
          key: 'id',
          name: 'Job',
          cell: (job) => html`<span data-open tabindex="-1">
            ${job.kind} ${job.id}
          </span>`,
        },
        isOfAll && {
          key: 'subscription',
          name: 'Event subscription',
          cell: (job) => html`<a data-open href=${link('jobs', { id: job.subscription })}>
            ${shortName(splitId(job.subscription).topic)} / ${splitId(job.subscription).name}
          </a>`,
        },
        { key: 'state', name: 'State', cell: (job) => html`<${Badge} kind=${KINDS[job.state] ?? 'none'}>${job.state}<//>` },
        {
          key: 'progress',
          name: 'Progress',
          cell: (job) =>
            share(job) === null ? formatNumber(job.progress.passed) : html`
              <progress max="1" value=${share(job)} aria-label=${`Progress of ${job.kind} ${job.id}`}></progress>${' '}
              ${formatNumber(job.progress.passed)} of ${formatNumber(job.progress.total)}${' '}
              ${job.kind === 'replay' ? 'read' : 'sent'}
            `,
        },
        { key: 'matched', name: 'Matched', num: true, cell: (job) => formatNumber(job.counters.matched) },
        { key: 'eta', name: 'Left', num: true, cell: (job) => formatDuration(job.progress.etaSeconds) },
        { key: 'delivered', name: 'Delivered', num: true, cell: (job) => formatNumber(job.counters.delivered) },
        { key: 'pending', name: 'Pending', num: true, cell: (job) => formatNumber(job.counters.pending) },
        {
          key: 'failed',
          name: 'Given up',
          num: true,
          cell: (job) => formatNumber(Number(job.counters.deadLettered) + Number(job.counters.dropped)),
        },
        { key: 'rate', name: 'At most', num: true, cell: (job) => formatRate(job.eventsPerSecond) },
        {
          key: 'range',
          name: 'Sequences',
          cell: (job) =>
            job.fromSequence === undefined || job.fromSequence === null
              ? ''
              : `${formatNumber(job.fromSequence)} – ${formatNumber(job.toSequence)}`,
        },
        { key: 'started', name: 'Started', cell: (job) => html`<${Time} at=${job.started} />` },
        hasRole('operate') && {
          key: 'do',
          name: 'Actions',
          cell: (job) => {
            const verbs =
              job.state === 'paused'
                ? ['resume', 'cancel']
                : ['running', 'waiting'].includes(job.state)
                  ? ['pause', 'cancel']
                  : [];
            return html`<span class="acts">
              ${verbs.map((verb) => html`<button type="button" class="small" key=${verb} onClick=${() => act(job, verb)}>
                ${verb}
              </button>`)}
            </span>`;
          },
        },
      ])
    }
  />`;
}

/** The wizard: a range, the number of its events, a rate, and then the replay. */
function Wizard({ id }) {
  const [form, setForm] = useState({ from: '', to: '', fromSequence: '', toSequence: '', rate: '' });
  const [plan, setPlan] = useState(/** @type {Schemas['ReplayDryRun'] | null} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const { topic, name } = splitId(id);
  const change = (key) => (value) => {
    setForm({ ...form, [key]: value });
    setPlan(null);
  };
  const body = () => ({
    ...(form.from ? { from: utcInstant(form.from) } : {}),
    ...(form.to ? { to: utcInstant(form.to) } : {}),
    ...(form.fromSequence ? { fromSequence: Number(form.fromSequence) } : {}),
    ...(form.toSequence ? { toSequence: Number(form.toSequence) } : {}),
    ...(form.rate ? { eventsPerSecond: Number(form.rate) } : {}),
  });
  const flags = [
    ...(form.from ? ['--from', utcInstant(form.from)] : []),
    ...(form.to ? ['--to', utcInstant(form.to)] : []),
    ...(form.fromSequence ? ['--from-sequence', form.fromSequence] : []),
    ...(form.toSequence ? ['--to-sequence', form.toSequence] : []),
    ...(form.rate ? ['--rate', form.rate] : []),
  ];
  const hasRange = form.from || form.to || form.fromSequence || form.toSequence;
  const line = formatCommand(
    'replay',
    'start',
    topicArgument(topic),
    name,
    ...flags,
    ...(hasRange ? [] : ['--all']),
    '--yes',
  );
  const count = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      setPlan(await postJson(`${pathOf(id)}/replays`, { ...body(), dryRun: true }));
    } catch (problem) {
      setError(problem);
    }
  };
  const start = async () => {
    if (
      await runAction(
        () => postJson(`${pathOf(id)}/replays`, body()),
        (job) => `Replay ${job.id} started`,
        line,
      )
    )
      setParams({ new: '' });
    else showMessage('No replay was started.', { kind: 'warn' });
  };
  const setRange = ([from, to]) => {
    setForm({ ...form, from, to, fromSequence: '', toSequence: '' });
    setPlan(null);
  };
  const about = (field) => (error?.target === field ? error.message : null);
  return html`<form class="panel fields" onSubmit=${count} aria-label="New replay">
    <h2>New replay</h2>
    <p class="about">
      The events of the range that match the present filter are sent again, to ${name} only. New events go first.
    </p>
    <div class="filters">
      <${Range} from=${form.from} to=${form.to} setFrom=${change('from')} setTo=${change('to')} onPreset=${setRange} />
    </div>
    <div class="filters">
      <${Field}
        label="From sequence"
        type="number"
        min="1"
        value=${form.fromSequence}
        error=${about('fromSequence')}
        onInput=${(event) => change('fromSequence')(event.currentTarget.value)}
      />
      <${Field}
        label="To sequence"
        type="number"
        min="1"
        value=${form.toSequence}
        error=${about('toSequence')}
        onInput=${(event) => change('toSequence')(event.currentTarget.value)}
      />
      <${Field}
        label="Events per second, at most"
        type="number"
        min="0.01"
        step="any"
        value=${form.rate}
        error=${about('eventsPerSecond')}
        placeholder="the limits of the endpoint"
        onInput=${(event) => change('rate')(event.currentTarget.value)}
      />
    </div>
    ${error && html`<p class="wrong" role="alert">
      ${error.message}
    </p>`}
    ${plan && html`<p class="notice ok" role="status">
      <b>
        ${formatNumber(plan.matching)} of ${formatNumber(plan.stored)} stored events match
      </b>${' '}
      (sequences ${formatNumber(plan.fromSequence)} to ${formatNumber(plan.toSequence)})
      ${form.rate
        ? `; at ${form.rate}/s that takes ${formatDuration(Number(plan.matching) / Number(form.rate))}`
        : ''}
      .
    </p>`}
    <${Command} line=${line} parts=${[]} />
    <div class="acts">
      <button type="submit">Count</button>
      <button type="button" class="primary" disabled=${!plan || plan.matching === 0} onClick=${start}>
        Start the replay
      </button>
      <button type="button" onClick=${() => setParams({ new: '' })}>
        Cancel
      </button>
    </div>
  </form>`;
}
