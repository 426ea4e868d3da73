// Named tokens: who may use the server, and for what.
import { callApi, getJson, hasRole, postJson } from '../api.js';
import { runAction } from '../actions.js';
import { formatCommand } from '../format.js';
import { html, useState } from '../html.js';
import { refreshAll, useChanges, usePoll } from '../poll.js';
import { Table } from '../table.js';
import { Command, Copy, Dialog, Failed, Field, Head, Loaded, Select, Time, askOperator } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

const ROLES = [
  ['publish', 'publish events'],
  ['consume', 'receive events of pull delivery'],
  ['read', 'read everything except secrets'],
  ['operate', 'also hold, replay and redrive'],
  ['admin', 'everything'],
];
const LIFETIMES = [
  ['', 'never'],
  ['1', 'in an hour'],
  ['8', 'in 8 hours'],
  ['168', 'in 7 days'],
  ['2160', 'in 90 days'],
];
const LINK_LIFETIMES = LIFETIMES.slice(1, 4);
const HOUR = 3_600_000;

const isLink = (token) => token.roles.includes('portal');

/** The tokens that are shown, and how to revoke one. */
export function TokenTable({ poll, name, filter, empty }) {
  useChanges(poll.refresh);
  const revoke = async (token) => {
    const line = formatCommand('tokens', 'revoke', token.name, '--yes');
    const isSure = await askOperator({
      title: `Revoke ${token.name}?`,
      body: 'Its holders are refused at once; their streams and sessions end.',
      confirm: 'Revoke',
      danger: true,
      line,
    });
    if (isSure)
      runAction(() => callApi('DELETE', `/tokens/${encodeURIComponent(token.name)}`), `${token.name} revoked`, line);
  };
  return html`
    <${Loaded} poll=${poll} isEmpty=${(data) => !data.value.some(filter)} empty=${empty}>
      ${(/** @type {Schemas['TokenList']} */ data) => html`<${Table}
        name=${name}
        rows=${data.value.filter(filter)}
        id=${(row) => row.name}
        columns=${
          /** @type {import('../table.js').Columns<Schemas['Token']>} */ ([
            {
              key: 'name',
              name: 'Name',
              cell: (row) => html`<b data-open tabindex="-1">
                ${row.name}
              </b>`,
            },
            { key: 'roles', name: 'Roles', cell: (row) => row.roles.join(', ') },
            { key: 'scopes', name: 'For', wide: true, cell: (row) => row.scopes.join(', ') || 'the whole server' },
            {
              key: 'created',
              name: 'Created',
              cell: (row) => html`
                <${Time} at=${row.created} /> by ${row.createdBy}
              `,
            },
            { key: 'expires', name: 'Expires', cell: (row) => (row.expires ? html`<${Time} at=${row.expires} />` : 'never') },
            {
              key: 'used',
              name: 'Last used',
              cell: (row) => (row.lastUsed ? html`<${Time} at=${row.lastUsed} />` : 'never'),
            },
            hasRole('admin') && {
              key: 'revoke',
              name: 'Action',
              cell: (row) => html`<button type="button" class="small" aria-label=${`Revoke ${row.name}`} onClick=${() => revoke(row)}>
                Revoke …
              </button>`,
            },
          ])
        }
      />`}
    <//>
    <${Command} parts=${['tokens', 'list']} />
  `;
}

export const useTokens = () => usePoll((signal) => getJson('/tokens', signal), ['tokens'], 5000);

export default function Tokens() {
  const [isNew, setNew] = useState(false);
  return html`
    <${Head} title="Tokens" about="A token permits its roles, for the whole server or for a part of it.">
      ${hasRole('admin') && html`<button type="button" class="primary" onClick=${() => setNew(true)}>
        New token …
      </button>`}
    <//>
    <${TokenTable}
      poll=${useTokens()}
      name="Tokens"
      filter=${(token) => !isLink(token)}
      empty="There is no named token yet. Programs and operators use the admin token."
    />
    ${isNew && html`<${NewToken} onClose=${() => setNew(false)} />`}
  `;
}

