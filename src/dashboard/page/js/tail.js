// The live tail: one stream of the server for all tabs of a browser. One tab reads it and passes it on; the others listen.
//
// A browser opens six connections to a server at most, so that a stream for each tab would stop the seventh tab.
//
// Messages between the tabs, by their `kind`:
// request: a tab asks for lines that its filter lets through (`alive`), or no longer.
// reader: a tab reads the stream, and goes on to say so.
// lines: the reader passes lines on. Each tab applies its own filter.
// state: the reader tells how the stream is.
import { sendRequest } from './api.js';
import { parseJson } from './json.js';

/** Filters that the server applies. */
export const FILTERS = ['topic', 'subscription', 'type', 'outcome', 'status'];

/** The pause in which the reader collects lines before it passes them on. */
const PASS = 150;
/** A tab that is hidden for longer no longer listens. */
const HIDDEN = 30000;
/** The interval in which the reader checks whether the other tabs are still open. */
const BEAT = 2000;
/** Without locks (plain http) the reader counts as gone after this silence. */
const SILENT = 6000;

/** @typedef {Record<string, string>} Filter */

/**
 * Listens to the tail until `stop`.
 * @param {Filter} filter
 * @param {{ lines: (lines: any[]) => void, state: (state: { kind: string, text?: string, reads?: boolean }) => void }} on
 */
