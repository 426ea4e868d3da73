// Portal links, with which subscribers see and correct their own event subscriptions, and nothing else.
import { hasRole } from '../api.js';
import { html, useState } from '../html.js';
import { Head } from '../ui.js';
import { NewToken, TokenTable, useTokens } from './tokens.js';

export default function Links() {
  const [isNew, setNew] = useState(false);
  return html`
    <${Head}
      title="Portal links"
      about="A link shows a subscriber its own event subscriptions: it sees attempts and dead letters, changes the endpoint, tests the filter and redrives."
    >
      ${hasRole('admin') && html`<button type="button" class="primary" onClick=${() => setNew(true)}>
        New link …
      </button>`}
    <//>
    <${TokenTable}
      poll=${useTokens()}
      name="Portal links"
      filter=${(token) => token.roles.includes('portal')}
      empty="There is no portal link."
    />
    ${isNew && html`<${NewToken} isPortal onClose=${() => setNew(false)} />`}
  `;
}
