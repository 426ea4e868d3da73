// One topic, domain or namespace: its state, event subscriptions, settings and access keys.
import { hasRole, callApi, getJson, pathOf, postJson } from '../api.js';
import { removeResource, runAction } from '../actions.js';
import {
  formatBytes,
  formatCommand,
  formatNumber,
  formatRate,
  shortName,
  subscriptionId,
  topicArgument,
} from '../format.js';
import { html, useState } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { addressOf, listInnerTopics, subscriptionsOf, getTop } from '../resources.js';
import { goTo, link, useParams } from '../state.js';
import { History } from './history.js';
import { TestEvent } from './browse.js';
import { EventTypes } from './event-type.js';
import { Middle, Table } from '../table.js';
import {
  Badge,
  Command,
  Condition,
  Copy,
  Facts,
  Failed,
  FirstListed,
  Figure,
  Head,
  Time,
  Loaded,
  askOperator,
  showMessage,
} from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

const isKind = (id, kind) => id.split('/').at(-2) === kind;
/** Topics and domains declare event types; topics below others do not. */
const hasEventTypes = (id) => !isKind(id, 'namespaces') && !/\/domains\/[^/]+\/topics\//.test(id);
/** Topics of a domain have the keys of their domain. */
const hasKeys = (id) => !/\/domains\/[^/]+\/topics\//.test(id);

export default function Topic() {
  const id = useParams().get('id') ?? '';
  const topic = usePoll((signal) => getJson(pathOf(id), signal), ['topic', id], 10000);
  const isNamespace = isKind(id, 'namespaces');
  const status = usePoll(
    isNamespace
      ? null
      : (signal) => /** @type {Promise<Schemas['TopicStatus']>} */ (getJson(`${pathOf(id)}/status`, signal)),
    ['topic status', id],
  );
  useChanges(topic.refresh);
  const [isTest, setTest] = useState(false);
  const name = shortName(id);
  const argument = topicArgument(id);
  const removal = formatCommand('topics', 'delete', argument, '--yes');
  const gone = async () => {
    if (
      await removeResource(
        id,
        name.split('/').at(-1),
        'Its events and event subscriptions are deleted, too. Events that wait are lost.',
        removal,
      )
    )
      goTo('topics');
  };
  return html`
    <${Head} title=${name} crumbs=${[['Topics', link('topics')]]}>
      ${!isNamespace && html`
        <a href=${link('event', { topic: id })}>Events</a>
        <a href=${link('tail', { topic: id })}>Live tail</a>
      `}
      ${hasRole('operate') && !isNamespace && html`<button type="button" onClick=${() => setTest(true)}>
        Publish a test event …
      </button>`}
      ${hasRole('admin') && !isNamespace && html`<button type="button" class="primary" onClick=${() => goTo('edit', { topic: id })}>
        New event subscription …
      </button>`}
      ${hasRole('admin') && html`<button type="button" class="danger" onClick=${gone}>
        Delete …
      </button>`}
    <//>
    <${Loaded} poll=${topic}>
      ${(data) => html`
        <${Failed} error=${status.error} />
        ${isTest && html`<${TestEvent} topic=${id} schema=${data.properties.inputSchema} onClose=${() => setTest(false)} />`}
        ${status.data?.full && html`<div class="notice bad" role="alert">
          <strong>This topic is full.</strong>
          <p>
            Its backlog is at journal.backlog_max, so publishers get 503. The slowest event subscription is${' '}
            ${status.data.largestBacklog?.subscription}.
          </p>
        </div>`}
        ${status.data && html`<${Figures} data=${status.data} id=${id} />`}
        <div class="panel">
          <${Facts}
            rows=${[
              [
                'Resource',
                html`
                  <code>${data.id}</code> <${Copy} text=${data.id} />
                `,
              ],
              [
                'Endpoint',
                data.properties.endpoint && html`
                  <code>${data.properties.endpoint}</code> <${Copy} text=${data.properties.endpoint} />
                `,
              ],
              ['Schema', data.properties.inputSchema],
              ['Retry edition', data.properties.edition],
              [
                'Publish with keys',
                data.properties.disableLocalAuth === undefined
                  ? null
                  : data.properties.disableLocalAuth
                    ? 'off'
                    : 'on',
              ],
              ['Allowed addresses', data.properties.inboundIpRules?.map((rule) => rule.ipMask).join(', ') || 'all'],
              [
                'Tags',
                Object.entries(data.tags ?? {})
                  .map(([key, value]) => `${key}=${value}`)
                  .join(', '),
              ],
              status.data?.largestBacklog && [
                'Largest backlog',
                `${status.data.largestBacklog.subscription}: ${formatBytes(status.data.largestBacklog.bytes)}`,
              ],
              status.data && [
                'Actor',
                `incarnation ${formatNumber(status.data.actor.incarnation)}, ${formatNumber(status.data.actor.restarts)} restarts`,
              ],
            ]}
          />
          <${Command} parts=${['topics', 'show', argument]} />
        </div>
        ${!isNamespace && html`<${History} topic=${id} />`}
        ${hasRole('admin') && hasKeys(id) && html`<${Keys} id=${id} argument=${argument} />`}
        ${(isNamespace || isKind(id, 'domains')) && html`<${Inner} id=${id} isNamespace=${isNamespace} />`}
        ${!isNamespace && html`<${Subscriptions} id=${id} />`}
        ${hasEventTypes(id) && html`<${EventTypes} topic=${id} />`}
      `}
    <//>
  `;
}

