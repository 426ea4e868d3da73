// Filter bench: a draft filter against the newest events or pasted ones. Nothing is sent or changed.
import { callApi, isPortal, pathOf, postJson } from '../api.js';
import { formatCommand, formatNumber, formatPercent, shortName, splitId, topicArgument } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { parseExact, printJson } from '../json.js';
import { usePoll } from '../poll.js';
import { subscriptionsOf, listTopics } from '../resources.js';
import { link, setParams, useParams } from '../state.js';
import { Table } from '../table.js';
import { Badge, Command, Failed, Field, FirstListed, Head, Loaded, Select, ViewLink } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

export default function FilterBench() {
  const params = useParams();
  const id = params.get('id') ?? '';
  const topic = id ? splitId(id).topic : (params.get('topic') ?? '');
  const list = usePoll(isPortal() ? null : listTopics, ['topics of filters'], 0);
  const inside = usePoll(
    topic && !isPortal() ? (signal) => subscriptionsOf(topic, signal) : null,
    ['filters of', topic],
    0,
  );
  const resource = usePoll(
    id ? (signal) => callApi('GET', pathOf(id), { signal, isExact: true }) : null,
    ['filter of', id],
    0,
  );
  const choices = (list.data ?? []).filter((one) => one.kind !== 'namespace');
  const known = topic && !choices.some((one) => one.id === topic) ? [[topic, shortName(topic)]] : [];
  const filter = resource.data?.properties.filter ?? resource.data?.properties.filtersConfiguration;
  return html`
    <${Head}
      title="Filter bench"
      about="Which events a filter lets pass, and what stops the others. Nothing is sent or changed."
    />
    ${!isPortal() && html`<div class="filters">
      <${Select}
        label="Topic"
        value=${topic}
        onChange=${(next) => setParams({ topic: next, id: '' })}
        options=${[['', 'choose …'], ...choices.map((one) => [one.id, shortName(one.id)]), ...known]}
      />
      <${Select}
        label="Start from the filter of"
        value=${id}
        onChange=${(next) => setParams({ id: next, topic })}
        options=${[['', 'none: a new filter'], ...(inside.data ?? []).map((one) => [one.id, one.name])]}
      />
    </div>`}
    <${FirstListed} rows=${inside.data} />
    <${Failed} error=${resource.error ?? inside.error ?? list.error} />
    ${topic ? (!id || filter) && html`<${Bench} key=${`${topic} ${id}`} topic=${topic} id=${id} filter=${filter ?? {}} isOwn=${true} />` : html`<div class="empty">Choose a topic.</div>`}
  `;
}

const filterText = (filter) => printJson(filter, 2);

/**
 * @param {{ topic: string, id: string, filter: any, isOwn?: boolean }} props with `isOwn` the filter is edited here
 */
