// The page: sign-in, navigation, and the view that the address names.
import {
  lastResponseAt,
  pingServer,
  endReason,
  getJson,
  isLapsed,
  isPortal,
  hasRole,
  openLink,
  lastOutage,
  session,
  signIn,
  signOut,
} from './api.js';
import { html, render, useEffect, useRef, useState } from './html.js';
import { OTHERS, PLACES, isHelpOpen, isSearchOpen, isThere, listenToKeys } from './keys.js';
import { usePoll } from './poll.js';
import {
  hasChaos,
  isClustered,
  link,
  linkToken,
  paused,
  returnToPlace,
  route,
  shortcuts,
  theme,
  useStore,
  zone,
} from './state.js';
import { formatDuration } from './format.js';
import { Boundary, Dialog, Failed, Field, Head, Loading, Messages, OF_PORTAL, Questions } from './ui.js';

/** Each view is loaded when it is first shown. */
const VIEWS = [
  'overview',
  'topics',
  'topic',
  'event-type',
  'subscriptions',
  'subscription',
  'edit',
  'endpoint',
  'event',
  'tail',
  'dead-letters',
  'jobs',
  'filter',
  'editions',
  'tokens',
  'links',
  'sessions',
  'audit',
  'server',
  'chaos',
  'help',
];

/** The pause before a view is loaded again that could not be loaded, in milliseconds. */
const RELOAD = 2000;

/** @type {[string, string[]][]} */
const GROUPS = [
  ['Observe', ['o', 'e', 'l']],
  ['Resources', ['t', 's']],
  ['Deliver again', ['d', 'j']],
  ['Try', ['f', 'r']],
  ['Access', ['k', 'p', 'i', 'a']],
  ['Server', ['v', 'c', 'h']],
];

/** The entry of the navigation that a view belongs to. */
const PARENT = {
  topic: 'topics',
  'event-type': 'topics',
  subscription: 'subscriptions',
  edit: 'subscriptions',
  endpoint: 'subscriptions',
};

function SignInForm() {
  const why = useStore(endReason);
  const [token, setToken] = useState('');
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    document.title = 'Sign in · gridhook';
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await signIn(token.trim());
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  return html`<form onSubmit=${submit}>
    ${why && html`<p class="notice warn" role="status">
      ${why}
    </p>`}
    <${Field}
      label="Token of an operator"
      type="password"
      name="token"
      autocomplete="current-password"
      autofocus
      required
      value=${token}
      onInput=${(event) => setToken(event.currentTarget.value)}
      hint=${
        html`
          The first start of the server keeps one in <code>data/admin-token</code>.
        `
      }
    />
    <${Failed} error=${error} />
    <button type="submit" class="primary" disabled=${isBusy || !token.trim()}>
      Sign in
    </button>
  </form>`;
}

/** The sign-in as a page, or above a page whose session has ended. */
function SignIn() {
  const isAbove = useStore(isLapsed);
  const [opening, setOpening] = useState(0);
  // A browser closes a dialog at the second Esc. This one opens again.
  if (isAbove)
    return html`<${Dialog} key=${opening} title="Sign in" onClose=${() => setOpening(opening + 1)}>
      <${SignInForm} />
    <//>`;
  return html`<main class="sign-in" id="main">
    <div class="card">
      <h1>
        <span class="mark" aria-hidden="true"></span> gridhook
      </h1>
      <${SignInForm} />
    </div>
  </main>`;
}

function Navigation({ view }) {
  const present = PARENT[view] ?? view;
  useStore(hasChaos);
  const facts = usePoll(isPortal() ? null : (signal) => getJson('/server', signal), ['facts'], 0);
  useEffect(() => {
    hasChaos.set(facts.data?.chaos ?? false);
    isClustered.set(facts.data?.cluster ?? false);
  }, [facts.data]);
  return html`<nav class="views" aria-label="Views">
    ${GROUPS.filter(([, keys]) => keys.some(isThere)).map(([name, keys]) => html`<div key=${name} class="group">
      <span class="group-name">${name}</span>
      ${keys.filter(isThere).map((key) => {
        const [id, text] = PLACES[key];
        return html`<a key=${id} href=${link(id)} aria-current=${present === id ? 'page' : undefined}>
          ${text}
        </a>`;
      })}
    </div>`)}
  </nav>`;
}

