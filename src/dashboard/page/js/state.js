// What is shown is in the address: view, filters, order, tab, open rows. Preferences are in localStorage.
import { useEffect, useRef, useState } from './html.js';

/** @typedef {{ view: string, params: URLSearchParams, step: number }} Route */

/**
 * A value that several parts of the page share.
 * @template T
 * @param {T} initial
 */
export function createStore(initial) {
  let value = initial;
  const readers = new Set();
  return {
    get: () => value,
    /** @param {T} next */
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const reader of [...readers]) reader();
    },
    /** @param {() => void} reader */
    subscribe(reader) {
      readers.add(reader);
      return () => readers.delete(reader);
    },
  };
}

/**
 * @template T
 * @param {{ get: () => T, subscribe: (reader: () => void) => () => void }} source
 * @returns {T}
 */
export function useStore(source) {
  const [, redraw] = useState(0);
  const value = source.get();
  const drawn = useRef(value);
  drawn.current = value;
  useEffect(() => {
    const look = () => {
      if (!Object.is(drawn.current, source.get())) redraw((n) => n + 1);
    };
    // An effect begins after the drawing: the value may have changed since.
    look();
    return source.subscribe(look);
  }, [source]);
  return value;
}

const LINK = /^#token=([\w-]+)$/;
/** The token of a portal link. It leaves the address, and so the history of the browser, at once. */
export const linkToken = LINK.exec(location.hash)?.[1];
if (linkToken) history.replaceState(null, '', '#/subscriptions');
addEventListener('hashchange', () => LINK.test(location.hash) && location.reload());

/** Where the reader was in each step of the history: how far the page and its long list were scrolled, and which link had the focus. */
const places = new Map();
let isReturning = false;

/** The number of the present step, which is kept in its history entry. */
function presentStep() {
  if (!history.state?.step) history.replaceState({ step: Math.random() }, '');
  return history.state.step;
}

const longList = () => document.querySelector('main .windowed');
function notePlace() {
  if (!isReturning)
    places.set(route.get().step, {
      y: scrollY,
      top: longList()?.scrollTop ?? 0,
      href: document.activeElement?.getAttribute('href'),
    });
}

/** Goes to where the reader was in this step, as soon as that is loaded. Returns false in a new step. */
export function returnToPlace() {
  const place = places.get(route.get().step);
  let end = Date.now() + RETURN_TIME;
  const attempt = () => {
    if (!isReturning) return;
    if (document.querySelector('main .loading')) end = Date.now() + RETURN_TIME;
    const list = longList();
    const focused =
      place.href &&
      /** @type {HTMLElement[]} */ ([...document.querySelectorAll('main a')]).find(
        (one) => one.getAttribute('href') === place.href,
      );
    list?.scrollTo(0, place.top);
    scrollTo(0, place.y);
    focused?.focus({ preventScroll: true });
    const isThere =
      Math.abs(scrollY - place.y) < 2 && Math.abs((list?.scrollTop ?? 0) - place.top) < 2 && (focused || !place.href);
    if (isThere || Date.now() > end) isReturning = false;
    else setTimeout(attempt, 50);
  };
  attempt();
  return Boolean(place);
}

/** The time that a loaded view has to reach its former length, in milliseconds. */
const RETURN_TIME = 3000;

/** @returns {Route} */
function readRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  return { view: path || 'overview', params: new URLSearchParams(query ?? ''), step: presentStep() };
}

export const route = createStore(readRoute());
history.scrollRestoration = 'manual';
/** Asks whether the view may be left; null where nothing would be lost. */
export const leaveQuestion = createStore(/** @type {(() => Promise<boolean>) | null} */ (null));

/** Returns to the view that asks, and goes on once the operator confirms. */
async function holdView(wanted) {
  const { view, params } = route.get();
  location.hash = link(view, Object.fromEntries(params));
  if (!(await leaveQuestion.get()?.())) return;
  leaveQuestion.set(null);
  location.hash = wanted;
}

