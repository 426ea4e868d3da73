// Retry schedules: when an edition of the delivery policy retries, by status, and simulations of it.
import { getJson, postJson } from '../api.js';
import { Chart } from '../charts.js';
import { formatCommand, formatDuration, exactDuration, formatNumber } from '../format.js';
import { html, useState } from '../html.js';
import { usePoll } from '../poll.js';
import { link, useParam } from '../state.js';
import { Table } from '../table.js';
import { Command, Facts, Failed, Field, Head, Loaded, Select, Words } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

export default function Editions() {
  const poll = usePoll(
    (signal) => /** @type {Promise<Schemas['Editions']>} */ (getJson('/editions', signal)),
    ['editions'],
    0,
  );
  return html`
    <${Head}
      title="Retry schedule"
      about="When an event that failed is tried again, and what a simulated endpoint makes of it."
    />
    <${Loaded} poll=${poll}>${(data) => html`<${Edition} data=${data} />`}<//>
  `;
}

/** @param {{ data: Schemas['Editions'] }} props */
function Edition({ data }) {
  const [name, setName] = useParam('edition', data.default);
  const [destination, setDestination] = useParam('destination', 'webhook');
  const edition = data.editions.find((one) => one.name === name) ?? data.editions[0];
  const rows = edition.schedules.filter((one) => one.destination === destination);
  return html`
    <div class="filters">
      <${Select}
        label="Edition"
        value=${edition.name}
        onChange=${setName}
        options=${data.editions.map((one) => [
          one.name,
          one.name === data.default ? `${one.name} (default)` : one.name,
        ])}
      />
      <${Select}
        label="Destination"
        value=${destination}
        onChange=${setDestination}
        options=${[
          ['webhook', 'webhook'],
          ['resource', 'any other'],
        ]}
      />
    </div>
    <div class="panel">
      <${Facts}
        rows=${[
          [
            'Attempts',
            `at most ${formatNumber(edition.maxDeliveryAttempts)}, within ${formatDuration(edition.eventTimeToLiveInMinutes * 60)}`,
          ],
          [
            'Jitter',
            edition.jitterShare > 0
              ? `adds up to ${formatNumber(edition.jitterShare * 100)} % of a wait, at most ${formatDuration(edition.jitterMaxSeconds)}`
              : 'none',
          ],
          ['Retry-After', `is kept up to ${formatDuration(edition.retryAfterMaxSeconds)}`],
          ['Suspension', `after ${formatNumber(edition.suspendedAfterFailures)} failed requests in a row`],
          ['Dead-letter file', `${formatDuration(edition.deadLetterDelaySeconds)} after the event is given up`],
        ]}
      />
    </div>
    <h2>Attempts by status</h2>
    <p class="hint">
      Where every attempt fails at once with that status, without jitter and${' '}
      <a href=${link('help', { chapter: 'delivery' })}>suspension</a>.
    </p>
    <${Table}
      name="Attempts by status"
      rows=${rows}
      id=${(row) => `${row.status} ${row.withDeadLetter}`}
      columns=${
        /** @type {import('../table.js').Columns<Schemas['RetrySchedule']>} */ ([
          {
            key: 'status',
            name: 'Status',
            cell: (row) => html`<span data-open tabindex="-1">
              ${row.status ?? 'any other'}
              ${row.withDeadLetter ? ', with a dead-letter destination' : ''}
            </span>`,
          },
          { key: 'count', name: 'Attempts', num: true, cell: (row) => formatNumber(row.attemptsSeconds.length) },
          { key: 'at', name: 'At', wide: true, cell: (row) => row.attemptsSeconds.map(exactDuration).join(', ') },
          { key: 'end', name: 'Then', cell: (row) => html`<${Words} code=${row.endsWith} />` },
        ])
      }
    />
    <${Line} rows=${rows} days=${edition.eventTimeToLiveInMinutes / 1440} />
    <${Simulation} edition=${edition.name} />
  `;
}

/** A line for each status: a tick for each attempt, from the first one to the end of the event's life. */
function Line({ rows, days }) {
  const end = days * 86400;
  return html`<figure class="panel timelines" aria-label="Attempts over the time to live">
    <figcaption>Attempts until ${formatDuration(end)} after the first; the scale is logarithmic</figcaption>
    ${rows.map((row) => html`<div class="timeline" key=${`${row.status} ${row.withDeadLetter}`}>
      <span>
        ${row.status ?? 'other'}
        ${row.withDeadLetter ? ' *' : ''}
      </span>
      <svg
        viewBox="0 0 1000 20"
        preserveAspectRatio="none"
        role="img"
        aria-label=${`${row.status ?? 'any other status'}: ${formatNumber(row.attemptsSeconds.length)} attempts, the last ${formatDuration(row.attemptsSeconds.at(-1))} after the first`}
      >
        <line class="grid" x1="0" x2="1000" y1="10" y2="10" />
        ${row.attemptsSeconds.map((at) => html`<rect
          key=${at}
          class="tick"
          x=${(990 * Math.log10(1 + at)) / Math.log10(1 + end)}
          y="2"
          width="4"
          height="16"
        />`)}
      </svg>
    </div>`)}
  </figure>`;
}