/** @param {{ data: Schemas['TopicStatus'], id: string }} props */
function Figures({ data, id }) {
  const kept = BigInt(data.logBeforeSequence) - BigInt(data.logFromSequence);
  return html`<dl class="figures">
    <${Figure} name="Published" value=${formatRate(data.publishedPerSecond)} />
    <${Figure}
      name="Bytes"
      value=${
        data.bytesPerSecond === null || data.bytesPerSecond === undefined
          ? '–'
          : `${formatBytes(data.bytesPerSecond)}/s`
      }
    />
    <${Figure} name="Published in all" value=${formatNumber(data.published)} />
    <${Figure}
      name="Without a match"
      value=${formatNumber(data.unmatched)}
      kind=${data.unmatched > 0 ? 'warn' : ''}
      title="Events that matched no event subscription, since the start of the server"
    />
    ${data.duplicateEvents > 0 && html`<${Figure}
      name="Duplicates"
      value=${formatNumber(data.duplicateEvents)}
      title="Events whose id was accepted before, since the start of the server"
    />`}
    <${Figure}
      name="Event subscriptions"
      value=${formatNumber(data.subscriptions)}
      href=${link('subscriptions', { topic: id })}
    />
    <${Figure} name="Stored events" value=${formatNumber(kept.toString())} href=${link('event', { topic: id })} />
    <${Figure} name="Log begins" value=${data.logFrom ? html`<${Time} at=${data.logFrom} />` : '–'} />
  </dl>`;
}

function Inner({ id }) {
  const poll = usePoll((signal) => listInnerTopics(id, signal), ['inner', id], 5000);
  return html`
    <h2>Topics in it</h2>
    <${Loaded} poll=${poll} empty="No topic in it yet. A domain topic is created with its first event subscription.">
      ${(rows) => html`<${Table}
        name="Topics in it"
        rows=${rows}
        id=${(row) => row.id}
        columns=${
          /** @type {import('../table.js').Columns<any>} */ ([
            {
              key: 'name',
              name: 'Name',
              cell: (row) => html`<a data-open href=${link('topic', { id: row.id })}>
                ${row.name}
              </a>`,
            },
            { key: 'state', name: 'State', cell: (row) => row.properties.provisioningState },
          ])
        }
      />`}
    <//>
  `;
}

