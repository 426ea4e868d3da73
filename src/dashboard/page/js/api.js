// The client of the server's API, which is below the page, with the session of this browser or the portal link of this tab.
import { setServerTime } from './format.js';
import { parseJson, parseExact, printJson } from './json.js';
import { createStore } from './state.js';

/** The folder of the page; below it are the API and the path of the cookie, also behind a proxy with a path prefix. */
const page = new URL('./', location.href.replace(/[?#].*$/, ''));
/** The path prefix of a proxy in front of the server. */
const prefix = new URL('../', page).pathname;

const KEY = 'gridhook.session';
const SESSION = '/ui/session';

/**
 * A session has a key beside its cookie, which no script can read; a portal link has its token.
 * @typedef {{ key?: string, link?: string, name?: string, role?: string }} Session
 */

/** A portal link is of its tab, a session of the browser. @returns {Session | null} */
function readSession() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? 'null');
  } catch {
    return null;
  }
}

/** Who is signed in. */
export const session = createStore(readSession());
/** The last session: the views do not change while the operator has to sign in again. */
let lastSession = session.get();
/** Whether the session ended by itself: the views wait behind the sign-in with what was typed. */
export const isLapsed = createStore(false);
/** Why the last session ended, for the sign-in page. */
export const endReason = createStore('');
/** The last failure to reach the server, or null. */
export const lastOutage = createStore(/** @type {ApiError | null} */ (null));
/** The time of the last response, by the clock of this browser. */
export const lastResponseAt = createStore(Date.now());
/** The time limit of a read, in milliseconds. It is long, because some stores are slow. */
const READ_TIMEOUT = 60000;
/** The time limit of a ping, in milliseconds. */
const BEAT_TIMEOUT = 4000;

/** @param {Session} next */
function setSession(next) {
  lastSession = next;
  isLapsed.set(false);
  endReason.set('');
  session.set(next);
}

/** @param {Session} next */
function keepSession(next) {
  (next.link ? sessionStorage : localStorage).setItem(KEY, JSON.stringify(next));
  setSession(next);
}

function forgetSession(why, isByItself) {
  const area = session.get()?.link ? sessionStorage : localStorage;
  area.removeItem(KEY);
  dropSession(why, isByItself);
}

function dropSession(why, isByItself) {
  endReason.set(why);
  isLapsed.set(isByItself);
  session.set(null);
}

// Another tab has signed in or out.
addEventListener('storage', ({ key, storageArea }) => {
  if (key !== KEY || storageArea !== localStorage || session.get()?.link) return;
  const next = readSession();
  if (next) setSession(next);
  else if (session.get()) dropSession('The session has ended in another tab. Sign in again.', true);
});

/** A failure, as the server states it. */
export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
    /** @type {string | undefined} */
    this.target = undefined;
    /** @type {{ code: string, message: string }[]} */
    this.details = [];
    /** @type {number | undefined} seconds */
    this.retryAfter = undefined;
  }
}

async function readError(response) {
  const text = await response.text().catch(() => '');
  let body = {};
  try {
    body = parseJson(text).error ?? {};
  } catch {
    // A proxy in front of the server may return any body.
  }
  const message = body.message ?? (text.slice(0, 500) || response.statusText || 'no message');
  const error = new ApiError(response.status, body.code ?? `HTTP ${response.status}`, message);
  error.target = body.target ?? undefined;
  error.details = body.details ?? [];
  const wait = response.headers.get('retry-after');
  if (wait) error.retryAfter = Number(wait) || undefined;
  return error;
}

/**
 * `match` is the ETag that the resource must have; with null it must not exist.
 * With `isExact`, integers beyond 2^53 keep their digits for `printJson`.
 * With `known`, the ETag of a response that the caller has, the response may be 304.
 * @typedef {{ body?: any, signal?: AbortSignal, text?: boolean, token?: string, match?: string | null, known?: string, timeout?: number, isExact?: boolean }} Options
 *
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<Response>}
 */
