// The parts that views are made of.
import { isPortal } from './api.js';
import { withWords } from './causes.js';
import { Component, html, useEffect, useLayoutEffect, useRef, useState } from './html.js';
import {
  formatTime,
  formatCommand as commandLine,
  formatCount,
  formatDuration,
  formatNumber,
  formatPercent,
  formatRelative,
  formatCode,
} from './format.js';
import { printJson } from './json.js';
import { createStore, link, useStore, zone } from './state.js';

/** A point in time: how long ago, and exactly on hover. In a log the exact time is shown, and the age on hover. */
export function Time({ at, isLog = false }) {
  useStore(zone);
  if (!at) return html`<span class="faint">–</span>`;
  const [full, ago] = [formatTime(at, true), formatRelative(at)];
  return html`<time datetime=${at} title=${isLog ? ago : full}>
    ${isLog ? full : ago}
  </time>`;
}

const SHAPES = { ok: '●', warn: '▲', bad: '■', info: '◆', held: '‖', none: '○' };

/** A state by shape, text and colour. */
export function Badge({ kind = 'none', children, title }) {
  return html`<span class=${`badge ${kind}`} title=${title}>
    <span aria-hidden="true">${SHAPES[kind]}</span> ${children}
  </span>`;
}

const CONDITIONS = {
  failing: 'bad',
  suspended: 'bad',
  held: 'held',
  waiting: 'warn',
  slow: 'warn',
  healthy: 'ok',
  idle: 'none',
};

/** What a condition means, with its figures. @param {{ condition: any, health: any, heldBy?: any }} line */
export function conditionText({ condition, health, heldBy }) {
  const window = condition.windowSeconds ? `in the last ${formatDuration(condition.windowSeconds)}` : '';
  if (condition.state === 'failing') return `${formatPercent(condition.successShare)} succeeded ${window}`;
  if (condition.state === 'suspended') return `${formatCode(health.cause)}, since ${formatTime(health.since)}`;
  if (condition.state === 'held') return `held by ${heldBy}`;
  if (condition.state === 'waiting') return 'events wait, and no client receives them';
  if (condition.state === 'slow') return 'events wait for more than a minute';
  return '';
}

/** The condition of an event subscription, as the server judges it. @param {{ line: { condition: any, health: any, heldBy?: any } }} props */
export function Condition({ line }) {
  const { state } = line.condition;
  const text = state === 'suspended' && line.health.state === 'probing' ? 'probing' : state;
  return html`<${Badge} kind=${CONDITIONS[state]} title=${conditionText(line)}>
    ${text}
    ${state === 'failing' ? ` ${formatPercent(line.condition.successShare)}` : ''}
  <//>`;
}

const GOOD = new Set(['delivered', 'Delivered', 'accepted', 'redriven', 'acknowledged']);
const BAD = new Set([
  'deadLettered',
  'deadLetterWaiting',
  'deadLetterLost',
  'dropped',
  'undeliverable',
  'expired',
  'lost',
  'damaged',
]);
const NEUTRAL = new Set([
  'filtered',
  'purged',
  'canceled',
  'written',
  'received',
  'renewed',
  'released',
  'beforeSubscription',
  'notPublished',
]);

/** The result of an event, or the step of a line of the ledger. */
export function Outcome({ step, children }) {
  const kind = GOOD.has(step) ? 'ok' : BAD.has(step) ? 'bad' : NEUTRAL.has(step) ? 'none' : 'warn';
  return html`<${Badge} kind=${kind} title=${step}>
    ${children ?? formatCode(step)}
  <//>`;
}

/** A code of the API in words. */
export const Words = ({ code }) => (code ? html`<span title=${code}>${formatCode(code)}</span>` : '');

const INSTANT = /(\d{4}-\d\d-\d\dT[\d:.]+Z)/;

/** A sentence of the server, with its codes in words and its times as the page has them. */
export const Sentence = ({ text }) =>
  text.split(INSTANT).map((part) => (INSTANT.test(part) ? html`<${Time} at=${part} />` : withWords(part.replace(/\bat $/, ''))));

/** The views of a portal link. */
export const OF_PORTAL = ['subscriptions', 'subscription', 'endpoint', 'filter', 'dead-letters', 'jobs'];

const isShown = (href) => !isPortal() || OF_PORTAL.includes(href.slice(2).split('?')[0]);

/** A link to a view, or its text where a portal link does not show that view. */
export const ViewLink = ({ href, children, ...more }) =>
  isShown(href) ? html`<a href=${href} ...${more}>
    ${children}
  </a>` : html`<span>${children}</span>`;

