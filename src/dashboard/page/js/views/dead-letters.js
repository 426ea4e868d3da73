// Dead letters: find them, look at one with its event, send them again, delete them.
import { isPortal, hasRole, callApi, getJson, readParts, pathOf, postJson, withQuery } from '../api.js';
import { REASONS } from '../causes.js';
import {
  formatCommand,
  formatCount,
  formatNumber,
  shortName,
  splitId,
  subscriptionId,
  topicArgument,
  formatCode,
} from '../format.js';
import { html, useState } from '../html.js';
import { isJson, memberText, indentJson } from '../json.js';
import { refreshAll, useChanges, usePoll } from '../poll.js';
import { getTop } from '../resources.js';
import { runAction } from '../actions.js';
import { goTo, link, setParams, useParam, useParams, useStepState } from '../state.js';
import { NO_ROWS, Opener, Pages, Table } from '../table.js';
import {
  Badge,
  Command,
  Facts,
  Failed,
  Field,
  Head,
  Loaded,
  Loading,
  Payload,
  Search,
  Select,
  Time,
  ViewLink,
  Words,
  askOperator,
  showMessage,
} from '../ui.js';
import { Range, utcInstant } from './attempts.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

export default function DeadLetters() {
  const id = useParams().get('id') ?? '';
  const title = id ? `Dead letters of ${splitId(id).name}` : 'Dead letters';
  return html`
    <${Head}
      title=${title}
      crumbs=${
        id
          ? [
              ['Dead letters', link('dead-letters')],
              [shortName(splitId(id).topic), link('topic', { id: splitId(id).topic })],
            ]
          : []
      }
      about=${id ? null : 'Events that were given up, of all event subscriptions.'}
    >
      ${id && html`<a href=${link('subscription', { id })}>Event subscription</a>`}
    <//>
    ${id ? html`<${DeadLettersOf} id=${id} />` : html`
      <${Places} />
      ${hasRole('read') && html`<${Newest} />`}
    `}
  `;
}

/** The event subscriptions that have dead letters. */
function Places() {
  const [text, setText] = useParam('q');
  const poll = usePoll((signal) => getTop({ by: 'deadLetters', top: 500 }, signal), ['dead letters'], 5000);
  return html`
    <div class="filters">
      <${Search}
        label="Search by event subscription"
        value=${text}
        onChange=${(next) => {
          setParams({ after: '' });
          setText(next);
        }}
      />
    </div>
    <${Loaded}
      poll=${poll}
      isEmpty=${(data) => data.top.every((line) => !line.deadLettered && !line.dropped)}
      empty="No event was given up."
    >
      ${(data) => {
        const rows = data.top.filter(
          (line) =>
            (line.deadLettered || line.dropped) && line.subscription.toLowerCase().includes(text.toLowerCase()),
        );
        return html`
          <p>
            <b>
              ${formatNumber(data.deadLettered)} dead-lettered, ${formatNumber(data.dropped)} dropped
            </b>${' '}
            in all event subscriptions, since each was created.
          </p>
          <${Table}
            name="Event subscriptions with dead letters"
            rows=${rows}
            id=${(line) => subscriptionId(line.topic, line.subscription)}
            columns=${
              /** @type {import('../table.js').Columns<Schemas['TopLine']>} */ ([
                {
                  key: 'name',
                  name: 'Event subscription',
                  cell: (line) => html`<a data-open href=${link('dead-letters', { id: subscriptionId(line.topic, line.subscription) })}>
                    ${line.subscription}
                  </a>`,
                },
                { key: 'topic', name: 'Topic', cell: (line) => shortName(line.topic) },
                { key: 'dead', name: 'Dead-lettered', num: true, cell: (line) => formatNumber(line.deadLettered) },
                { key: 'dropped', name: 'Dropped', num: true, cell: (line) => formatNumber(line.dropped) },
                { key: 'pending', name: 'Pending', num: true, cell: (line) => formatNumber(line.pending) },
              ])
            }
          />
        `;
      }}
    <//>
  `;
}