export async function sendRequest(method, path, options = {}) {
  const headers = new Headers();
  const held = session.get();
  const token = options.token ?? held?.link;
  if (token) headers.set('Authorization', `Bearer ${token}`);
  else if (held?.key) headers.set('Gridhook-Session-Key', held.key);
  if (options.body !== undefined) headers.set('Content-Type', 'application/json');
  if (options.match) headers.set('If-Match', options.match);
  if (options.match === null) headers.set('If-None-Match', '*');
  if (options.known) headers.set('If-None-Match', options.known);
  const body = options.body === undefined || typeof options.body === 'string' ? options.body : printJson(options.body);
  let response;
  try {
    const url = new URL(path === SESSION ? 'session' : `api/${path.replace(/^\//, '')}`, page);
    response = await fetch(url, {
      method,
      headers,
      body,
      signal: options.signal,
      credentials: 'same-origin',
      cache: 'no-store',
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw loseServer();
  }
  lastResponseAt.set(Date.now());
  lastOutage.set(null);
  if (response.ok || (response.status === 304 && options.known)) return response;
  const error = await readError(response);
  // Only the session of this request has ended, not one that began meanwhile.
  if (response.status === 401 && held && !options.token && session.get() === held) {
    const stored = readSession();
    // Another tab may have signed in meanwhile.
    if (stored && (stored.key !== held.key || stored.link !== held.link)) setSession(stored);
    else forgetSession('Your session has ended. Sign in again.', true);
  }
  throw error;
}

/** Records that the server cannot be reached. */
function loseServer() {
  const lost = lastOutage.get() ?? new ApiError(0, 'Unreachable', 'The server cannot be reached.');
  lastOutage.set(lost);
  return lost;
}

/** The ETags of the resources that were read. */
const tags = new WeakMap();

/** The last responses to reads, by path: one that has not changed is not sent again. @type {Map<string, any>} */
const bodies = new Map();
const BODIES_MAX = 24;

function keepBody(key, body) {
  bodies.delete(key);
  bodies.set(key, body);
  if (bodies.size > BODIES_MAX) bodies.delete(bodies.keys().next().value);
}
session.subscribe(() => bodies.clear());

/** The ETag of a resource that was read. @returns {string | undefined} */
export const tagOf = (resource) => tags.get(resource);

/**
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function callApi(method, path, options = {}) {
  if (method !== 'GET') return readResponse(method, path, options);
  const late = AbortSignal.timeout(options.timeout ?? READ_TIMEOUT);
  const signal = options.signal ? AbortSignal.any([options.signal, late]) : late;
  try {
    return await readResponse(method, path, { ...options, signal });
  } catch (error) {
    if (late.aborted && !options.signal?.aborted) throw loseServer();
    throw error;
  }
}

async function readResponse(method, path, options) {
  const isKept = method === 'GET' && !options.text && !options.token && !options.isExact;
  const known = isKept ? bodies.get(path) : undefined;
  const response = await sendRequest(method, path, { ...options, known: known && tags.get(known) });
  if (response.status === 304) {
    setServerTime(response.headers.get('date'));
    keepBody(path, known);
    return known;
  }
  const text = await response.text();
  if (options.text) return text;
  const body = text ? (options.isExact ? parseExact : parseJson)(text) : null;
  if (typeof body?.now === 'string') setServerTime(body.now);
  const tag = response.headers.get('etag');
  if (tag && body) tags.set(body, tag);
  if (tag && body && isKept) keepBody(path, body);
  return body;
}

/** @param {string} path @param {AbortSignal} [signal] */
export const getJson = (path, signal) => callApi('GET', path, { signal });
/** Pings the server. A paused process closes no connection, so that only a time limit detects it. @param {AbortSignal} [signal] */
export const pingServer = (signal) => callApi('GET', '/healthz', { signal, text: true, timeout: BEAT_TIMEOUT });
/** @param {string} path @param {any} [body] */
export const postJson = (path, body) => callApi('POST', path, { body });

/**
 * A path with a query; parameters without a value are left out.
 * @param {string} path
 * @param {Record<string, string | number | boolean | null | undefined>} query
 */
export function withQuery(path, query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  if (pairs.length === 0) return path;
  return `${path}?${pairs.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(String(value))}`).join('&')}`;
}

/** A resource id as a path: names may have characters that a path may not. */
export const pathOf = (id) => id.split('/').map(encodeURIComponent).join('/');

/** The items of a paged list, at most about `most`: whole pages. `hasMore` of the list says whether some are left. */
export async function readAllPages(path, signal, most = 1000) {
  const items = [];
  let hasMore = false;
  for (let next = path; next && items.length < most; ) {
    const page = await getJson(next, signal);
    items.push(...page.value);
    next = page.nextLink ? page.nextLink.replace(/^https?:\/\/[^/]+/, '') : null;
    if (next && prefix !== '/' && next.startsWith(prefix)) next = next.slice(prefix.length - 1);
    hasMore = next !== null;
  }
  return Object.assign(items, { hasMore });
}

/** The parts of a long operation: the server limits each, and returns where the next one begins. */
export async function* readParts(path, body) {
  for (let next = body; next; ) {
    const part = await postJson(path, next);
    yield part;
    next = part.next && { ...body, after: part.next };
  }
}

/** Signs in: exchanges the token of an operator for a session. */
export async function signIn(token) {
  const { key, name, role } = await callApi('POST', SESSION, { token });
  keepSession({ key, name, role });
}

/** Opens a portal link. Its token needs no session: it ends soon. */
export async function openLink(token) {
  const { name, role } = await callApi('GET', SESSION, { token });
  keepSession({ link: token, name, role });
}

export async function signOut() {
  await callApi('DELETE', SESSION).catch(() => undefined);
  forgetSession('', false);
}

const RANK = { portal: -1, read: 0, operate: 1, admin: 2 };

/** Whether a portal link is open: some event subscriptions, and little to do with them. */
export const isPortal = () => lastSession?.role === 'portal';

/** Whether the page offers what needs a role. The server decides again. */
export function hasRole(role) {
  const own = lastSession?.role ?? 'admin';
  return (RANK[own] ?? 2) >= RANK[role];
}