/** Creates a token, and shows it once. With `isPortal` it is a link. */
export function NewToken({ onClose, isPortal = false }) {
  const [name, setName] = useState('');
  const [roles, setRoles] = useState(isPortal ? ['portal'] : ['read']);
  const [scopes, setScopes] = useState('');
  const [hours, setHours] = useState(isPortal ? '8' : '');
  const [error, setError] = useState(/** @type {any} */ (null));
  const [token, setToken] = useState(/** @type {Schemas['Token'] | null} */ (null));
  const scopeList = scopes.split(/[\s,]+/).filter(Boolean);
  const flags = [...scopeList.flatMap((scope) => ['--scope', scope]), ...(hours ? ['--expires', `${hours}h`] : [])];
  const line = formatCommand('tokens', 'create', name || 'NAME', '--role', roles.join(','), ...flags);
  const create = async (event) => {
    event.preventDefault();
    setError(null);
    const expires = hours ? new Date(Date.now() + Number(hours) * HOUR).toISOString() : undefined;
    try {
      setToken(await postJson('/tokens', { name, roles, scopes: scopeList, expires }));
      refreshAll();
    } catch (problem) {
      setError(problem);
    }
  };
  const errorAt = (field) =>
    error?.target === field || (field === 'name' && error?.status === 409) ? error.message : null;
  const toggle = (role) => setRoles(roles.includes(role) ? roles.filter((one) => one !== role) : [...roles, role]);
  if (token)
    return html`<${Dialog} title=${`${token.name} is created`} onClose=${onClose}>
      <${Secret} text=${token.link ?? token.token} isLink=${isPortal} onClose=${onClose} />
    <//>`;
  return html`<${Dialog} title=${isPortal ? 'New portal link' : 'New token'} onClose=${onClose}>
    <form class="fields" onSubmit=${create}>
      <${Field}
        label="Name"
        value=${name}
        required
        data-first
        error=${errorAt('name')}
        hint="1 to 64 letters, digits, '.', '_' and '-'"
        onInput=${(event) => setName(event.currentTarget.value)}
      />
      ${!isPortal && html`<fieldset>
        <legend>Roles</legend>
        ${ROLES.map(([role, about]) => html`<label key=${role}>
          <input type="checkbox" checked=${roles.includes(role)} onChange=${() => toggle(role)} /> ${role}${' '}
          <span class="faint">${about}</span>
        </label>`)}
        ${errorAt('roles') && html`<p class="wrong">${errorAt('roles')}</p>`}
      </fieldset>`}
      <${Field}
        label=${isPortal ? 'Event subscriptions' : 'Limited to'}
        value=${scopes}
        required=${isPortal}
        placeholder=${isPortal ? 'labels/team=shop' : 'the whole server'}
        error=${errorAt('scopes')}
        hint="Such as topics/orders or labels/team=shop, separated by spaces"
        onInput=${(event) => setScopes(event.currentTarget.value)}
      />
      <${Select}
        label="Expires"
        value=${hours}
        onChange=${setHours}
        options=${isPortal ? LINK_LIFETIMES : LIFETIMES}
        error=${errorAt('expires')}
      />
      ${!['name', 'roles', 'scopes', 'expires'].some(errorAt) && html`<${Failed} error=${error} />`}
      <${Command} line=${line} parts=${[]} />
      <div class="acts">
        <button type="submit" class="primary" disabled=${roles.length === 0}>
          Create
        </button>
        <button type="button" onClick=${onClose}>
          Cancel
        </button>
      </div>
    </form>
  <//>`;
}

/** The secret of a new token, which is shown once. */
const Secret = ({ text, isLink: isAddress, onClose }) => html`
  <p>
    ${isAddress ? 'Who has the link can open it until it expires.' : 'Store the token now.'} It is not shown again.
  </p>
  <pre class="text" tabindex="0" role="region" aria-label=${isAddress ? 'Link' : 'Token'}>
    ${text}
  </pre>
  <div class="acts">
    <${Copy} text=${text} name=${isAddress ? 'Copy the link' : 'Copy the token'} />
    <button type="button" class="primary" data-first onClick=${onClose}>
      Done
    </button>
  </div>
`;