/** The newest dead letters of all event subscriptions. */
function Newest() {
  const [text] = useParam('q');
  const [reason, setReason] = useParam('reason');
  const [place] = useParam('after');
  const query = { search: text, reason, top: 100, continue: place };
  const poll = usePoll(
    (signal) =>
      /** @type {Promise<Schemas['NewestDeadLetters']>} */ (getJson(withQuery('/deadLetters', query), signal)),
    ['newest', query],
    5000,
  );
  const name = (line) => subscriptionId(line.topic, line.subscription);
  return html`
    <h2>Newest</h2>
    <div class="filters">
      <${Select}
        label="Reason"
        value=${reason}
        onChange=${(next) => setParams({ after: '', reason: next })}
        options=${[['', 'all'], ...REASONS.map((one) => [one, formatCode(one)])]}
      />
    </div>
    <${Loaded}
      poll=${poll}
      isEmpty=${(page) => page.value.length === 0 && !page.continue && !place}
      empty="No dead letter matches."
    >
      ${(/** @type {Schemas['NewestDeadLetters']} */ page) => html`
        <${Table}
          name="Newest dead letters"
          hold=${JSON.stringify(query)}
          rows=${page.value}
          id=${(line) => `${line.at} ${name(line)} ${line.firstSequence}`}
          columns=${
            /** @type {import('../table.js').Columns<Schemas['DeadLetterLine']>} */ ([
              { key: 'at', name: 'Given up', cell: (line) => html`<${Time} at=${line.at} />` },
              {
                key: 'name',
                name: 'Event subscription',
                cell: (line) => html`<a data-open href=${link('dead-letters', { id: name(line) })}>
                  ${line.subscription}
                </a>`,
              },
              { key: 'topic', name: 'Topic', cell: (line) => shortName(line.topic) },
              { key: 'reason', name: 'Reason', cell: (line) => html`<${Words} code=${line.reason} />` },
              { key: 'attempts', name: 'Attempts', num: true, cell: (line) => formatNumber(line.attempt) },
              { key: 'events', name: 'Events', num: true, cell: (line) => formatNumber(line.events) },
              {
                key: 'seq',
                name: 'Sequence',
                num: true,
                cell: (line) => html`<${ViewLink}
                  aria-label=${`Event ${formatNumber(line.firstSequence)}`}
                  href=${link('event', { topic: line.topic, sequence: line.firstSequence })}
                >
                  ${formatNumber(line.firstSequence)}
                <//>`,
              },
            ])
          }
        />
        <${Pages} next=${page.continue} />
      `}
    <//>
    <p class="hint">From the ledgers: some may have been redriven or purged since.</p>
    <${Command}
      parts=${['dead-letters', 'newest', ...(reason ? ['--reason', reason] : []), ...(text ? ['--search', text] : [])]}
    />
  `;
}