/** Says that more event subscriptions exist than are listed, if so. */
export const FirstListed = ({ rows }) =>
  rows?.hasMore && html`<p class="notice">
    The first ${formatNumber(rows.length)} event subscriptions are listed.${' '}
    <a href=${link('subscriptions')}>Subscriptions</a> finds the others by name.
  </p>`;

/** The placeholder while there is neither data nor an error. */
export const Loading = () => html`<p class="loading" role="status">
  Loading …
</p>`;

/** Keeps the rest of the page when a view throws. */
export class Boundary extends Component {
  constructor() {
    super();
    this.state = { error: null };
  }

  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    if (!this.state.error) return this.props.children;
    return html`
      <h1 tabindex="-1">Not shown</h1>
      <${Failed} error=${this.state.error} retry=${() => this.setState({ error: null })} />
    `;
  }
}

/** An error with the server's message, and what can be done about it. */
export function Failed({ error, retry }) {
  // The banner of the page reports that the server cannot be reached.
  if (!error || error.status === 0) return null;
  const wait = error.retryAfter ? `The server asks to wait ${error.retryAfter} s; the page tries again by itself.` : '';
  const isOut = error.status === 503;
  return html`<div class=${`notice ${isOut ? 'warn' : 'bad'}`} role="alert">
    <strong>${error.status ? `${error.status} ${error.code}` : (error.code ?? error.name)}</strong>
    <p>${error.message}</p>
    ${error.target && html`<p>
      Field: <code>${error.target}</code>
    </p>`}
    ${error.details?.length > 0 && html`<ul>
      ${error.details
        .filter((detail) => detail.message !== error.message)
        .map((detail) => html`<li>${detail.message}</li>`)}
    </ul>`}
    ${wait && html`<p>${wait}</p>`}
    ${retry && html`<button type="button" onClick=${retry}>
      Try again
    </button>`}
  </div>`;
}

/**
 * The states that every view has: loading, error without data, empty, and data with a possible error above it.
 */
export function Loaded({ poll, empty, isEmpty = (data) => data.length === 0, children }) {
  if (poll.data === undefined)
    return poll.error && poll.error.status !== 0 ? html`<${Failed} error=${poll.error} retry=${poll.refresh} />` : html`<${Loading} />`;
  const note = poll.error ? html`<${Failed} error=${poll.error} retry=${poll.refresh} />` : null;
  if (empty && isEmpty(poll.data))
    return html`
      ${note}
      <div class="empty">${empty}</div>
    `;
  return html`
    ${note}
    ${typeof children === 'function' ? children(poll.data) : children}
  `;
}

let isFirstHead = true;

/** The title of a view, what it is for, and its actions. In a new view the title has the focus, unless a field of it has. */
export function Head({ title, crumbs = [], about = null, children = null }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  const openCrumbs = crumbs.filter(([, href]) => isShown(href));
  useEffect(() => {
    document.title = `${title} · gridhook`;
    const isInside =
      document.activeElement !== document.getElementById('main') && document.activeElement?.closest('#main, dialog');
    if (!isFirstHead && !isInside) heading.current?.focus({ preventScroll: true });
    isFirstHead = false;
  }, [title]);
  return html`<header class="head">
    <div>
      ${openCrumbs.length > 0 && html`<nav class="crumbs" aria-label="Path">
        ${openCrumbs.map(([text, href]) => html`
          <a href=${href}>${text}</a> <span aria-hidden="true">/</span>${' '}
        `)}
      </nav>`}
      <h1 tabindex="-1" ref=${heading}>
        ${title}
      </h1>
      ${about && html`<p class="about">${about}</p>`}
    </div>
    <div class="acts">${children}</div>
  </header>`;
}

/** One figure with its name. */
export const Figure = ({ name, value, kind = '', href = null, title = undefined }) => html`<div class=${`figure ${kind}`} title=${title}>
  <dt>${name}</dt>
  <dd>
    ${href ? html`<a href=${href} aria-label=${`${name}: ${value}`}>
      ${value}
    </a>` : value}
  </dd>
</div>`;

/** A list of names and values. */
export const Facts = ({ rows }) => html`<dl class="facts">
  ${rows.filter(Boolean).map(([name, value]) => html`<div>
    <dt>${name}</dt>
    <dd>${value ?? html`<span class="faint">–</span>`}</dd>
  </div>`)}
</dl>`;

const textOf = (value) => (value === undefined || value === null ? '' : printJson(value));

