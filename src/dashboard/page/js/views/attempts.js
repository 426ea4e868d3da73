// The ledger of an event subscription: every attempt and every final result, by time and outcome.
import { getJson, hasRole, pathOf, withQuery } from '../api.js';
import { OUTCOMES, STEPS } from '../causes.js';
import {
  formatTime,
  formatCommand,
  formatCount,
  formatMillis,
  serverNow,
  formatNumber,
  splitId,
  topicArgument,
  formatCode,
} from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { isJson, indentJson } from '../json.js';
import { usePoll } from '../poll.js';
import { link, setParams, useParam, useStore, zone } from '../state.js';
import { Opener, Table } from '../table.js';
import {
  Command,
  Facts,
  Failed,
  Field,
  Loaded,
  Loading,
  Outcome,
  Payload,
  Select,
  Sentence,
  Time,
  ViewLink,
  Words,
} from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

/** The value of a `datetime-local` field, which is in UTC here, as the API expects it. */
export const utcInstant = (text) => (text ? `${text.length === 16 ? `${text}:00` : text}Z` : '');

const fieldTime = (time) => new Date(time).toISOString().slice(0, 19);
const DAY = 86400e3;

/** Frequent ranges, with their bounds in UTC. @type {Record<string, () => string[]>} */
const PRESETS = {
  'The last hour': () => [fieldTime(serverNow() - 3600e3), ''],
  Yesterday: () => {
    const today = Math.floor(serverNow() / DAY) * DAY;
    return [fieldTime(today - DAY), fieldTime(today)];
  },
};

/** The bounds of a time range: in UTC in the address, in the time zone of the page in the fields. */
export function Range({ from, to, setFrom, setTo, onPreset = null }) {
  const isUtc = useStore(zone) === 'utc';
  const bound = (label, value, set) => html`<${Field}
    label=${`${label} (${isUtc ? 'UTC' : 'local time'})`}
    type="datetime-local"
    step="1"
    value=${isUtc || !value ? value : formatTime(`${value}Z`).replace(' ', 'T')}
    onChange=${({ currentTarget: { value: given } }) => set(isUtc || !given ? given : fieldTime(given))}
  />`;
  return html`
    ${bound('From', from, setFrom)}
    ${bound('To', to, setTo)}
    ${onPreset && html`<div class="acts">
      ${Object.entries(PRESETS).map(([name, bounds]) => html`<button type="button" class="small" key=${name} onClick=${() => onPreset(bounds())}>
        ${name}
      </button>`)}
    </div>`}
  `;
}

export function Attempts({ id }) {
  const [outcome, setOutcome] = useParam('outcome');
  const [from, setFrom] = useParam('from');
  const [to, setTo] = useParam('to');
  const [opened, setOpened] = useParam('open');
  const [place, setPlace] = useParam('after');
  const [before, setBefore] = useState(/** @type {string[]} */ ([]));
  useEffect(() => setBefore([]), [id, outcome, from, to]);
  const { topic, name } = splitId(id);
  const query = { outcome, from: utcInstant(from), to: utcInstant(to), order: 'newest', top: 100, continue: place };
  const poll = usePoll(
    (signal) => /** @type {Promise<Schemas['Ledger']>} */ (getJson(withQuery(`${pathOf(id)}/ledger`, query), signal)),
    ['ledger', id, query],
  );
  const keyOf = (line) => `${line.at} ${line.firstSequence} ${line.step}`;
  const choose = (set) => (value) => {
    setParams({ after: '' });
    set(value);
  };
  return html`
    <div class="filters">
      <${Select}
        label="Outcome"
        value=${outcome}
        onChange=${choose(setOutcome)}
        options=${[
          ['', 'all'],
          ...STEPS.map((step) => [step, formatCode(step)]),
          ...OUTCOMES.map((one) => [one, `Attempt: ${formatCode(one).toLowerCase()}`]),
        ]}
      />
      <${Range}
        from=${from}
        to=${to}
        setFrom=${choose(setFrom)}
        setTo=${choose(setTo)}
        onPreset=${([after, before]) => setParams({ after: '', from: after, to: before })}
      />
    </div>
    <${Loaded} poll=${poll} isEmpty=${(ledger) => ledger.lines.length === 0} empty="No attempt in this range.">
      ${(/** @type {Schemas['Ledger']} */ ledger) => html`
        <p class="faint">
          The newest first
          ${ledger.oldest ? html`
            ; the ledger begins <${Time} at=${ledger.oldest} />
          ` : ''}
        </p>
        <${Table}
          name="Attempts"
          hold=${JSON.stringify(query)}
          rows=${ledger.lines}
          id=${keyOf}
          opened=${opened}
          details=${(line) => html`<${Line} id=${id} line=${line} topic=${topic} />`}
          columns=${
            /** @type {import('../table.js').Columns<Schemas['LedgerLine']>} */ ([
              {
                key: 'at',
                name: 'Time',
                cell: (line) => html`<${Opener}
                  isOpen=${opened === keyOf(line)}
                  onClick=${() => setOpened(opened === keyOf(line) ? '' : keyOf(line))}
                >
                  <${Time} at=${line.at} />
                <//>`,
              },
              { key: 'step', name: 'Step', cell: (line) => html`<${Outcome} step=${line.step} />` },
              { key: 'events', name: 'Events', num: true, cell: (line) => formatNumber(line.events) },
              {
                key: 'seq',
                name: 'Sequence',
                num: true,
                cell: (line) => html`
                  <${ViewLink}
                    aria-label=${`Event ${formatNumber(line.firstSequence)}`}
                    href=${link('event', { topic, sequence: line.firstSequence })}
                  >
                    ${formatNumber(line.firstSequence)}
                  <//>
                  ${line.lastSequence === line.firstSequence ? '' : ` – ${formatNumber(line.lastSequence)}`}
                `,
              },
              { key: 'attempt', name: 'Attempt', num: true, cell: (line) => formatNumber(line.attempt) },
              { key: 'status', name: 'Status', num: true, cell: (line) => line.status ?? '' },
              { key: 'outcome', name: 'Outcome', cell: (line) => html`<${Words} code=${line.outcome ?? line.reason} />` },
              { key: 'ms', name: 'Duration', num: true, cell: (line) => formatMillis(line.milliseconds) },
              {
                key: 'said',
                name: 'Answer',
                wide: true,
                cell: (line) => line.response?.text.slice(0, 120) ?? line.filter?.reason ?? '',
              },
            ])
          }
        />
        <div class="toolbar">
          <button
            type="button"
            disabled=${!place}
            onClick=${() => {
              setPlace('');
              setBefore([]);
            }}
          >
            Newest
          </button>
          <button
            type="button"
            disabled=${!place}
            onClick=${() => {
              setPlace(before.at(-1) ?? '');
              setBefore(before.slice(0, -1));
            }}
          >
            Newer
          </button>
          <button
            type="button"
            disabled=${!ledger.continue}
            onClick=${() => {
              setBefore([...before, place]);
              setPlace(ledger.continue);
            }}
          >
            Older
          </button>
        </div>
      `}
    <//>
    <${Command}
      line=${formatCommand('ledger', topicArgument(topic), name, ...(outcome ? ['--outcome', outcome] : []))}
      parts=${[]}
    />
  `;
}

