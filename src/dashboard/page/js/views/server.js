// The server itself: readiness, actors, store and clock.
import { hasRole, callApi, getJson, sendRequest, postJson } from '../api.js';
import { runAction } from '../actions.js';
import { formatBytes, formatDuration, formatNumber, shortName } from '../format.js';
import { html, useState } from '../html.js';
import { parseJson } from '../json.js';
import { usePoll } from '../poll.js';
import { getReadiness } from '../resources.js';
import { isClustered, useParam, useStore } from '../state.js';
import { Table } from '../table.js';
import { Cluster } from './cluster.js';
import { Badge, Command, Facts, Failed, Field, Head, Loaded, TabPanel, Tabs, Time } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

const TABS = [
  ['state', 'State'],
  ['settings', 'Settings'],
  ['store', 'Store and backup'],
  ['supervision', 'Supervision'],
  ['cluster', 'Cluster'],
];

export default function Server() {
  const [tab, setTab] = useParam('tab', 'state');
  const isNode = useStore(isClustered);
  return html`
    <${Head} title="Server" />
    <${Tabs}
      name="Parts of the server"
      tabs=${TABS.filter(([id]) => id !== 'cluster' || isNode)}
      value=${tab}
      onChange=${setTab}
    />
    <${TabPanel} value=${tab}>
      ${tab === 'state' && html`<${State} />`}
      ${tab === 'settings' && html`<${Settings} />`}
      ${tab === 'store' && html`<${Store} />`}
      ${tab === 'supervision' && html`<${Supervision} />`}
      ${tab === 'cluster' && html`<${Cluster} />`}
    <//>
  `;
}

function State() {
  const ready = usePoll(getReadiness, ['ready']);
  const clock = usePoll((signal) => /** @type {Promise<Schemas['Clock']>} */ (getJson('/clock', signal)), ['clock']);
  const facts = useFacts();
  return html`
    <${Loaded} poll=${ready}>
      ${(/** @type {Schemas['Readiness']} */ data) => html`<section class="panel">
        <h2>Readiness</h2>
        <${Facts}
          rows=${[
            ['Accepts events', data.ready ? html`<${Badge} kind="ok">yes<//>` : html`<${Badge} kind="bad">no<//>`],
            ['Phase', data.phase],
            ['Journal', data.journal],
            ['Lost events', formatNumber(data.lostEvents)],
            data.shards !== undefined && [
              'Shards',
              data.shards.map(({ shard, state }) => `${shard} ${state}`).join(', '),
            ],
            data.problems.length > 0 && [
              'Problems',
              html`<ul class="plain">
                ${data.problems.map((one) => html`<li>${one}</li>`)}
              </ul>`,
            ],
          ]}
        />
        <${Command} parts=${['health']} />
      </section>`}
    <//>
    <${Loaded} poll=${facts}>
      ${(/** @type {Schemas['ServerFacts']} */ data) => html`<section class="panel">
        <h2>Program</h2>
        <${Facts}
          rows=${[
            ['Version', data.version],
            ['Started', html`<${Time} at=${data.started} />`],
            ...data.listeners.map((one) => [
              `Connections of ${one.name}`,
              `${formatNumber(one.open)} open, ${formatNumber(one.admitted)} accepted, ${formatNumber(one.refused)} refused`,
            ]),
            ['Memory', formatBytes(data.process.residentBytes)],
            ['Processor time', formatDuration(data.process.cpuSeconds)],
            ['Threads', formatNumber(data.process.threads)],
            ['Open files', `${formatNumber(data.process.openFiles)} of ${formatNumber(data.process.mostFiles)}`],
            ['Free disk of the store', formatBytes(data.diskFreeBytes)],
          ]}
        />
        <${Command} parts=${['server']} />
      </section>`}
    <//>
    <${Loaded} poll=${clock}>
      ${(/** @type {Schemas['Clock']} */ data) => html`<section class="panel">
        <h2>Clock</h2>
        <${Facts}
          rows=${[
            ['Time by which events age', html`<${Time} at=${data.time} />`],
            ['System clock', html`<${Time} at=${data.wallClock} />`],
            ['System clock ahead by', formatDuration(data.wallClockAheadSeconds)],
            [
              'Expiry',
              data.expiryPaused ? html`<${Badge} kind="warn">paused until the clock is confirmed<//>` : html`<${Badge} kind="ok">on<//>`,
            ],
          ]}
        />
        ${data.expiryPaused && hasRole('operate') && html`<button
          type="button"
          class="primary"
          onClick=${() => runAction(() => postJson('/clock'), 'Clock confirmed', 'gridhook clock confirm')}
        >
          Confirm the system clock
        </button>`}
        <${Command} parts=${['clock', 'show']} />
      </section>`}
    <//>
  `;
}

const useFacts = () =>
  usePoll((signal) => /** @type {Promise<Schemas['ServerFacts']>} */ (getJson('/server', signal)), ['server']);

/** What an operator changed. */
function Settings() {
  return html`
    <${Loaded} poll=${useFacts()} isEmpty=${(data) => data.settings.length === 0} empty="Every setting has its default.">
      ${(/** @type {Schemas['ServerFacts']} */ data) => html`<${Table}
        name="Settings that differ from the defaults"
        rows=${data.settings}
        id=${(row) => row.key}
        columns=${
          /** @type {import('../table.js').Columns<Schemas['ServerSetting']>} */ ([
            {
              key: 'key',
              name: 'Setting',
              cell: (row) => html`<code data-open tabindex="-1">
                ${row.key}
              </code>`,
            },
            { key: 'value', name: 'Value', wide: true, cell: (row) => html`<code>${row.value}</code>` },
            { key: 'origin', name: 'From', wide: true, cell: (row) => row.origin },
          ])
        }
      />`}
    <//>
    <p class="hint">As the server was started with them. Values of secrets are not shown.</p>
    <${Command} parts=${['config', 'check', '--changed']} />
  `;
}