/** @param {{ edition: string }} props */
function Simulation({ edition }) {
  const [form, setForm] = useState({ models: '', subscriptions: '100', days: '2', rate: '0.01', seed: '1' });
  const [result, setResult] = useState(/** @type {Schemas['Simulation'] | null} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const models = form.models.split(/[\s,]+/).filter(Boolean);
  const numbers = ['subscriptions', 'days', 'rate', 'seed'];
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      setResult(
        await postJson('/simulate', {
          edition,
          models,
          ...Object.fromEntries(numbers.filter((key) => form[key]).map((key) => [key, Number(form[key])])),
        }),
      );
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  const field = (key, label, more = {}) => html`<${Field}
    label=${label}
    value=${form[key]}
    error=${error?.target === key ? error.message : null}
    onInput=${(event) => setForm({ ...form, [key]: event.currentTarget.value })}
    ...${more}
  />`;
  const line = formatCommand(
    'simulate',
    '--edition',
    edition,
    ...models.flatMap((one) => ['--model', one]),
    ...numbers.filter((key) => form[key]).flatMap((key) => [`--${key}`, form[key]]),
  );
  return html`<form class="panel fields" onSubmit=${submit} aria-label="Simulate">
    <h2>Simulate</h2>
    <p class="about">
      The delivery policy of this server runs against endpoint models, in virtual time. Nothing is sent.
    </p>
    ${field('models', 'Endpoint models', {
      placeholder: 'outage:5h=2 healthy',
      hint: html`
        healthy, slow, black-hole, flapping, outage, overloaded, small-batches, wrong-address, faulty, bad-events,
        each with <code>:NUMBER</code> and <code>=SHARE</code>; all of them without any
      `,
    })}
    <div class="filters">
      ${field('subscriptions', 'Event subscriptions', { type: 'number', min: 1 })}
      ${field('days', 'Days', { type: 'number', step: 'any' })}
      ${field('rate', 'Events per second', { type: 'number', step: 'any' })}
      ${field('seed', 'Seed', { type: 'number', min: 0 })}
    </div>
    <${Failed} error=${error} />
    <div class="acts">
      <button type="submit" class="primary" disabled=${isBusy}>
        Run
      </button>
      ${isBusy && html`<span role="status">It computes …</span>`}
    </div>
    ${result && html`
      <div role="status">
        <p>
          ${formatNumber(result.events)} events for each of ${formatNumber(result.subscriptions)} event subscriptions,${' '}
          ${formatDuration(result.simulatedSeconds)} simulated.
        </p>
      </div>
      <${Outcome} models=${result.models} />
    `}
    <${Command} line=${line} parts=${[]} />
  </form>`;
}

/** @param {{ models: Schemas['SimulatedModel'][] }} props */
function Outcome({ models }) {
  const of = (key) => models.map((row) => (row[key] / Math.max(1, row.events)) * 100);
  return html`
    <${Chart}
      title="Share of the events, by endpoint model"
      unit=" %"
      xs=${models.map((_, index) => index)}
      xText=${(x) => models[Math.round(x)]?.model ?? ''}
      dots=${true}
      series=${[
        {
          name: 'given up',
          values: models.map((row) => ((row.deadLettered + row.dropped) / Math.max(1, row.events)) * 100),
        },
        { name: 'pending', values: of('pending') },
        { name: 'delivered', values: of('delivered') },
      ]}
    />
    <${Table}
      name="Results by endpoint model"
      rows=${models}
      id=${(row) => row.model}
      columns=${
        /** @type {import('../table.js').Columns<Schemas['SimulatedModel']>} */ ([
          {
            key: 'model',
            name: 'Endpoint model',
            cell: (row) => html`<span data-open tabindex="-1">
              ${row.model}
            </span>`,
          },
          { key: 'events', name: 'Events', num: true, cell: (row) => formatNumber(row.events) },
          { key: 'delivered', name: 'Delivered', num: true, cell: (row) => formatNumber(row.delivered) },
          { key: 'pending', name: 'Pending', num: true, cell: (row) => formatNumber(row.pending) },
          { key: 'dead', name: 'Dead-lettered', num: true, cell: (row) => formatNumber(row.deadLettered) },
          { key: 'dropped', name: 'Dropped', num: true, cell: (row) => formatNumber(row.dropped) },
          {
            key: 'attempts',
            name: 'Attempts per delivery',
            num: true,
            cell: (row) => formatNumber(row.attemptsPerDelivered),
          },
          { key: 'down', name: 'Attempts while down', num: true, cell: (row) => formatNumber(row.attemptsWhileDown) },
          { key: 'longest', name: 'Longest wait', num: true, cell: (row) => formatDuration(row.longestWaitSeconds) },
          {
            key: 'gone',
            name: 'Backlog gone, p99',
            num: true,
            cell: (row) => formatDuration(row.backlogGoneSeconds.p99),
          },
        ])
      }
    />
  `;
}
