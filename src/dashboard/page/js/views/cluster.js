// The nodes of a cluster: who owns the shards, what each node has applied, and what an operator can do.
import { runAction } from '../actions.js';
import { getJson, hasRole, postJson } from '../api.js';
import { formatCommand, formatNumber } from '../format.js';
import { html } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { Table } from '../table.js';
import { Badge, Command, Facts, Loaded, Time, askOperator } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */
/** @typedef {Schemas['ClusterNode']} Node */
/** @typedef {Schemas['Ownership']['value'][number]} Shard */

const KINDS = {
  alive: 'ok',
  catchingUp: 'info',
  leaving: 'warn',
  failed: 'bad',
  draining: 'warn',
  drained: 'held',
  dead: 'bad',
};

const MOVES = 'Requests in flight finish first. Publishers may receive 503 for a moment, and you sign in again.';

/** @typedef {{ name: string, verb: string, of: string[], isOfOwner?: boolean, about: string, danger?: boolean, body?: any, flags?: string[] }} Action */

/** @type {Action[]} */
const ACTIONS = [
  { name: 'Make owner', verb: 'move', of: ['alive'], isOfOwner: false, about: MOVES, body: { shard: 0 } },
  {
    name: 'Drain',
    verb: 'drain',
    of: ['alive', 'catchingUp', 'leaving', 'failed'],
    about: `The node gives up what it owns and takes nothing. ${MOVES}`,
    body: { drain: true },
  },
  {
    name: 'End drain',
    verb: 'drain',
    of: ['draining', 'drained'],
    about: 'The node may own the store again.',
    body: { drain: false },
    flags: ['--end'],
  },
  {
    name: 'Forget',
    verb: 'forget',
    of: ['dead'],
    about:
      'For a node that is gone for good. The stream keeps nothing for it any more, so it may need a backup to join again.',
    danger: true,
  },
];

/** @param {Action} action @param {string} node */
async function runNodeAction({ name, verb, about, danger, body, flags = [] }, node) {
  const line = formatCommand('cluster', verb, ...(body?.shard === undefined ? [] : [`${body.shard}`]), node, ...flags);
  if (
    !(await askOperator({
      title: `${name}: ${node}?`,
      body: about,
      confirm: name,
      danger,
      typed: danger && node,
      line,
    }))
  )
    return;
  await runAction(() => postJson(`/cluster/${verb}`, { ...body, node }), `${name}: ${node} done`, line);
}