/** Reads lines of progress until the last one, which is the result. */
async function readProgress(path, body, tell) {
  const response = await sendRequest('POST', path, { body });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let last = {};
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const part of parts.filter(Boolean)) {
      last = parseJson(part);
      tell(last);
    }
  }
  return last;
}

function Store() {
  const [folder, setFolder] = useState('');
  return html`
    ${hasRole('operate') && html`<${Work}
      title="Check the store"
      about="Reads every record. Publishing and delivery go on."
      name="Check"
      path="/store/check"
      command=${['fsck', '--online']}
    />`}
    ${hasRole('admin') && html`<${Work}
      title="Back up the store"
      about="A copy of the store at one moment, checked before it is complete."
      name="Back up"
      path="/store/backup"
      body=${{ folder }}
      isReady=${folder.startsWith('/')}
      command=${['backup', folder || '/srv/backups/monday']}
    >
      <${Field}
        label="New folder on the machine of the server"
        value=${folder}
        placeholder="/srv/backups/monday"
        onInput=${(event) => setFolder(event.currentTarget.value)}
      />
    <//>`}
    ${!hasRole('operate') && html`<div class="empty">Your role may not check or back up the store.</div>`}
  `;
}

function Work({ title, about, name, path, body = undefined, isReady = true, command: parts, children = null }) {
  const [line, setLine] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const start = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    setLine(null);
    try {
      await readProgress(path, body, setLine);
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  const report = line?.report;
  return html`<form class="panel fields" onSubmit=${start}>
    <h2>${title}</h2>
    <p class="about">${about}</p>
    ${children}
    <div class="acts">
      <button type="submit" class="primary" disabled=${isBusy || !isReady}>
        ${name}
      </button>
      ${isBusy && html`<span role="status">${line?.progress ?? 'started'}</span>`}
    </div>
    <${Failed} error=${error} />
    ${line?.error && html`<p class="notice bad" role="alert">
      ${line.error}
    </p>`}
    ${report && html`<div class=${`notice ${report.findings.length > 0 ? 'bad' : 'ok'}`} role="status">
      <b>
        ${report.findings.length === 0 ? 'Nothing is wrong.' : `${formatNumber(report.findings.length)} findings`}
      </b>
      <ul class="plain">
        ${report.findings.map((one) => html`<li>${typeof one === 'string' ? one : JSON.stringify(one)}</li>`)}
      </ul>
      <${Facts}
        rows=${Object.entries(report.counts).map(([what, count]) => [
          what,
          formatNumber(/** @type {any} */ (count)),
        ])}
      />
    </div>`}
    ${line?.backup && html`<div class="notice ok" role="status">
      <b>Backup complete.</b>
      <pre class="text" tabindex="0" role="region" aria-label="Backup">
        ${JSON.stringify(line.backup, null, 2)}
      </pre>
    </div>`}
    <${Command} parts=${parts} />
  </form>`;
}

function Supervision() {
  const poll = usePoll(
    (signal) => /** @type {Promise<Schemas['Supervision']>} */ (callApi('GET', '/supervision', { signal })),
    ['supervision'],
  );
  return html`<${Loaded} poll=${poll}>
    ${(/** @type {Schemas['Supervision']} */ data) => html`
      <div class="panel">
        <${Facts}
          rows=${[
            ['Actors', formatNumber(data.actors)],
            [
              'Restarts',
              Object.entries(data.ends)
                .map(([kind, n]) => `${kind} ${formatNumber(n)}`)
                .join(', '),
            ],
            [
              'Recovery',
              data.recovery.count > 0
                ? `p50 ${formatDuration(data.recovery.p50)}, p99 ${formatDuration(data.recovery.p99)}, longest ${formatDuration(data.recovery.longest)}`
                : 'none yet',
            ],
            [
              'Quarantined events',
              data.quarantined > 0 ? html`<${Badge} kind="bad">${formatNumber(data.quarantined)}<//>` : '0',
            ],
          ]}
        />
      </div>
      ${data.mostRestarted.length > 0 && html`<${Table}
        name="Most restarted actors"
        rows=${data.mostRestarted}
        id=${(row) => [row.kind, row.topic, row.subscription, row.store].join(' ')}
        columns=${
          /** @type {import('../table.js').Columns<Schemas['SupervisedActor']>} */ ([
            { key: 'kind', name: 'Actor', cell: (row) => row.kind },
            {
              key: 'who',
              name: 'Of',
              cell: (row) => [shortName(row.topic), row.subscription, row.store].filter(Boolean).join(' / '),
            },
            { key: 'restarts', name: 'Restarts', num: true, cell: (row) => formatNumber(row.restarts) },
            { key: 'last', name: 'Last', cell: (row) => html`<${Time} at=${row.lastEnd} />` },
            { key: 'cause', name: 'Cause', wide: true, cell: (row) => row.lastCause ?? '' },
            {
              key: 'quarantined',
              name: 'Quarantined',
              num: true,
              cell: (row) => formatNumber(row.quarantined?.count),
            },
          ])
        }
      />`}
      <${Command} parts=${['supervision']} />
    `}
  <//>`;
}