/** Changes, field by field. */
export const Diff = ({ changes }) => html`<dl class="facts diff">
  ${changes.map((one) => html`<div key=${one.at}>
    <dt>${one.at}</dt>
    <dd>
      ${textOf(one.before) && html`
        <del>${textOf(one.before)}</del>${' '}
      `}
      ${textOf(one.after) && html`<ins>${textOf(one.after)}</ins>`}
    </dd>
  </div>`)}
</dl>`;

/** Tabs that are in the address. */
export function Tabs({ tabs, value, onChange, name }) {
  const list = useRef(null);
  const step = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const at = tabs.findIndex(([id]) => id === value);
    const next = (at + by + tabs.length) % tabs.length;
    onChange(tabs[next][0]);
    list.current?.children[next]?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${name} onKeyDown=${step} ref=${list}>
    ${tabs.map(([id, text]) => html`<button
      type="button"
      role="tab"
      key=${id}
      id=${`tab-${id}`}
      aria-controls=${id === value ? 'tab-panel' : undefined}
      aria-selected=${id === value}
      tabindex=${id === value ? 0 : -1}
      onClick=${() => onChange(id)}
    >
      ${text}
    </button>`)}
  </div>`;
}

/** The content of the selected tab. */
export const TabPanel = ({ value, children }) => html`<div role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${value}`}>
  ${children}
</div>`;

/** Copies text. `navigator.clipboard` exists on https and localhost only; a selection works everywhere. */
export async function copyText(text) {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    // Permission may be denied; the selection below works without it.
  }
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'offscreen';
  area.setAttribute('aria-hidden', 'true');
  const holder = document.querySelector('dialog[open]') ?? document.body;
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  holder.append(area);
  area.select();
  const isDone = document.execCommand('copy');
  area.remove();
  focused?.focus?.();
  return isDone;
}

export function Copy({ text, name = 'Copy' }) {
  const [said, setSaid] = useState('');
  const press = async () => {
    setSaid((await copyText(text)) ? 'Copied' : 'Not copied');
    setTimeout(() => setSaid(''), 1500);
  };
  return html`<button type="button" class="small" onClick=${press} aria-live="polite">
    ${said || name}
  </button>`;
}

/** The command that does the same. The holder of a portal link has no shell. */
export function Command({ parts, line = commandLine(...parts) }) {
  if (isPortal()) return null;
  return html`<div class="command">
    <code tabindex="0" role="group" aria-label="Command">
      ${line}
    </code>
    <${Copy} text=${line} />
  </div>`;
}

/** Text of unknown size: the first 64 KiB of it, and all of it as a file. */
export function Payload({ text, name = 'event.json' }) {
  const SHOWN = 64 * 1024;
  const isCut = text.length > SHOWN;
  const save = () => {
    const url = URL.createObjectURL(new Blob([text], { type: 'application/octet-stream' }));
    const anchor = document.createElement('a');
    anchor.href = url;
    anchor.download = name;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };
  return html`<div class="payload">
    <div class="acts">
      <${Copy} text=${text} />
      <button type="button" class="small" onClick=${save}>
        Download
      </button>
      ${isCut && html`<span class="faint">the first 64 KiB of ${text.length.toLocaleString('en-US')} characters</span>`}
    </div>
    <pre tabindex="0" role="region" aria-label="Payload">
      ${isCut ? text.slice(0, SHOWN) : text}
    </pre>
  </div>`;
}

let fields = 0;

