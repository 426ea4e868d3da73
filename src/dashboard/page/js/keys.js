// Shortcuts. Each is one key, is ignored while text is typed, and can be switched off.
import { isPortal } from './api.js';
import { goTo, hasChaos, paused, shortcuts } from './state.js';
import { createStore } from './state.js';

/** `g` and a letter. */
export const PLACES = {
  o: ['overview', 'Overview'],
  t: ['topics', 'Topics'],
  s: ['subscriptions', 'Subscriptions'],
  e: ['event', 'Events'],
  l: ['tail', 'Live tail'],
  d: ['dead-letters', 'Dead letters'],
  j: ['jobs', 'Jobs and replay'],
  f: ['filter', 'Filter bench'],
  r: ['editions', 'Retry schedule'],
  k: ['tokens', 'Tokens'],
  p: ['links', 'Portal links'],
  i: ['sessions', 'Sessions'],
  a: ['audit', 'Audit trail'],
  v: ['server', 'Server'],
  c: ['chaos', 'Chaos'],
  h: ['help', 'Manual and API'],
};

/** Chaos is listed only where the server has it enabled; a portal link has two views. */
export const isThere = (key) =>
  Object.hasOwn(PLACES, key) && (key !== 'c' || hasChaos.get()) && (!isPortal() || 'sd'.includes(key));

export const OTHERS = [
  ['/', 'Search in this view, or everything'],
  ['Ctrl+K', 'Search everything'],
  ['j  k', 'Next or previous row'],
  ['Enter', 'Open the row'],
  ['x', 'Select the row'],
  ['p', 'Pause or continue the refresh'],
  ['Esc', 'Close, or leave a field'],
  ['?', 'These keys'],
];

export const isHelpOpen = createStore(false);
export const isSearchOpen = createStore(false);

const isWriting = (target) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) &&
  !/^(checkbox|radio|button)$/.test(/** @type {HTMLInputElement} */ (target).type ?? '');

/** The rows of the list that keys move in: the one with the focus, or else the first of the view. */
function listedRows() {
  const own = document.activeElement?.closest('[data-list]');
  const list = own ?? document.querySelector('#main [data-list]');
  return list ? /** @type {HTMLElement[]} */ ([...list.querySelectorAll('[data-row]')]) : [];
}

function moveFocus(step) {
  const all = listedRows();
  const present = all.indexOf(/** @type {HTMLElement} */ (document.activeElement?.closest('[data-row]')));
  const next =
    all[present < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, present + step))];
  if (!next) return;
  const target = /** @type {HTMLElement} */ (next.querySelector('[data-open]') ?? next);
  target.focus({ preventScroll: true });
  next.scrollIntoView({ block: 'nearest' });
}

function focusSearch() {
  const field = /** @type {HTMLInputElement | null} */ (document.querySelector('#main [data-search]'));
  if (field) {
    field.focus();
    field.select();
  } else isSearchOpen.set(true);
}

let isGoing = false;
let forgets = 0;

/** @param {KeyboardEvent} event */
function handleKey(event) {
  if ((event.ctrlKey || event.metaKey) && event.key === 'k' && !document.querySelector('dialog[open]')) {
    event.preventDefault();
    isSearchOpen.set(true);
    return;
  }
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const { key, target } = event;
  if (key === 'Escape') {
    if (isWriting(target)) /** @type {HTMLElement} */ (target).blur();
    return;
  }
  if (isWriting(target) || document.querySelector('dialog[open]') || shortcuts.get() === 'off') return;
  if (isGoing) {
    isGoing = false;
    if (isThere(key)) {
      event.preventDefault();
      goTo(PLACES[key][0]);
    }
    return;
  }
  if (key === 'g') {
    isGoing = true;
    clearTimeout(forgets);
    forgets = setTimeout(() => (isGoing = false), 1500);
  } else if (key === 'j' || key === 'k') moveFocus(key === 'j' ? 1 : -1);
  else if (key === 'x') {
    const row = document.activeElement?.closest('[data-row]');
    /** @type {HTMLElement | null | undefined} */ (row?.querySelector('input[type=checkbox]'))?.click();
  } else if (key === 'p') paused.set(!paused.get());
  else if (key === '/') {
    event.preventDefault();
    focusSearch();
  } else if (key === '?') isHelpOpen.set(true);
}

export const listenToKeys = () => addEventListener('keydown', handleKey);