addEventListener('hashchange', () => {
  const next = readRoute();
  if (leaveQuestion.get() && next.view !== route.get().view) {
    holdView(location.hash);
    return;
  }
  isReturning = places.has(next.step);
  route.set(next);
});
addEventListener('scroll', notePlace, { capture: true, passive: true });
addEventListener('focusin', notePlace);
for (const kind of ['wheel', 'keydown', 'pointerdown'])
  addEventListener(kind, () => (isReturning = false), { passive: true });

/**
 * The address of a view.
 * @param {string} view
 * @param {Record<string, string | number | boolean | null | undefined>} [params]
 */
export function link(view, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== '' && value !== false) query.set(name, String(value));
  }
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ''}`;
}

/** Goes to a view, as a step that "back" undoes. */
export function goTo(view, params) {
  location.hash = link(view, params);
}

/** Changes parameters of the present view. It is no step of its own, unless `step` is set. */
export function setParams(changes, step = false) {
  const { view, params } = route.get();
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === null || value === '' || value === false) next.delete(name);
    else next.set(name, String(value));
  }
  const text = next.toString();
  const hash = `#/${view}${text ? `?${text}` : ''}`;
  if (hash === location.hash) return;
  if (step) location.hash = hash;
  else {
    history.replaceState(history.state, '', hash);
    route.set(readRoute());
  }
}

/** States of steps of the history, by step and name, with what they are about. */
const stepStates = new Map();

/**
 * A state to which Back returns, such as a selection. It starts with `initial` again when `about` changes.
 * @template T
 * @param {string} name
 * @param {any} about
 * @param {T} initial
 * @returns {[T, (next: T) => void]}
 */
export function useStepState(name, about, initial) {
  const key = `${useStore(route).step} ${name}`;
  const subject = JSON.stringify(about);
  const [, redraw] = useState(0);
  if (stepStates.get(key)?.subject !== subject) stepStates.delete(key);
  const setValue = (value) => {
    stepStates.set(key, { subject, value });
    redraw((n) => n + 1);
  };
  return [stepStates.has(key) ? stepStates.get(key).value : initial, setValue];
}

/** @returns {URLSearchParams} */
export const useParams = () => useStore(route).params;

/**
 * A parameter of the address with its default, and how to change it.
 * @param {string} name
 * @param {string} [standard]
 * @returns {[string, (value: string) => void]}
 */
export function useParam(name, standard = '') {
  const value = useParams().get(name) ?? standard;
  return [value, (next) => setParams({ [name]: next === standard ? '' : next })];
}

function storedPreference(name, standard) {
  let saved = standard;
  try {
    saved = localStorage.getItem(`gridhook.${name}`) ?? standard;
  } catch {
    // Storage may be forbidden; the preference then lasts as long as the page.
  }
  const value = createStore(saved);
  value.subscribe(() => {
    try {
      localStorage.setItem(`gridhook.${name}`, value.get());
    } catch {
      // As above.
    }
  });
  return value;
}

/** "utc" or "local". */
export const zone = storedPreference('zone', 'utc');
/** "auto", "light" or "dark". */
export const theme = storedPreference('theme', 'auto');
/** "on" or "off": shortcuts of one key. */
export const shortcuts = storedPreference('shortcuts', 'on');
/** Whether the operator stopped the refresh. */
export const paused = createStore(false);
/** Whether the server can be broken on purpose. */
export const hasChaos = createStore(false);
/** Whether the server is a node of a cluster. */
export const isClustered = createStore(false);
/** Whether the page is hidden. */
export const hidden = createStore(document.visibilityState === 'hidden');
document.addEventListener('visibilitychange', () => hidden.set(document.visibilityState === 'hidden'));

const showTheme = () => {
  if (theme.get() === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.get();
};
theme.subscribe(showTheme);
showTheme();