export function DeadLettersOf({ id }) {
  const [reason, setReason] = useParam('reason');
  const [stage, setStage] = useParam('stage');
  const [event, setEvent] = useParam('event');
  const [from, setFrom] = useParam('from');
  const [to, setTo] = useParam('to');
  const [opened, setOpened] = useParam('open');
  const [place] = useParam('after');
  const filter = withoutEmpty({ reason, stage, id: event, from: utcInstant(from), to: utcInstant(to) });
  // An action never applies to rows that are not shown.
  const [selected, setSelected] = useStepState('selected', [id, filter], NO_ROWS);
  const path = withQuery(`${pathOf(id)}/deadLetters`, { ...filter, $top: 100, $skipToken: place });
  const poll = usePoll(
    (signal) => /** @type {Promise<Schemas['DeadLetters']>} */ (callApi('GET', path, { signal })),
    ['dead letters', path],
  );
  useChanges(poll.refresh);
  const chosen = Object.keys(filter).length > 0 ? { filter } : { all: true };
  const choose = (set) => (value) => {
    setParams({ after: '', open: '' });
    set(value);
  };
  return html`
    <div class="filters">
      <${Search} label="Event id" value=${event} onChange=${choose(setEvent)} />
      <${Select}
        label="Reason"
        value=${reason}
        onChange=${choose(setReason)}
        options=${[['', 'all'], ...REASONS.map((one) => [one, formatCode(one)])]}
      />
      <${Select}
        label="Stage"
        value=${stage}
        onChange=${choose(setStage)}
        options=${[
          ['', 'all'],
          ['waiting', 'waiting for its file'],
          ['written', 'written'],
        ]}
      />
      <${Range}
        from=${from}
        to=${to}
        setFrom=${choose(setFrom)}
        setTo=${choose(setTo)}
        onPreset=${([after, before]) => setParams({ after: '', open: '', from: after, to: before })}
      />
    </div>
    <${Loaded}
      poll=${poll}
      isEmpty=${(page) => page.value.length === 0 && page.problems.length === 0}
      empty="No dead letter matches."
    >
      ${(/** @type {Schemas['DeadLetters']} */ page) => html`
        ${page.problems.map((problem) => html`<p class="notice warn" key=${problem.path}>
          <b>${problem.path}</b> cannot be read: ${problem.reason}
        </p>`)}
        ${(hasRole('operate') || isPortal()) && html`<div class="toolbar">
          <${Total} key=${path} id=${id} selection=${chosen} />
          <${Redrive}
            id=${id}
            selection=${{ keys: [...selected] }}
            name=${`Redrive ${formatNumber(selected.size)} selected …`}
            disabled=${selected.size === 0}
          />
          <${Redrive} id=${id} selection=${chosen} name="Redrive all that match …" />
          ${hasRole('admin') && html`<${Purge}
            id=${id}
            selection=${selected.size > 0 ? { keys: [...selected] } : chosen}
            name=${
              selected.size > 0 ? `Purge ${formatNumber(selected.size)} selected …` : 'Purge all that match …'
            }
          />`}
        </div>`}
        <${Table}
          name="Dead letters"
          rows=${page.value}
          id=${(row) => row.key}
          selected=${selected}
          onSelect=${hasRole('operate') || isPortal() ? setSelected : undefined}
          opened=${opened}
          details=${(row) => html`<${Letter} id=${id} row=${row} />`}
          columns=${
            /** @type {import('../table.js').Columns<Schemas['DeadLetter']>} */ ([
              {
                key: 'id',
                name: 'Event',
                cell: (row) => html`<${Opener} isOpen=${opened === row.key} onClick=${() => setOpened(opened === row.key ? '' : row.key)}>
                  ${row.id ?? row.key}
                <//>`,
              },
              { key: 'type', name: 'Type', cell: (row) => row.eventType ?? '' },
              { key: 'subject', name: 'Subject', cell: (row) => row.subject ?? '' },
              { key: 'reason', name: 'Reason', cell: (row) => html`<${Words} code=${row.deadLetterReason} />` },
              { key: 'status', name: 'Last status', num: true, cell: (row) => row.lastHttpStatusCode ?? '' },
              { key: 'attempts', name: 'Attempts', num: true, cell: (row) => formatNumber(row.deliveryAttempts) },
              { key: 'last', name: 'Last attempt', cell: (row) => html`<${Time} at=${row.lastDeliveryAttemptTime} />` },
              { key: 'published', name: 'Published', cell: (row) => html`<${Time} at=${row.publishTime} />` },
              { key: 'stage', name: 'Stage', cell: (row) => html`<${Badge}>${row.stage}<//>` },
            ])
          }
        />
        <${Pages} next=${page.nextLink && new URL(page.nextLink, location.href).searchParams.get('$skipToken')} />
      `}
    <//>
    <${Command} line=${deadLetterCommand('list', id, { filter })} parts=${[]} />
  `;
}

const withoutEmpty = (object) => Object.fromEntries(Object.entries(object).filter(([, value]) => value));

/** The command for the same dead letters. */
function deadLetterCommand(verb, id, { filter = undefined, keys = [], all = false }, ...more) {
  const { topic, name } = splitId(id);
  const flags = Object.entries(filter ?? {}).flatMap(([key, value]) => [`--${key}`, value]);
  return formatCommand(
    'dead-letters',
    verb,
    topicArgument(topic),
    name,
    ...flags,
    ...keys.slice(0, 20).flatMap((key) => ['--key', key]),
    ...(all && verb !== 'list' ? ['--all'] : []),
    ...more,
  );
}

/**
 * One dead letter with its event, byte for byte.
 * @param {{ id: string, row: Schemas['DeadLetter'] }} props
 */