function Subscriptions({ id }) {
  const poll = usePoll((signal) => subscriptionsOf(id, signal), ['subscriptions of', id], 5000);
  const figures = usePoll((signal) => getTop({ topic: id, by: 'name', top: 500 }, signal), ['conditions of', id], 5000);
  const lines = new Map(
    (figures.data?.top ?? []).map((line) => [subscriptionId(line.topic, line.subscription).toLowerCase(), line]),
  );
  useChanges(poll.refresh);
  return html`
    <h2>Event subscriptions</h2>
    <${Loaded}
      poll=${poll}
      empty=${
        html`
          <p>Nothing subscribes to this topic, so its events go nowhere.</p>
          <${Command}
            parts=${['subscriptions', 'create', topicArgument(id), 'NAME', '--endpoint', 'https://example.com/hook']}
          />
        `
      }
    >
      ${(rows) => html`
        <${FirstListed} rows=${rows} />
        <${Table}
          name="Event subscriptions"
          rows=${rows}
          id=${(row) => row.id}
          columns=${
            /** @type {import('../table.js').Columns<Schemas['EventSubscription'] & { properties: any }>} */ ([
              {
                key: 'name',
                name: 'Name',
                cell: (row) => html`<a data-open href=${link('subscription', { id: row.id })}>
                  ${row.name}
                </a>`,
              },
              { key: 'endpoint', name: 'Endpoint', cell: (row) => html`<${Middle} text=${addressOf(row.properties)} />` },
              {
                key: 'types',
                name: 'Event types',
                cell: (row) => row.properties.filter?.includedEventTypes?.join(', ') || 'all',
              },
              {
                key: 'condition',
                name: 'Condition',
                cell: (row) => {
                  const line = lines.get(row.id.toLowerCase());
                  const { provisioningState } = row.properties;
                  return html`
                    ${line && html`<${Condition} line=${line} />`}${' '}
                    ${provisioningState !== 'Succeeded' && html`<${Badge} kind="warn">${provisioningState}<//>`}
                  `;
                },
              },
            ])
          }
        />
        <p>
          <a href=${link('subscriptions', { topic: id })}>Figures of these event subscriptions</a>
        </p>
      `}
    <//>
  `;
}

/** Access keys, which are read and shown on request only. */
function Keys({ id, argument }) {
  const [keys, setKeys] = useState(/** @type {Schemas['Keys'] | null} */ (null));
  const reveal = async () => {
    try {
      setKeys(await postJson(`${pathOf(id)}/listKeys`));
    } catch (error) {
      showMessage(error.message, { kind: 'bad' });
    }
  };
  const regenerate = async (keyName) => {
    const line = formatCommand('topics', 'keys', argument, '--regenerate', keyName, '--yes');
    const yes = await askOperator({
      title: `Replace ${keyName}?`,
      body: 'Publishers that use it are refused at once.',
      confirm: 'Replace',
      danger: true,
      typed: keyName,
      line,
    });
    if (yes)
      setKeys(
        (await runAction(
          () => callApi('POST', `${pathOf(id)}/regenerateKey`, { body: { keyName } }),
          `${keyName} replaced`,
          line,
        )) ?? keys,
      );
  };
  return html`<section class="panel" aria-label="Access keys">
    <h2>Access keys</h2>
    ${keys === null ? html`<button type="button" onClick=${reveal}>
      Reveal the keys
    </button>` : html`
      ${['key1', 'key2'].map((name) => html`<div class="toolbar" key=${name}>
        <b>${name}</b> <code>${keys[name]}</code> <${Copy} text=${keys[name]} />
        <button type="button" class="small danger" onClick=${() => regenerate(name)}>
          Replace …
        </button>
      </div>`)}
      <button type="button" onClick=${() => setKeys(null)}>
        Hide
      </button>
    `}
    <${Command} parts=${['topics', 'keys', argument]} />
  </section>`;
}
