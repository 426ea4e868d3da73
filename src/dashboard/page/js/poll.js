// The refresh: every view reads its data periodically, except while the operator has paused it or the page is hidden.
import { lastOutage, session } from './api.js';
import { useCallback, useEffect, useRef, useState } from './html.js';
import { hidden, paused } from './state.js';

const EVERY = 2000;
const SLOWEST = 30000;

/**
 * @template T
 * @typedef {{ data: T | undefined, error: any, loading: boolean, at: number, refresh: () => void }} Poll
 */

/**
 * Loads at once and then periodically. After an error the last data stay; a Retry-After of the server is respected.
 *
 * @template T
 * @param {((signal: AbortSignal) => Promise<T>) | null} load nothing is loaded where it is null
 * @param {any[]} key what is loaded: other data begins with another key
 * @param {number} [every] milliseconds; 0 loads once
 * @returns {Poll<T>}
 */
export function usePoll(load, key, every = EVERY) {
  const name = JSON.stringify(key);
  const [state, setState] = useState(/** @type {any} */ ({ name, data: undefined, error: undefined, at: 0 }));
  const newest = useRef(load);
  newest.current = load;
  const again = useRef(() => {});
  const isIdle = load === null;

  useEffect(() => {
    let timer = 0;
    let due = 0;
    let failures = 0;
    /** @type {AbortController | null} */
    let running = null;
    let gone = false;
    const rests = () => paused.get() || hidden.get() || !session.get();
    const plan = (wait) => {
      due = Date.now() + wait;
      clearTimeout(timer);
      if (every > 0 || failures > 0) timer = setTimeout(() => (rests() ? undefined : run()), wait);
    };
    const run = async () => {
      clearTimeout(timer);
      running?.abort();
      const own = new AbortController();
      running = own;
      try {
        const data = await newest.current?.(own.signal);
        if (gone || own.signal.aborted) return;
        failures = 0;
        setState({ name, data, error: undefined, at: Date.now() });
        plan(every);
      } catch (error) {
        if (gone || own.signal.aborted) return;
        failures += 1;
        setState((old) => ({ ...(old.name === name ? old : { data: undefined, at: 0 }), name, error }));
        // Repeating a request that is itself wrong does not help soon.
        const isLasting = error?.status >= 400 && error.status < 500 && error.status !== 429;
        const wait = isLasting ? SLOWEST : Math.min(SLOWEST, 1000 * 2 ** Math.min(failures, 5));
        if (error?.status === 0) plan(EVERY);
        else plan(Math.max(every, error?.retryAfter ? error.retryAfter * 1000 : wait));
      } finally {
        if (running === own) running = null;
      }
    };
    const wake = () => {
      if (!rests() && (every > 0 || failures > 0) && Date.now() >= due && !running) run();
    };
    const onReturn = () => {
      if (!lastOutage.get() && failures > 0 && !rests() && !running) run();
    };
    again.current = run;
    if (!isIdle) run();
    const stops = [
      paused.subscribe(wake),
      hidden.subscribe(wake),
      session.subscribe(wake),
      lastOutage.subscribe(onReturn),
    ];
    return () => {
      gone = true;
      clearTimeout(timer);
      running?.abort();
      for (const stop of stops) stop();
    };
  }, [name, every, isIdle]);

  const refresh = useCallback(() => again.current(), []);
  const isOther = state.name !== name;
  const data = isOther ? undefined : state.data;
  const error = isOther ? undefined : state.error;
  return {
    data,
    error,
    loading: !isIdle && data === undefined && error === undefined,
    at: isOther ? 0 : state.at,
    refresh,
  };
}

/** Functions that read a shown list again after a change. */
const changes = new Set();

/** Reads everything on the page again. */
export const refreshAll = () => {
  for (const refresh of [...changes]) refresh();
};

/** @param {() => void} refresh */
export function useChanges(refresh) {
  useEffect(() => {
    changes.add(refresh);
    return () => changes.delete(refresh);
  }, [refresh]);
}