export function Bench({ topic, id, filter, isOwn = false }) {
  const [text, setText] = useState(() => filterText(filter));
  const [source, setSource] = useState(isPortal() ? 'pasted' : '100');
  const [pasted, setPasted] = useState('');
  const [shown, setShown] = useState('');
  const [result, setResult] = useState(
    /** @type {{ draft: Schemas['FilterReport'], present: Schemas['FilterReport'] | null } | null} */ (null),
  );
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    if (!isOwn) setText(filterText(filter));
  }, [isOwn, filterText(filter)]);
  const path = `${pathOf(id || topic)}/testFilter`;
  const test = async (event) => {
    event?.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const draft = parseExact(text);
      const events = source === 'pasted' ? { events: parseExact(pasted) } : { last: Number(source) };
      const [tried, present] = await Promise.all([
        postJson(path, { ...events, filter: draft }),
        id && JSON.stringify(draft) !== JSON.stringify(filter) ? postJson(path, events) : null,
      ]);
      setResult({ draft: tried, present });
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  const rows = result
    ? result.draft.results.map((one, index) => ({ ...one, index, before: result.present?.results[index]?.matches }))
    : [];
  const differing = rows.filter((row) => row.before !== undefined && row.before !== row.matches).length;
  const visible = rows.filter(
    (row) =>
      shown === '' ||
      (shown === 'matches'
        ? row.matches
        : shown === 'stopped'
          ? !row.matches
          : row.before !== undefined && row.before !== row.matches),
  );
  const { name } = id ? splitId(id) : { name: '' };
  return html`<form onSubmit=${test}>
    <div class="columns">
      ${isOwn && html`<${Field}
        label="Filter (JSON)"
        hint="includedEventTypes, subjectBeginsWith, subjectEndsWith, advancedFilters [{ operatorType, key, value or values }]"
      >
        ${(a11y) => html`<textarea
          ...${a11y}
          rows="9"
          spellcheck=${false}
          value=${text}
          onInput=${(event) => setText(event.currentTarget.value)}
        ></textarea>`}
      <//>`}
      <div class="fields">
        <${Select}
          label="Events"
          value=${source}
          onChange=${setSource}
          options=${[
            ...(isPortal()
              ? []
              : [
                  ['10', 'the newest 10'],
                  ['100', 'the newest 100'],
                  ['1000', 'the newest 1,000'],
                ]),
            ['pasted', 'pasted'],
          ]}
        />
        ${source === 'pasted' && html`<${Field} label="One event, or a list of events, as published">
          ${(a11y) => html`<textarea
            ...${a11y}
            rows="6"
            spellcheck=${false}
            value=${pasted}
            onInput=${(event) => setPasted(event.currentTarget.value)}
          ></textarea>`}
        <//>`}
        <p class="acts">
          <button type="submit" class="primary" disabled=${isBusy || !topic}>
            Test the filter
          </button>
        </p>
      </div>
    </div>
    ${error && html`<${Failed} error=${error} />`}
    ${result && html`
      <div class="toolbar" role="status">
        <b>
          ${formatNumber(result.draft.matched)} of ${formatNumber(result.draft.tested)} match
        </b>
        <span class="faint">
          ${formatPercent(result.draft.tested ? result.draft.matched / result.draft.tested : null)}
        </span>
        ${result.present && html`<span>
          the present filter: ${formatNumber(result.present.matched)}; ${formatNumber(differing)} differ
        </span>`}
        <${Select}
          label="Show"
          value=${shown}
          onChange=${setShown}
          options=${[
            ['', 'all'],
            ['matches', 'matching'],
            ['stopped', 'stopped'],
            ...(result.present ? [['differ', 'different from now']] : []),
          ]}
        />
      </div>
      ${rows.length === 0 ? html`<div class="empty">The topic has no stored event to test. Paste some.</div>` : html`<${Table}
        name="Results"
        rows=${visible}
        id=${(row) => `${row.index}`}
        columns=${
          /** @type {import('../table.js').Columns<Schemas['FilterReportLine'] & { index: number, before: boolean | undefined }>} */ ([
            {
              key: 'id',
              name: 'Event',
              cell: (row) => html`<${ViewLink} data-open href=${link('event', { topic, id: row.id })}>
                ${row.id}
              <//>`,
            },
            {
              key: 'matches',
              name: 'Result',
              cell: (row) => html`<${Badge} kind=${row.matches ? 'ok' : 'none'}>${row.matches ? 'matches' : 'stopped'}<//>`,
            },
            result.present && {
              key: 'before',
              name: 'Now',
              cell: (row) =>
                row.before === row.matches ? 'same' : html`<${Badge} kind="warn">${row.before ? 'matches' : 'stopped'}<//>`,
            },
            { key: 'by', name: 'Stopped by', cell: (row) => html`<code>${row.stoppedBy ?? ''}</code>` },
            { key: 'why', name: 'Why', cell: (row) => row.reason ?? '' },
            { key: 'saw', name: 'It saw', wide: true, cell: (row) => html`<code>${row.value ?? ''}</code>` },
          ])
        }
      />`}
    `}
    ${id && html`<${Command}
      line=${formatCommand(
        'subscriptions',
        'test-filter',
        topicArgument(topic),
        name,
        '--draft',
        'filter.json',
        ...(source === 'pasted' ? ['--file', 'events.json'] : ['--last', source]),
      )}
      parts=${[]}
    />`}
  </form>`;
}