/** The time since the last response of the server, once for the whole page. */
function Freshness() {
  const at = useStore(lastResponseAt);
  const lost = useStore(lastOutage);
  const isPaused = useStore(paused);
  const [, setTick] = useState(0);
  usePoll(pingServer, ['beat'], 4000);
  useEffect(() => {
    const timer = setInterval(() => setTick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const age = Math.max(0, Math.round((Date.now() - at) / 1000));
  return html`
    <span class=${`live ${lost ? 'lost' : isPaused ? 'paused' : ''}`} role="status">
      ${lost ? 'server unreachable' : isPaused ? 'paused' : 'live'}
    </span>
    ${(age > 5 || lost) && html`<span class="faint age">updated ${formatDuration(age)} ago</span>`}
  `;
}

function Outage() {
  const lost = useStore(lastOutage);
  return (
    lost && html`<div class="banner" role="alert">
      <b>The server cannot be reached.</b> What is shown is from before; the page tries again by itself.
    </div>`
  );
}

/** The height of the bar, below which the menu stays. */
function useBarHeight() {
  const bar = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const watch = new ResizeObserver(() =>
      document.documentElement.style.setProperty('--bar', `${bar.current?.offsetHeight ?? 0}px`),
    );
    watch.observe(/** @type {HTMLElement} */ (bar.current));
    return () => watch.disconnect();
  }, []);
  return bar;
}

function Bar() {
  const bar = useBarHeight();
  const isPaused = useStore(paused);
  const shownZone = useStore(zone);
  const shade = useStore(theme);
  const who = useStore(session);
  const shades = { auto: 'light', light: 'dark', dark: 'auto' };
  return html`<header class="bar" ref=${bar}>
    <button type="button" class="skip" onClick=${() => document.getElementById('main')?.focus()}>
      Skip to content
    </button>
    <a class="brand" href=${link(isPortal() ? 'subscriptions' : 'overview')}>
      <span class="mark" aria-hidden="true"></span> gridhook
    </a>
    <${Freshness} />
    <span class="space"></span>
    <button type="button" aria-pressed=${isPaused} onClick=${() => paused.set(!isPaused)}>
      ${isPaused ? 'Continue' : 'Pause'} <kbd>p</kbd>
    </button>
    <button
      type="button"
      title="Times in UTC or in the zone of this browser"
      onClick=${() => zone.set(shownZone === 'utc' ? 'local' : 'utc')}
    >
      ${shownZone === 'utc' ? 'UTC' : 'Local time'}
    </button>
    <button type="button" title="Light, dark, or as the system" onClick=${() => theme.set(shades[shade])}>
      Theme: ${shade}
    </button>
    ${hasRole('read') && html`<button type="button" onClick=${() => isSearchOpen.set(true)}>
      Search <kbd>Ctrl+K</kbd>
    </button>`}
    <button type="button" onClick=${() => isHelpOpen.set(true)}>
      Keys <kbd>?</kbd>
    </button>
    <button type="button" title=${who?.role ? `Role: ${who.role}` : undefined} onClick=${signOut}>
      Sign out ${who?.name ?? ''}
    </button>
  </header>`;
}

function Keys() {
  const isOpen = useStore(isHelpOpen);
  const state = useStore(shortcuts);
  if (!isOpen) return null;
  const close = () => isHelpOpen.set(false);
  const places = Object.entries(PLACES)
    .filter(([key]) => isThere(key))
    .map(([key, [, text]]) => [`g ${key}`, text]);
  return html`<${Dialog} title="Keys" onClose=${close}>
    <dl class="keys">
      ${[...OTHERS.filter(([key]) => hasRole('read') || key !== 'Ctrl+K'), ...places].map(([key, text]) => html`<div key=${key}>
        <dt>
          ${key.split(/\s+/).map((one) => html`
            <kbd>${one}</kbd>${' '}
          `)}
        </dt>
        <dd>${text}</dd>
      </div>`)}
    </dl>
    <p>
      <label>
        <input
          type="checkbox"
          checked=${state === 'on'}
          onChange=${() => shortcuts.set(state === 'on' ? 'off' : 'on')}
        />${' '}
        Shortcuts of one key are on
      </label>
    </p>
    <div class="acts">
      <button type="button" class="primary" onClick=${close}>
        Close
      </button>
    </div>
  <//>`;
}

/** The delay after which the search is loaded in advance, in milliseconds. */
const PRELOAD = 1000;

/** The search over everything. */
function Search() {
  const isOpen = useStore(isSearchOpen);
  const [part, setPart] = useState(/** @type {{ show: any } | null} */ (null));
  useEffect(() => {
    if (part) return undefined;
    const load = () =>
      import('./views/search.js').then(
        (module) => setPart({ show: module.default }),
        () => isSearchOpen.set(false),
      );
    // Soon, so that no key is lost between the shortcut and the field.
    const timer = setTimeout(load, isOpen ? 0 : PRELOAD);
    return () => clearTimeout(timer);
  }, [isOpen]);
  return isOpen && part && html`<${part.show} onClose=${() => isSearchOpen.set(false)} />`;
}

function View() {
  const { view: wanted, step } = useStore(route);
  const view = isPortal() && wanted === 'overview' ? 'subscriptions' : wanted;
  const [shown, setShown] = useState(/** @type {{ view: string, part?: any, error?: any }} */ ({ view: '' }));
  useEffect(() => {
    let isGone = false;
    let timer = 0;
    const load = async (tries) => {
      try {
        // A browser remembers a file that it could not load by its address.
        const module = await import(`./views/${view}.js${tries > 0 ? `?${tries}` : ''}`);
        if (!isGone) setShown({ view, part: module.default });
      } catch {
        if (!isGone) timer = setTimeout(() => load(tries + 1), RELOAD);
      }
    };
    if (!VIEWS.includes(view)) setShown({ view, error: new Error(`There is no view “${view}”.`) });
    else if (isPortal() && !OF_PORTAL.includes(view))
      setShown({ view, error: new Error('A portal link does not show this.') });
    else load(0);
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [view]);
  const before = useRef('');
  useEffect(() => {
    if (shown.view !== view) return;
    if (!returnToPlace() && before.current !== view) scrollTo(0, 0);
    before.current = view;
  }, [shown.view, step]);
  if (shown.view !== view) return html`<${Loading} />`;
  return shown.error ? html`
    <${Head} title="Not shown" />
    <${Failed} error=${shown.error} />
  ` : html`<${shown.part} key=${view} />`;
}

function App() {
  const held = useStore(session);
  const isWaiting = useStore(isLapsed);
  const owner = useRef('');
  if (held) owner.current = `${held.name} ${held.role}`;
  // What was typed is kept for the same operator. For another one the page starts empty.
  return html`
    ${!held && html`<${SignIn} />`}
    ${(held || isWaiting) && html`<div key=${owner.current} class=${held ? undefined : 'away'}>
      <${Page} />
    </div>`}
  `;
}

function Page() {
  const { view } = useStore(route);
  return html`
    <${Bar} />
    <div class="page">
      <${Navigation} view=${view} />
      <main id="main" tabindex="-1" class=${view}>
        <${Outage} />
        <${Boundary} key=${view}>
          <${View} />
        <//>
      </main>
    </div>
    <${Messages} />
    <${Questions} />
    <${Keys} />
    ${hasRole('read') && html`<${Search} />`}
  `;
}

listenToKeys();
const showLinkError = (error) =>
  endReason.set(
    [401, 403].includes(error.status)
      ? 'This link is no longer valid. Ask for a new one.'
      : `The link could not be opened: ${error.message}`,
  );
if (linkToken) await openLink(linkToken).catch(showLinkError);
const place = document.getElementById('app');
place.textContent = '';
render(html`<${App} />`, place);