export function Cluster() {
  const nodes = usePoll(
    (signal) => /** @type {Promise<Schemas['ClusterStatus']>} */ (getJson('/cluster/status', signal)),
    ['cluster'],
  );
  const shards = usePoll(
    (signal) => /** @type {Promise<Schemas['Ownership']>} */ (getJson('/cluster/ownership', signal)),
    ['ownership'],
  );
  useChanges(nodes.refresh);
  useChanges(shards.refresh);
  const all = shards.data?.value ?? [];
  const shard = all.length > 1 ? undefined : all[0];
  return html`<${Loaded} poll=${nodes}>
    ${(/** @type {Schemas['ClusterStatus']} */ data) => {
      const total = (/** @type {number[]} */ positions) =>
        positions.reduce((sum, position) => sum + Number(position), 0);
      const last = (/** @type {number} */ of) => Math.max(...data.nodes.map((node) => Number(node.applied[of] ?? 0)));
      const lag = (/** @type {Node} */ node) => total(node.applied.map((applied, of) => last(of) - Number(applied)));
      // One of several shards is moved with the command.
      const actions = (/** @type {Node} */ node) =>
        ACTIONS.filter(
          ({ of, verb, isOfOwner = node.owns.length > 0 }) =>
            of.includes(node.state) && isOfOwner === node.owns.length > 0 && (verb !== 'move' || all.length < 2),
        );
      return html`
        ${data.nodes.flatMap((node) =>
          (node.settingDifferences ?? []).map(({ setting, here, there }) => html`<p class="notice warn" role="status" key=${`${node.name} ${setting}`}>
            ${node.name} has ${setting} ${there}, and ${data.node} has ${here}: give all nodes the same.
          </p>`),
        )}
        ${data.nodes.flatMap((node) =>
          (node.failures ?? []).map(({ shard: number, cause }) => html`<p class="notice bad" role="alert" key=${`${node.name} ${number}`}>
            ${node.name} cannot serve shard ${number}: ${cause}
          </p>`),
        )}
        ${data.problem && html`<p class="notice bad" role="alert">
          The records of the cluster cannot be read: ${data.problem}
        </p>`}
        <div class="panel">
          <${Facts}
            rows=${[
              ['Cluster', data.name],
              ['Seen by', data.node],
              all.length > 1 ? ['Shards', formatNumber(all.length)] : ['Owner', shard?.ownerName],
              shard?.wantedBy && ['Next owner', shard.wantedBy],
              all.length < 2 && ['Times claimed', formatNumber(shard?.claims)],
            ]}
          />
        </div>
        <${Table}
          name="Nodes"
          rows=${data.nodes}
          id=${(node) => node.name}
          columns=${
            /** @type {import('../table.js').Columns<Node>} */ ([
              {
                key: 'name',
                name: 'Node',
                cell: (node) => html`<span data-open tabindex="-1">
                  ${node.name}
                </span>`,
              },
              {
                key: 'state',
                name: 'State',
                cell: (node) => html`
                  <${Badge} kind=${KINDS[node.state]}>${node.state.replace('U', ' u')}<//>${' '}
                  ${node.owns.length > 0 && html`<${Badge} kind="info">owner<//>`}
                `,
              },
              all.length > 1 && {
                key: 'owns',
                name: 'Shards',
                cell: (node) => [...node.owns, ...(node.ownsControlPlane ? ['control'] : [])].join(' '),
              },
              {
                key: 'copies',
                name: 'Copies',
                cell: (node) =>
                  all.length > 1 ? node.complete.join(' ') : node.complete.length > 0 ? 'yes' : 'no',
              },
              { key: 'lag', name: 'Records behind', num: true, cell: (node) => formatNumber(lag(node)) },
              { key: 'synced', name: 'Synced', num: true, cell: (node) => formatNumber(total(node.flushed)) },
              { key: 'renewed', name: 'Last renewal', cell: (node) => html`<${Time} at=${node.lastRenewal} />` },
              { key: 'address', name: 'Address', wide: true, cell: (node) => node.address },
              { key: 'version', name: 'Version', cell: (node) => node.version },
              hasRole('admin') && {
                key: 'act',
                name: 'Actions',
                cell: (node) => html`<div class="acts">
                  ${actions(node).map((action) => html`<button
                    type="button"
                    class=${`small ${action.danger ? 'danger' : ''}`}
                    key=${action.name}
                    aria-label=${`${action.name}: ${node.name}`}
                    onClick=${() => runNodeAction(action, node.name)}
                  >
                    ${action.name}
                  </button>`)}
                </div>`,
              },
            ])
          }
        />
        ${all.length > 1 && html`<${Table}
          name="Shards"
          rows=${all}
          id=${(shard) => shard.partitionId}
          columns=${
            /** @type {import('../table.js').Columns<Shard>} */ ([
              {
                key: 'shard',
                name: 'Shard',
                num: true,
                cell: (shard) => html`<span data-open tabindex="-1">
                  ${shard.partitionId}
                </span>`,
              },
              { key: 'owner', name: 'Owner', cell: (shard) => shard.ownerName },
              { key: 'copies', name: 'Copies', cell: (shard) => (shard.copies ?? []).join(' ') },
              { key: 'wanted', name: 'Next owner', cell: (shard) => shard.wantedBy },
              { key: 'claims', name: 'Times claimed', num: true, cell: (shard) => formatNumber(shard.claims) },
            ])
          }
        />`}
        <${Command} parts=${['cluster', 'status']} />
      `;
    }}
  <//>`;
}
