// The page: sign-in, navigation, and the view that the address names.
import { farewell, borrow, get, isPortal, openLink, outage, session, signIn, signOut } from './api.js';
import { html, render, useEffect, useState } from './html.js';
import { OTHERS, PLACES, isHelpOpen, isThere, listen } from './keys.js';
import { usePoll } from './poll.js';
import { hasChaos, isClustered, link, linkToken, paused, route, shortcuts, theme, useStore, zone } from './state.js';
import { Dialog, Failed, Field, Head, Loading, Messages, Questions } from './ui.js';

/** Each view is loaded when it is first shown. */
const VIEWS = {
  overview: () => import('./views/overview.js'),
  topics: () => import('./views/topics.js'),
  topic: () => import('./views/topic.js'),
  'event-type': () => import('./views/event-type.js'),
  subscriptions: () => import('./views/subscriptions.js'),
  subscription: () => import('./views/subscription.js'),
  edit: () => import('./views/edit.js'),
  endpoint: () => import('./views/endpoint.js'),
  event: () => import('./views/event.js'),
  tail: () => import('./views/tail.js'),
  'dead-letters': () => import('./views/dead-letters.js'),
  jobs: () => import('./views/jobs.js'),
  filter: () => import('./views/filter.js'),
  editions: () => import('./views/editions.js'),
  server: () => import('./views/server.js'),
  chaos: () => import('./views/chaos.js'),
  help: () => import('./views/help.js'),
};

/** The views of a portal link. */
const OF_PORTAL = ['subscriptions', 'subscription', 'endpoint', 'filter', 'dead-letters', 'jobs'];

/** @type {[string, string[]][]} */
const GROUPS = [
  ['Observe', ['o', 'e', 'l']],
  ['Resources', ['t', 's']],
  ['Deliver again', ['d', 'j']],
  ['Try', ['f', 'r']],
  ['Server', ['v', 'c', 'h']],
];

/** The entry of the navigation that a view belongs to. */
const PARENT = { topic: 'topics', 'event-type': 'topics', subscription: 'subscriptions', edit: 'subscriptions', endpoint: 'subscriptions' };

