// The ledger of an event subscription: every attempt and every end, by time and outcome.
import { get, may, pathOf, withQuery } from '../api.js';
import { OUTCOMES, STEPS, withWords } from '../causes.js';
import { absolute, command, millis, now, num, splitId, topicArgument, words } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { usePoll } from '../poll.js';
import { link, setParams, useParam, useStore, zone } from '../state.js';
import { Opener, Table } from '../table.js';
import { Command, Facts, Field, Loaded, Outcome, Select, Time, ViewLink, Words } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

/** A time as the API takes it: what a field for local times has is UTC here. */
export const instant = (text) => (text ? `${text.length === 16 ? `${text}:00` : text}Z` : '');

const cut = (time) => new Date(time).toISOString().slice(0, 19);
const DAY = 86400e3;

/** Frequent ranges, with their bounds in UTC. @type {Record<string, () => string[]>} */
const PRESETS = {
  'The last hour': () => [cut(now() - 3600e3), ''],
  Yesterday: () => {
    const today = Math.floor(now() / DAY) * DAY;
    return [cut(today - DAY), cut(today)];
  },
};

/** Bounds of time: in UTC in the address, in the zone of the page in the fields. */
export function Range({ from, to, setFrom, setTo, onPreset = null }) {
  const isUtc = useStore(zone) === 'utc';
  const bound = (label, value, set) => html`<${Field} label=${`${label} (${isUtc ? 'UTC' : 'local time'})`} type="datetime-local" step="1" value=${isUtc || !value ? value : absolute(`${value}Z`).replace(' ', 'T')}
    onChange=${({ currentTarget: { value: given } }) => set(isUtc || !given ? given : cut(given))} />`;
  return html`
    ${bound('From', from, setFrom)}
    ${bound('To', to, setTo)}
    ${onPreset && html`<div class="acts">${Object.entries(PRESETS).map(([name, bounds]) => html`<button type="button" class="small" key=${name} onClick=${() => onPreset(bounds())}>${name}</button>`)}</div>`}`;
}