export function followTail(filter, on) {
  const self = crypto.getRandomValues(new Uint32Array(2)).join('-');
  const channel = new BroadcastChannel('gridhook.tail');
  /** @type {Map<string, { filter: Filter, at: number }>} what the other tabs request */
  const requests = new Map();
  let isOver = false;
  let reads = false;
  let isAsleep = false;
  let lastHeard = 0;
  /** @type {AbortController | null} */
  let stream = null;
  /** @type {(() => void) | null} */
  let release = null;
  /** @type {string | null | undefined} the query of the stream; null while nobody listens */
  let currentQuery;
  let isSettled = false;

  const publishFilter = () => channel.postMessage({ kind: 'request', from: self, filter, alive: !isAsleep && !isOver });

  const passes = (line) =>
    (!filter.topic || line.topic?.toLowerCase() === filter.topic.toLowerCase()) &&
    (line.kind !== 'event' || !filter.type || line.eventType === filter.type) &&
    (line.kind !== 'outcome' ||
      ((!filter.subscription || line.subscription === filter.subscription) &&
        (!filter.outcome ||
          [line.outcome, line.step, line.reason].some((one) => one?.toLowerCase() === filter.outcome.toLowerCase())) &&
        (!filter.status || String(line.status) === filter.status)));
  const isWanted = (line) =>
    line.kind === 'missed' || (!(filter.only && filter.only !== `${line.kind}s`) && passes(line));

  const take = (texts) => {
    if (isAsleep) return;
    const lines = [];
    for (const text of texts) {
      const line = parseJson(text);
      if (isWanted(line)) lines.push(line);
    }
    if (lines.length > 0) on.lines(lines);
  };

  /** The server applies what the filters of all tabs have in common, each tab the rest. */
  const commonQuery = () => {
    const all = [...(isAsleep ? [] : [filter]), ...[...requests.values()].map((one) => one.filter)];
    const query = new URLSearchParams();
    for (const name of FILTERS) {
      const value = all[0]?.[name];
      if (value && all.every((one) => one[name] === value)) query.set(name, value);
    }
    const only = all[0]?.only;
    if (only && all.every((one) => one.only === only)) query.set(only === 'events' ? 'outcomes' : 'events', 'false');
    return all.length === 0 ? null : query.toString();
  };

  const applyFilters = () => {
    if (!reads || !isSettled || isOver) return;
    const next = commonQuery();
    if (next === currentQuery) return;
    currentQuery = next;
    stream?.abort();
    if (next === null) tellAll({ kind: 'asleep' });
    else read(next);
  };

  let last = { kind: 'connecting' };
  const tellAll = (state) => {
    last = state;
    on.state({ ...state, reads });
    channel.postMessage({ kind: 'state', state });
  };

  const read = async (query) => {
    const abort = new AbortController();
    stream = abort;
    for (let failures = 0; !abort.signal.aborted; ) {
      try {
        tellAll({ kind: 'connecting' });
        const response = await sendRequest('GET', `/tail${query ? `?${query}` : ''}`, { signal: abort.signal });
        tellAll({ kind: 'open' });
        failures = 0;
        await pump(response.body.pipeThrough(new TextDecoderStream()).getReader(), abort.signal);
        if (abort.signal.aborted) return;
        tellAll({ kind: 'lost', text: 'The server ended the stream.' });
      } catch (error) {
        if (abort.signal.aborted) return;
        tellAll({
          kind: 'lost',
          text: error.status ? `${error.status} ${error.message}` : 'The server cannot be reached.',
        });
        if (error.status === 401 || error.status === 400) return;
      }
      failures += 1;
      await new Promise((done) => setTimeout(done, Math.min(10000, 500 * 2 ** failures)));
    }
  };

  const pump = async (reader, signal) => {
    let rest = '';
    let full = [];
    let timer = 0;
    const flush = () => {
      timer = 0;
      const texts = full;
      full = [];
      if (requests.size > 0) channel.postMessage({ kind: 'lines', texts });
      take(texts);
    };
    signal.addEventListener('abort', () => reader.cancel().catch(() => undefined));
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) break;
      const parts = (rest + value).split('\n');
      rest = parts.pop();
      for (const part of parts) if (part) full.push(part);
      if (full.length > 0 && !timer) timer = setTimeout(flush, PASS);
    }
    clearTimeout(timer);
    if (full.length > 0 && !signal.aborted) flush();
  };

  /** Makes this tab the reader. It waits a moment for the filters of the other tabs. */
  const becomeReader = () => {
    if (isOver || reads) return Promise.resolve();
    reads = true;
    channel.postMessage({ kind: 'reader', from: self });
    setTimeout(() => {
      isSettled = true;
      applyFilters();
    }, 60);
    return new Promise((done) => (release = () => done(undefined)));
  };

  const stopReading = () => {
    reads = false;
    isSettled = false;
    currentQuery = undefined;
    stream?.abort();
    release?.();
  };

  channel.onmessage = ({ data }) => {
    if (data.kind === 'request') {
      if (data.alive) requests.set(data.from, { filter: data.filter, at: Date.now() });
      else requests.delete(data.from);
      applyFilters();
      if (reads && data.alive) channel.postMessage({ kind: 'state', state: last });
      return;
    }
    lastHeard = Date.now();
    if (data.kind === 'reader') {
      // Without locks two tabs may start at once: the one with the lower id continues.
      if (reads && data.from < self) stopReading();
      if (!reads) publishFilter();
    } else if (reads) return;
    else if (data.kind === 'lines') take(data.texts);
    else if (data.kind === 'state') on.state({ ...data.state, reads: false });
  };

  const lock = new AbortController();
  if (navigator.locks)
    navigator.locks.request('gridhook.tail', { signal: lock.signal }, becomeReader).catch(() => undefined);
  else setTimeout(() => (Date.now() - lastHeard > 400 ? becomeReader() : undefined), 450 + Math.random() * 200);

  const beat = setInterval(() => {
    if (reads) {
      channel.postMessage({ kind: 'reader', from: self });
      for (const [tab, { at }] of requests) if (Date.now() - at > 10 * BEAT) requests.delete(tab);
      applyFilters();
    } else if (!navigator.locks && Date.now() - lastHeard > SILENT) becomeReader();
  }, BEAT);

  let sleeps = 0;
  const onHidden = () => {
    clearTimeout(sleeps);
    if (document.visibilityState === 'hidden') {
      sleeps = setTimeout(() => {
        isAsleep = true;
        publishFilter();
        on.state({ kind: 'asleep', reads });
        applyFilters();
      }, HIDDEN);
    } else if (isAsleep) {
      isAsleep = false;
      publishFilter();
      applyFilters();
    }
  };
  document.addEventListener('visibilitychange', onHidden);
  const leave = () => {
    if (isOver) return;
    isOver = true;
    clearInterval(beat);
    clearTimeout(sleeps);
    document.removeEventListener('visibilitychange', onHidden);
    removeEventListener('pagehide', leave);
    publishFilter();
    stream?.abort();
    lock.abort();
    release?.();
    channel.close();
  };
  addEventListener('pagehide', leave);
  publishFilter();
  return { stop: leave };
}
