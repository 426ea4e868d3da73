// The operators who are signed in to this page.
import { callApi, getJson, hasRole } from '../api.js';
import { runAction } from '../actions.js';
import { html } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { Table } from '../table.js';
import { Badge, Head, Loaded, Time, askOperator } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

/** @param {Schemas['ListedSession']} session */
async function endSession(session) {
  const isSure = await askOperator({
    title: `End the session of ${session.name}?`,
    body: 'Its browser has to sign in again. The token stays valid: revoke it to keep its holder out.',
    confirm: 'End the session',
    danger: true,
  });
  if (isSure) runAction(() => callApi('DELETE', `/sessions/${session.id}`), `Session of ${session.name} ended`);
}

/** The browser in a word. */
const browserName = (agent = '') =>
  /Firefox|Edg|OPR|Chrome|Safari/.exec(agent)?.[0].replace('Edg', 'Edge').replace('OPR', 'Opera') ?? agent;

export default function Sessions() {
  const poll = usePoll((signal) => getJson('/sessions', signal), ['sessions'], 5000);
  useChanges(poll.refresh);
  return html`
    <${Head}
      title="Sessions"
      about="A session ends after 30 minutes without use and 12 hours after the sign-in, and with its token."
    />
    <${Loaded} poll=${poll} isEmpty=${(data) => data.value.length === 0} empty="Nobody is signed in.">
      ${(/** @type {Schemas['SessionList']} */ data) => html`<${Table}
        name="Sessions"
        rows=${data.value}
        id=${(row) => row.id}
        columns=${
          /** @type {import('../table.js').Columns<Schemas['ListedSession']>} */ ([
            {
              key: 'name',
              name: 'Operator',
              cell: (row) => html`
                <b data-open tabindex="-1">
                  ${row.name}
                </b>
                ${row.isOwn && html`
                  ${' '}
                  <${Badge} kind="info">this one<//>
                `}
              `,
            },
            { key: 'role', name: 'Role', cell: (row) => row.role },
            { key: 'from', name: 'From', cell: (row) => row.from ?? '' },
            {
              key: 'browser',
              name: 'Browser',
              cell: (row) => html`<span title=${row.browser}>${browserName(row.browser)}</span>`,
            },
            { key: 'started', name: 'Signed in', cell: (row) => html`<${Time} at=${row.started} />` },
            { key: 'used', name: 'Last used', cell: (row) => html`<${Time} at=${row.lastUsed} />` },
            { key: 'expires', name: 'Expires', cell: (row) => html`<${Time} at=${row.expires} />` },
            hasRole('admin') && {
              key: 'end',
              name: 'Action',
              cell: (row) =>
                !row.isOwn && html`<button
                  type="button"
                  class="small"
                  aria-label=${`End the session of ${row.name}`}
                  onClick=${() => endSession(row)}
                >
                  End …
                </button>`,
            },
          ])
        }
      />`}
    <//>
  `;
}