function Letter({ id, row }) {
  const path = `${pathOf(id)}/deadLetters/${encodeURIComponent(row.key)}`;
  const poll = usePoll((signal) => callApi('GET', path, { signal, text: true }), ['letter', path], 0);
  const text = poll.data === undefined ? '' : (memberText(poll.data, 'event') ?? poll.data);
  return html`
    <${Failed} error=${poll.error} />
    <${Facts}
      rows=${[
        ['Reason', row.deadLetterReason],
        ['Last outcome', row.lastDeliveryOutcome],
        ['Attempts', formatNumber(row.deliveryAttempts)],
        row.file && ['File', html`<code>${row.file}</code>`],
        row.fileDue && ['File is due', html`<${Time} at=${row.fileDue} />`],
        [
          'Event',
          row.id && html`<${ViewLink} href=${link('event', { topic: splitId(id).topic, id: row.id })}>trace ${row.id}<//>`,
        ],
      ]}
    />
    ${poll.loading ? html`<${Loading} />` : poll.data !== undefined && html`<${Payload} text=${isJson(text) ? indentJson(text) : text} name=${`${row.id ?? 'dead-letter'}.json`} />`}
  `;
}

/** Adds up all parts of a count or a purge. */
async function countParts(path, body) {
  let count = 0;
  const problems = [];
  for await (const part of /** @type {AsyncGenerator<Schemas['DeadLettersPurged']>} */ (readParts(path, body))) {
    count += part.deadLetters;
    problems.push(...part.problems);
  }
  return { count, problems };
}

/** The number of matching dead letters, on request only: the server reads all their files for it. */
function Total({ id, selection }) {
  const [total, setTotal] = useState(/** @type {number | null} */ (null));
  const add = () =>
    countParts(`${pathOf(id)}/deadLetters/redrive`, { ...selection, dryRun: true }).then(
      (found) => setTotal(found.count),
      (error) => showMessage(error.message, { kind: 'bad' }),
    );
  return total === null ? html`<button type="button" onClick=${add}>
    Count
  </button>` : html`<b role="status">${formatCount(total, 'matches', 'match')}</b>`;
}

function Redrive({ id, selection, name, disabled = false }) {
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const path = `${pathOf(id)}/deadLetters/redrive`;
  const begin = async () => {
    try {
      setPlan({ ...(await countParts(path, { ...selection, dryRun: true })), rate: '', keep: false });
    } catch (error) {
      showMessage(error.message, { kind: 'bad' });
    }
  };
  if (!plan)
    return html`<button type="button" disabled=${disabled} onClick=${begin}>
      ${name}
    </button>`;
  const same = deadLetterCommand(
    'redrive',
    id,
    selection,
    ...(plan.rate ? ['--rate', plan.rate] : []),
    ...(plan.keep ? ['--keep'] : []),
  );
  const submit = async (event) => {
    event.preventDefault();
    const body = {
      ...selection,
      total: plan.count,
      ...(plan.rate ? { rate: Number(plan.rate) } : {}),
      ...(plan.keep ? { keep: true } : {}),
    };
    const started = await runAction(
      () => postJson(path, body),
      (job) => `Redrive started: job ${job.job}`,
      same,
    );
    setPlan(null);
    if (started) goTo('jobs', { id });
  };
  return html`<form class="panel" onSubmit=${submit} aria-label="Redrive">
    <p>
      <b>${formatCount(plan.count, 'dead letter')}</b> would be sent again, to ${splitId(id).name} only.
    </p>
    ${plan.problems.map((problem) => html`<p class="wrong">
      ${problem.path}: ${problem.reason}
    </p>`)}
    <${Field}
      label="Events per second, at most"
      type="number"
      min="0.01"
      step="any"
      value=${plan.rate}
      autofocus
      placeholder="the limits of the endpoint"
      onInput=${(event) => setPlan({ ...plan, rate: event.currentTarget.value })}
    />
    <p>
      <label>
        <input type="checkbox" checked=${plan.keep} onChange=${() => setPlan({ ...plan, keep: !plan.keep })} /> Keep
        files whose dead letters were all sent again
      </label>
    </p>
    <${Command} line=${same} parts=${[]} />
    <div class="acts">
      <button type="submit" class="primary" disabled=${plan.count === 0}>
        Redrive ${formatNumber(plan.count)}
      </button>
      <button type="button" onClick=${() => setPlan(null)}>
        Cancel
      </button>
    </div>
  </form>`;
}

function Purge({ id, selection, name }) {
  const path = `${pathOf(id)}/deadLetters/purge`;
  const begin = async () => {
    let total;
    try {
      total = (await countParts(path, { ...selection, dryRun: true })).count;
    } catch (error) {
      showMessage(error.message, { kind: 'bad' });
      return;
    }
    const same = deadLetterCommand('purge', id, selection, '--yes');
    if (total === 0) showMessage('No dead letter matches.', { kind: 'warn' });
    else if (
      await askOperator({
        title: `Purge ${formatNumber(total)} dead ${total === 1 ? 'letter' : 'letters'}?`,
        body: 'They are deleted for good.',
        confirm: 'Purge',
        danger: true,
        typed: String(total),
        line: same,
      })
    ) {
      await runAction(
        () => countParts(path, selection),
        (done) => `${formatCount(done.count, 'dead letter')} purged`,
        same,
      );
      refreshAll();
    }
  };
  return html`<button type="button" class="danger" onClick=${begin}>
    ${name}
  </button>`;
}