function SignIn() {
  const why = useStore(farewell);
  const [token, set] = useState('');
  const [error, fail] = useState(/** @type {any} */ (null));
  const [isBusy, busy] = useState(false);
  useEffect(() => {
    document.title = 'Sign in · gridhook';
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    busy(true);
    fail(null);
    try {
      await signIn(token.trim());
    } catch (problem) {
      fail(problem);
    } finally {
      busy(false);
    }
  };
  return html`<main class="sign-in" id="main">
    <form onSubmit=${submit}>
      <h1><span class="mark" aria-hidden="true"></span> gridhook</h1>
      ${why && html`<p class="notice warn" role="status">${why}</p>`}
      <${Field} label="Token of an operator" type="password" name="token" autocomplete="current-password" autofocus required value=${token} onInput=${(event) => set(event.currentTarget.value)}
        hint=${html`The first start of the server keeps one in <code>data/admin-token</code>.`} />
      <${Failed} error=${error} />
      <button type="submit" class="primary" disabled=${isBusy || !token.trim()}>Sign in</button>
    </form>
  </main>`;
}

function Navigation({ view }) {
  const present = PARENT[view] ?? view;
  useStore(hasChaos);
  const facts = usePoll(isPortal() ? null : (signal) => get('/server', signal), ['facts'], 0);
  useEffect(() => {
    hasChaos.set(facts.data?.chaos ?? false);
    isClustered.set(facts.data?.cluster ?? false);
  }, [facts.data]);
  return html`<nav class="views" aria-label="Views">
    ${GROUPS.filter(([, keys]) => keys.some(isThere)).map(([name, keys]) => html`<div key=${name} class="group">
      <span class="group-name">${name}</span>
      ${keys.filter(isThere).map((key) => {
        const [id, text] = PLACES[key];
        return html`<a key=${id} href=${link(id)} aria-current=${present === id ? 'page' : undefined}>${text}</a>`;
      })}
    </div>`)}
  </nav>`;
}

function Bar() {
  const isPaused = useStore(paused);
  const shownZone = useStore(zone);
  const shade = useStore(theme);
  const who = useStore(session);
  const lost = useStore(outage);
  const shades = { auto: 'light', light: 'dark', dark: 'auto' };
  return html`<header class="bar">
    <button type="button" class="skip" onClick=${() => document.getElementById('main')?.focus()}>Skip to content</button>
    <a class="brand" href="#/overview"><span class="mark" aria-hidden="true"></span> gridhook</a>
    <span class=${`live ${lost ? 'lost' : isPaused ? 'paused' : ''}`} role="status">${lost ? 'server unreachable' : isPaused ? 'paused' : 'live'}</span>
    <span class="space"></span>
    <button type="button" aria-pressed=${isPaused} onClick=${() => paused.set(!isPaused)}>${isPaused ? 'Continue' : 'Pause'} <kbd>p</kbd></button>
    <button type="button" title="Times in UTC or in the zone of this browser" onClick=${() => zone.set(shownZone === 'utc' ? 'local' : 'utc')}>${shownZone === 'utc' ? 'UTC' : 'Local time'}</button>
    <button type="button" title="Light, dark, or as the system" onClick=${() => theme.set(shades[shade])}>Theme: ${shade}</button>
    <button type="button" onClick=${() => isHelpOpen.set(true)}>Keys <kbd>?</kbd></button>
    <button type="button" title=${who?.role ? `Role: ${who.role}` : undefined} onClick=${signOut}>Sign out ${who?.name ?? ''}</button>
  </header>`;
}

function Keys() {
  const isOpen = useStore(isHelpOpen);
  const state = useStore(shortcuts);
  if (!isOpen) return null;
  const close = () => isHelpOpen.set(false);
  const places = Object.entries(PLACES).filter(([key]) => isThere(key)).map(([key, [, text]]) => [`g ${key}`, text]);
  return html`<${Dialog} title="Keys" onClose=${close}>
    <dl class="keys">${[...OTHERS, ...places].map(([key, text]) => html`<div key=${key}><dt>${key.split(/\s+/).map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${text}</dd></div>`)}</dl>
    <p><label><input type="checkbox" checked=${state === 'on'} onChange=${() => shortcuts.set(state === 'on' ? 'off' : 'on')} /> Shortcuts of one key are on</label></p>
    <div class="acts"><button type="button" class="primary" onClick=${close}>Close</button></div>
  <//>`;
}

function View() {
  const { view: wanted } = useStore(route);
  const view = isPortal() && wanted === 'overview' ? 'subscriptions' : wanted;
  const [shown, show] = useState(/** @type {{ view: string, part?: any, error?: any }} */ ({ view: '' }));
  useEffect(() => {
    let isGone = false;
    const load = VIEWS[view];
    if (!load) show({ view, error: new Error(`There is no view “${view}”.`) });
    else if (isPortal() && !OF_PORTAL.includes(view)) show({ view, error: new Error('A portal link does not show this.') });
    else {
      load().then(
        (module) => isGone || show({ view, part: module.default }),
        () => isGone || show({ view, error: new Error('This part of the page cannot be loaded. Is the server there?') }),
      );
    }
    return () => {
      isGone = true;
    };
  }, [view]);
  useEffect(() => {
    if (shown.view && shown.view !== 'overview') scrollTo(0, 0);
  }, [shown.view]);
  if (shown.view !== view) return html`<${Loading} />`;
  return shown.error ? html`<${Head} title="Not shown" /><${Failed} error=${shown.error} />` : html`<${shown.part} key=${view} />`;
}

function App() {
  const held = useStore(session);
  const { view } = useStore(route);
  if (!held) return html`<${SignIn} />`;
  return html`
    <${Bar} />
    <div class="page">
      <${Navigation} view=${view} />
      <main id="main" tabindex="-1" class=${view}><${View} /></main>
    </div>
    <${Messages} />
    <${Questions} />
    <${Keys} />
  `;
}

listen();
const refused = (error) => farewell.set([401, 403].includes(error.status) ? 'This link is no longer valid. Ask for a new one.' : `The link could not be opened: ${error.message}`);
(linkToken ? openLink(linkToken).catch(refused) : borrow()).then(() => {
  const place = document.getElementById('app');
  place.textContent = '';
  render(html`<${App} />`, place);
});
