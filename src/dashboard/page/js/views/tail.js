// Live tail: events and outcomes as they happen.
import { formatNumber, shortName, subscriptionId, topicArgument } from '../format.js';
import { html, useEffect, useRef, useState } from '../html.js';
import { usePoll } from '../poll.js';
import { listTopics } from '../resources.js';
import { link, paused, useParam, useStore } from '../state.js';
import { Table } from '../table.js';
import { followTail } from '../tail.js';
import { Badge, Command, Head, Outcome, Search, Select, Time } from '../ui.js';
import { OUTCOMES, STEPS } from '../causes.js';
import { formatMillis, formatCode } from '../format.js';

/** The number of lines that are kept. */
const KEPT = 2000;
/** The pause between two drawings of the list, in milliseconds. */
const DRAW = 300;

export default function Tail() {
  const [topic, setTopic] = useParam('topic');
  const [subscription, setSubscription] = useParam('subscription');
  const [type, setType] = useParam('type');
  const [outcome, setOutcome] = useParam('outcome');
  const [status, setStatus] = useParam('status');
  const [only, setOnly] = useParam('only');
  const isPaused = useStore(paused);
  const list = usePoll(listTopics, ['topics of tail'], 0);
  const ring = useRef({
    lines: /** @type {any[]} */ ([]),
    count: 0,
    missed: 0,
    since: Date.now(),
    recent: /** @type {[number, number][]} */ ([]),
  });
  const [state, setState] = useState(/** @type {any} */ ({ kind: 'connecting' }));
  const [, redraw] = useState(0);
  const rest = useRef(isPaused);
  rest.current = isPaused;

  useEffect(() => {
    const own = ring.current;
    own.lines = [];
    let isDirty = true;
    const listener = followTail(
      { topic, subscription, type, outcome, status, only },
      {
        state: setState,
        lines: (lines) => {
          own.count += lines.length;
          own.recent.push([Date.now(), lines.length]);
          if (own.recent.length > 100) own.recent.splice(0, 50);
          for (const line of lines) if (line.kind === 'missed') own.missed += line.count;
          if (rest.current) return;
          for (const line of lines) line.row = `${(serial += 1)}`;
          own.lines = [...lines.slice(-KEPT).reverse(), ...own.lines].slice(0, KEPT);
          isDirty = true;
        },
      },
    );
    const timer = setInterval(() => {
      if (!isDirty || document.visibilityState === 'hidden') return;
      isDirty = false;
      redraw((n) => n + 1);
    }, DRAW);
    return () => {
      clearInterval(timer);
      listener.stop();
    };
  }, [topic, subscription, type, outcome, status, only]);

  const { lines, count, missed, recent } = ring.current;
  const pace = recent.filter(([at]) => at > Date.now() - 5000).reduce((sum, [, n]) => sum + n, 0) / 5;
  const choices = (list.data ?? []).filter((one) => one.kind !== 'namespace');
  const states = {
    open: ['ok', 'connected'],
    connecting: ['info', 'connecting'],
    lost: ['bad', state.text ?? 'lost'],
    asleep: ['none', 'asleep'],
  };
  const [kind, text] = states[state.kind] ?? ['none', state.kind];
  const place = topic ? `${topicArgument(topic)}${subscription ? `/${subscription}` : ''}` : '';
  return html`
    <${Head}
      title="Live tail"
      about="Events and outcomes as they happen. Lines that the browser cannot follow are counted."
    />
    <div class="filters">
      <${Select}
        label="Topic"
        value=${topic}
        onChange=${setTopic}
        options=${[
          ['', 'all'],
          ...choices.map((one) => [one.id, shortName(one.id)]),
          ...(topic && !choices.some((one) => one.id === topic) ? [[topic, shortName(topic)]] : []),
        ]}
      />
      <${Search} label="Event subscription" value=${subscription} onChange=${setSubscription} />
      <${Select}
        label="Show"
        value=${only}
        onChange=${setOnly}
        options=${[
          ['', 'events and outcomes'],
          ['events', 'events'],
          ['outcomes', 'outcomes'],
        ]}
      />
      <${Search} label="Event type" value=${type} onChange=${setType} />
      <${Select}
        label="Outcome"
        value=${outcome}
        onChange=${setOutcome}
        options=${[
          ['', 'all'],
          ...STEPS.map((one) => [one, formatCode(one)]),
          ...OUTCOMES.map((one) => [one, `Attempt: ${formatCode(one).toLowerCase()}`]),
        ]}
      />
      <${Search} label="HTTP status" value=${status} onChange=${(value) => setStatus(value.replace(/\D/g, ''))} />
    </div>
    <div class="toolbar">
      <span role="status">
        <${Badge} kind=${isPaused ? 'held' : kind}>${isPaused ? 'paused' : text}<//>
      </span>
      <span class="faint">
        ${formatNumber(pace)}/s, ${formatNumber(count)} lines
        ${state.reads === false ? ', by another tab of this browser' : ''}
      </span>
      ${missed > 0 && html`<${Badge} kind="warn">${formatNumber(missed)} missed<//>`}
      <button
        type="button"
        class="small"
        onClick=${() => {
          ring.current.lines = [];
          redraw((n) => n + 1);
        }}
      >
        Clear
      </button>
    </div>
    ${lines.length === 0 ? html`<div class="empty">Nothing yet. Lines appear here when events are published or delivered.</div>` : html`<${Table}
      name="Live tail"
      hold=${place}
      rows=${lines}
      id=${(row) => row.row}
      columns=${
        /** @type {import('../table.js').Columns<any>} */ ([
          { key: 'at', name: 'Time', cell: (row) => (row.at ? html`<${Time} at=${row.at} isLog />` : '') },
          {
            key: 'kind',
            name: 'What',
            cell: (row) =>
              row.kind === 'missed' ? html`<${Badge} kind="warn">${formatNumber(row.count)} missed<//>` : row.kind === 'event' ? html`<${Badge} kind="info">event<//>` : html`<${Outcome} step=${row.step} />`,
          },
          { key: 'topic', name: 'Topic', cell: (row) => shortName(row.topic) },
          {
            key: 'who',
            name: 'Event subscription',
            cell: (row) =>
              row.subscription ? html`<a href=${link('subscription', { id: subscriptionId(row.topic, row.subscription) })}>
                ${row.subscription}
              </a>` : '',
          },
          {
            key: 'sequence',
            name: 'Sequence',
            num: true,
            cell: (row) =>
              (row.sequence ?? row.firstSequence) === undefined ? '' : html`<a
                data-open
                aria-label=${`Event ${formatNumber(row.sequence ?? row.firstSequence)}`}
                href=${link('event', { topic: row.topic, sequence: row.sequence ?? row.firstSequence })}
              >
                ${formatNumber(row.sequence ?? row.firstSequence)}
              </a>`,
          },
          {
            key: 'what',
            name: 'Type or response',
            cell: (row) =>
              row.eventType ??
              [
                row.status,
                formatCode(row.outcome ?? row.reason),
                row.milliseconds === undefined || row.milliseconds === null ? '' : formatMillis(row.milliseconds),
              ]
                .filter(Boolean)
                .join(' · '),
          },
          {
            key: 'subject',
            name: 'Subject or text',
            wide: true,
            cell: (row) => row.subject ?? row.response?.text.slice(0, 120) ?? '',
          },
        ])
      }
    />`}
    <${Command}
      parts=${[
        'tail',
        place,
        ...(only ? [`--${only}`] : []),
        ...(type ? ['--type', type] : []),
        ...(outcome ? ['--outcome', outcome] : []),
        ...(status ? ['--status', status] : []),
      ]}
    />
  `;
}

let serial = 0;