export function Attempts({ id }) {
  const [outcome, setOutcome] = useParam('outcome');
  const [from, setFrom] = useParam('from');
  const [to, setTo] = useParam('to');
  const [opened, open] = useParam('open');
  const [place, go] = useParam('after');
  const [before, setBefore] = useState(/** @type {string[]} */ ([]));
  useEffect(() => setBefore([]), [id, outcome, from, to]);
  const { topic, name } = splitId(id);
  const query = { outcome, from: instant(from), to: instant(to), order: 'newest', top: 100, continue: place };
  const poll = usePoll((signal) => /** @type {Promise<Schemas['Ledger']>} */ (get(withQuery(`${pathOf(id)}/ledger`, query), signal)), ['ledger', id, query]);
  const keyOf = (line) => `${line.at} ${line.firstSequence} ${line.step}`;
  const choose = (set) => (value) => {
    setParams({ after: '' });
    set(value);
  };
  return html`
    <div class="filters">
      <${Select} label="Outcome" value=${outcome} onChange=${choose(setOutcome)} options=${[['', 'all'], ...STEPS.map((step) => [step, words(step)]), ...OUTCOMES.map((one) => [one, `Attempt: ${words(one).toLowerCase()}`])]} />
      <${Range} from=${from} to=${to} setFrom=${choose(setFrom)} setTo=${choose(setTo)} onPreset=${([after, before]) => setParams({ after: '', from: after, to: before })} />
    </div>
    <${Loaded} poll=${poll} isEmpty=${(ledger) => ledger.lines.length === 0} empty="No attempt in this range.">${(/** @type {Schemas['Ledger']} */ ledger) => html`
      <p class="faint">The newest first${ledger.oldest ? html`; the ledger begins <${Time} at=${ledger.oldest} />` : ''}</p>
      <${Table} name="Attempts" hold=${JSON.stringify(query)} rows=${ledger.lines} id=${keyOf} opened=${opened}
        details=${(line) => html`<${Line} line=${line} topic=${topic} />`}
        columns=${/** @type {import('../table.js').Columns<Schemas['LedgerLine']>} */ ([
          { key: 'at', name: 'Time', cell: (line) => html`<${Opener} isOpen=${opened === keyOf(line)} onClick=${() => open(opened === keyOf(line) ? '' : keyOf(line))}><${Time} at=${line.at} /><//>` },
          { key: 'step', name: 'Step', cell: (line) => html`<${Outcome} step=${line.step} />` },
          { key: 'events', name: 'Events', num: true, cell: (line) => num(line.events) },
          { key: 'seq', name: 'Sequence', num: true, cell: (line) => html`<${ViewLink} aria-label=${`Event ${num(line.firstSequence)}`} href=${link('event', { topic, sequence: line.firstSequence })}>${num(line.firstSequence)}<//>${line.lastSequence === line.firstSequence ? '' : ` – ${num(line.lastSequence)}`}` },
          { key: 'attempt', name: 'Attempt', num: true, cell: (line) => num(line.attempt) },
          { key: 'status', name: 'Status', num: true, cell: (line) => line.status ?? '' },
          { key: 'outcome', name: 'Outcome', cell: (line) => html`<${Words} code=${line.outcome ?? line.reason} />` },
          { key: 'ms', name: 'Duration', num: true, cell: (line) => millis(line.milliseconds) },
          { key: 'said', name: 'Answer', wide: true, cell: (line) => line.response?.text.slice(0, 120) ?? line.filter?.reason ?? '' },
        ])} />
      <div class="toolbar">
        <button type="button" disabled=${!place} onClick=${() => { go(''); setBefore([]); }}>Newest</button>
        <button type="button" disabled=${!place} onClick=${() => { go(before.at(-1) ?? ''); setBefore(before.slice(0, -1)); }}>Newer</button>
        <button type="button" disabled=${!ledger.continue} onClick=${() => { setBefore([...before, place]); go(ledger.continue); }}>Older</button>
      </div>`}
    <//>
    <${Command} line=${command('ledger', topicArgument(topic), name, ...(outcome ? ['--outcome', outcome] : []))} parts=${[]} />
  `;
}

/** What was sent and what came back, without secrets. @param {{ response?: Schemas['LedgerResponse'] | null }} props */
export const Heads = ({ response }) => [['Request', response?.requestHead], ['Response headers', response?.responseHead]].map(([name, head]) => head && html`<details key=${name}><summary>${name}</summary><pre class="text">${head}</pre></details>`);

/**
 * All of one line.
 * @param {{ line: Schemas['LedgerLine'], topic: string }} props
 */
export function Line({ line, topic }) {
  return html`<${Facts} rows=${[
    ['What', withWords(line.text)],
    ['Time', html`<${Time} at=${line.at} />`],
    may('read') && ['Lane', line.lane],
    line.nextAttempt && ['Next attempt', html`<${Time} at=${line.nextAttempt} />, not before`],
    line.reason && ['Reason', html`<${Words} code=${line.reason} />`],
    line.file && ['File', html`<code>${line.file}</code>`],
    line.filter && ['Filter', html`version ${line.filter.version}${line.filter.stoppedBy ? html`, stopped by <code>${line.filter.stoppedBy}</code>: ${line.filter.reason}${line.filter.value ? html`; it saw <code>${line.filter.value}</code>` : ''}` : ''}`],
    line.response && [line.response.byEndpoint ? 'The endpoint answered' : 'The request ended with', html`${line.response.text && html`<blockquote>${line.response.text}</blockquote>`}<${Heads} response=${line.response} />`],
    topic && ['Event', html`<${ViewLink} aria-label=${`Event ${num(line.firstSequence)}`} href=${link('event', { topic, sequence: line.firstSequence })}>${num(line.firstSequence)}<//>`],
  ]} />`;
}