/** A field with its label, a hint and the server's objection. */
export function Field({ label, hint = null, error = null, children = null, autofocus = false, ...input }) {
  const id = useRef(`f${(fields += 1)}`).current;
  useLayoutEffect(() => {
    if (autofocus) document.getElementById(id)?.focus();
  }, []);
  const described = [hint && `${id}h`, error && `${id}e`].filter(Boolean).join(' ') || undefined;
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${children ? children({ id, 'aria-describedby': described }) : html`<input
      id=${id}
      aria-describedby=${described}
      aria-invalid=${error ? 'true' : undefined}
      autocomplete="off"
      spellcheck=${false}
      ...${input}
    />`}
    ${hint && html`<p class="hint" id=${`${id}h`}>
      ${hint}
    </p>`}
    ${error && html`<p class="wrong" id=${`${id}e`}>
      ${error}
    </p>`}
  </div>`;
}

/** A choice with its label. */
export const Select = ({ label, value, options, onChange, ...rest }) => html`<${Field} label=${label} ...${rest}>
  ${(a11y) => html`<select ...${a11y} value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
    ${options.map(([id, text]) => html`<option key=${id} value=${id} selected=${id === value}>
      ${text}
    </option>`)}
  </select>`}
<//>`;

/** A search field that writes to the address after a pause in typing. */
export function Search({ label, value, onChange, placeholder = '' }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  const own = useRef(value);
  useEffect(() => {
    if (value !== own.current) setText((own.current = value));
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const write = (next) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange((own.current = next)), 200);
  };
  return html`<${Field}
    label=${label}
    type="search"
    data-search
    placeholder=${placeholder}
    value=${text}
    onInput=${(event) => write(event.currentTarget.value)}
  />`;
}

// --- messages ---

/** @typedef {{ id: number, kind: string, text: string, line?: string }} Message */

const messages = createStore(/** @type {Message[]} */ ([]));
let serial = 0;

/** Shows a message with the result of an action, and the command that does the same. */
export function showMessage(text, { kind = 'ok', line = undefined } = {}) {
  const id = (serial += 1);
  messages.set([...messages.get().slice(-3), { id, kind, text, line }]);
  raiseMessages();
  if (kind === 'ok') setTimeout(() => dismissMessage(id), 8000);
}

const dismissMessage = (id) => messages.set(messages.get().filter((message) => message.id !== id));

/** Raises the messages above everything, also above a dialog that was opened later. */
function raiseMessages() {
  const element = document.querySelector('.messages');
  if (!(element instanceof HTMLElement)) return;
  if (element.matches(':popover-open')) element.hidePopover();
  element.showPopover();
}

/** The newest message, at the bar, where it covers nothing of a view. The others follow when it is closed. */
export function Messages() {
  const all = useStore(messages);
  const newest = all.at(-1);
  useEffect(raiseMessages, [newest?.id]);
  return html`<div class="messages" popover="manual" role="status" aria-live="polite">
    ${newest && html`<div key=${newest.id} class=${`notice ${newest.kind}`}>
      <p title=${newest.text}>${newest.text}</p>
      ${newest.line && html`<${Command} line=${newest.line} parts=${[]} />`}
      <button type="button" class="small" onClick=${() => dismissMessage(newest.id)} aria-label="Close message">
        Close${all.length > 1 ? ` (${formatCount(all.length - 1, 'more', 'more')})` : ''}
      </button>
    </div>`}
  </div>`;
}

// --- questions ---

/**
 * @typedef {{ title: string, body?: any, confirm: string, danger?: boolean, typed?: string, line?: string }} Question
 */
const question = createStore(/** @type {(Question & { answer: (yes: boolean) => void }) | null} */ (null));

/**
 * Asks before something is done. With `typed` the operator types that text first.
 * @param {Question} asked
 * @returns {Promise<boolean>}
 */
export const askOperator = (asked) =>
  new Promise((done) => {
    question.set({
      ...asked,
      answer: (yes) => {
        question.set(null);
        done(yes);
      },
    });
  });

/** A dialog that keeps the focus, and gives it back. */
export function Dialog({ title, onClose, children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  // At once: the next key is for the dialog.
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    element.current?.showModal();
    raiseMessages();
    const field = element.current?.querySelector('[data-first]');
    if (field instanceof HTMLElement) field.focus();
    return () => before?.focus?.();
  }, []);
  return html`<dialog
    ref=${element}
    aria-label=${title}
    onClose=${onClose}
    onCancel=${(event) => {
      event.preventDefault();
      onClose();
    }}
  >
    <h2>${title}</h2>
    ${children}
  </dialog>`;
}

function Ask({ asked }) {
  const [text, setText] = useState('');
  const isReady = !asked.typed || text === asked.typed;
  const submit = (event) => {
    event.preventDefault();
    if (isReady) asked.answer(true);
  };
  return html`<${Dialog} title=${asked.title} onClose=${() => asked.answer(false)}>
    <form onSubmit=${submit}>
      ${asked.body && html`<div class="about">${asked.body}</div>`}
      ${asked.line && html`<${Command} line=${asked.line} parts=${[]} />`}
      ${asked.typed && html`<${Field}
        label=${`Type ${asked.typed} to confirm`}
        value=${text}
        autofocus
        onInput=${(event) => setText(event.currentTarget.value)}
      />`}
      <div class="acts">
        <button type="submit" class=${asked.danger ? 'danger' : 'primary'} disabled=${!isReady}>
          ${asked.confirm}
        </button>
        <button type="button" onClick=${() => asked.answer(false)}>
          Cancel
        </button>
      </div>
    </form>
  <//>`;
}

export function Questions() {
  const asked = useStore(question);
  return asked && html`<${Ask} asked=${asked} key=${asked.title} />`;
}