/** The steps of the ledger that belong to a request. */
const REQUEST_STEPS = new Set(['delivered', 'deferred', 'undeliverable', 'late']);

/**
 * The request of an attempt with its body, rebuilt from the log on request. `shard` has the log of a
 * spread topic; lines of the ledger have it themselves.
 * @param {{ id: string, line: Schemas['LedgerLine'], shard?: number | null }} props
 */
export function Request({ id, line, shard = undefined }) {
  const [isOpen, setOpen] = useState(false);
  if (!REQUEST_STEPS.has(line.step)) return null;
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Request with its body</summary>
    ${isOpen && html`<${RequestText} id=${id} line=${line} shard=${shard ?? line.shard} />`}
  </details>`;
}

function RequestText({ id, line, shard }) {
  const path = withQuery(`${pathOf(id)}/request`, {
    from: line.firstSequence,
    to: line.lastSequence,
    attempt: line.attempt,
    shard,
  });
  const poll = usePoll(
    (signal) => /** @type {Promise<Schemas['DeliveryRequest']>} */ (getJson(path, signal)),
    ['request', path],
    0,
  );
  if (poll.error) return html`<${Failed} error=${poll.error} retry=${poll.refresh} />`;
  if (!poll.data) return html`<${Loading} />`;
  const { head, body, events, truncated, settingsSince } = poll.data;
  const isOther = settingsSince && Date.parse(settingsSince) > Date.parse(line.at);
  return html`
    ${isOther && html`<p class="notice warn">
      The event subscription was changed after this attempt: this is the request as it is sent now.
    </p>`}
    ${(truncated || events !== Number(line.events)) && html`<p class="notice">
      It has ${formatNumber(events)} of ${formatCount(line.events, 'event')}: the others are too long to show, no
      longer stored, or do not match the filter.
    </p>`}
    ${head && html`<pre class="text">${head}</pre>`}
    <${Payload} text=${isJson(body) ? indentJson(body) : body} name=${`request-${line.firstSequence}.json`} />
  `;
}

/** What was sent and what came back, without secrets. @param {{ response?: Schemas['LedgerResponse'] | null }} props */
export const Heads = ({ response }) =>
  [
    ['Request', response?.requestHead],
    ['Response headers', response?.responseHead],
  ].map(
    ([name, head]) =>
      head && html`<details key=${name}>
        <summary>${name}</summary>
        <pre class="text">${head}</pre>
      </details>`,
  );

/**
 * The details of one line.
 * @param {{ id?: string, line: Schemas['LedgerLine'], topic: string }} props
 */
export function Line({ id = '', line, topic }) {
  return html`<${Facts}
    rows=${[
      ['What', html`<${Sentence} text=${line.text} />`],
      ['Time', html`<${Time} at=${line.at} />`],
      hasRole('read') && ['Lane', line.lane],
      line.nextAttempt && [
        'Next attempt',
        html`
          <${Time} at=${line.nextAttempt} />, not before
        `,
      ],
      line.reason && ['Reason', html`<${Words} code=${line.reason} />`],
      line.file && ['File', html`<code>${line.file}</code>`],
      line.filter && [
        'Filter',
        html`
          version ${line.filter.version}
          ${line.filter.stoppedBy ? html`
            , stopped by <code>${line.filter.stoppedBy}</code>: ${line.filter.reason}
            ${line.filter.value ? html`
              ; it saw <code>${line.filter.value}</code>
            ` : ''}
          ` : ''}
        `,
      ],
      line.response && [
        line.response.byEndpoint ? 'The endpoint returned' : 'The request ended with',
        html`
          ${line.response.text && html`<blockquote>${line.response.text}</blockquote>`}
          <${Heads} response=${line.response} />
        `,
      ],
      id && REQUEST_STEPS.has(line.step) && ['Sent', html`<${Request} id=${id} line=${line} />`],
      topic && [
        'Event',
        html`<${ViewLink}
          aria-label=${`Event ${formatNumber(line.firstSequence)}`}
          href=${link('event', { topic, sequence: line.firstSequence })}
        >
          ${formatNumber(line.firstSequence)}
        <//>`,
      ],
    ]}
  />`;
}
