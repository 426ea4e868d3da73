// Numbers, times and names as the page shows them.
import { zone } from './state.js';

/** @param {number | string | null | undefined} n */
export function formatNumber(n) {
  if (n === null || n === undefined) return '–';
  // An integer beyond 2^53 is a string of digits.
  if (typeof n === 'string') return /^-?\d+$/.test(n) ? BigInt(n).toLocaleString('en-US') : n;
  // Minus zero is zero.
  return (n || 0).toLocaleString('en-US', { maximumFractionDigits: Math.abs(n) < 10 ? 2 : 1 });
}

/** @param {number | null | undefined} n */
export const formatRate = (n) => (n === null || n === undefined ? '–' : `${formatNumber(n)}/s`);

/** @param {number | null | undefined} share */
export const formatPercent = (share) =>
  share === null || share === undefined ? '–' : `${(share * 100).toFixed(share > 0.99 && share < 1 ? 2 : 1)} %`;

/** @param {number | null | undefined} n */
export function formatBytes(n) {
  if (n === null || n === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${n.toLocaleString('en-US', { maximumFractionDigits: n < 10 && unit > 0 ? 1 : 0 })} ${units[unit]}`;
}

/** @param {number | null | undefined} seconds */
export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  const s = Math.abs(seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1).replace('.0', '')} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 36 * 3600) return `${(s / 3600).toFixed(1).replace('.0', '')} h`;
  return `${(s / 86400).toFixed(1).replace('.0', '')} d`;
}

/** A duration of whole seconds with all of them, for schedules: 6 min 40 s. @param {number} seconds */
export function exactDuration(seconds) {
  const whole = Math.round(seconds);
  /** @type {[number, string][]} */
  const parts = [
    [Math.floor(whole / 86400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ];
  return (
    parts
      .filter(([n]) => n > 0)
      .map(([n, unit]) => `${n} ${unit}`)
      .join(' ') || '0'
  );
}

/** A number with its noun: 1 event, 2 events. */
export const formatCount = (n, noun, many = `${noun}s`) => `${formatNumber(n)} ${Number(n) === 1 ? noun : many}`;

/** A code of the API in words: UndeliverableDueToHttpBadRequest, deadLetterWaiting. @param {string | null | undefined} code */
export function formatCode(code) {
  if (!code) return '';
  const text = code
    .replace(/^UndeliverableDueTo(Http)?/, 'Undeliverable: ')
    .replace(/([a-z])([A-Z])/g, '$1 $2')
    .toLowerCase();
  return text[0].toUpperCase() + text.slice(1);
}

/** @param {number | null | undefined} ms */
export const formatMillis = (ms) =>
  ms === null || ms === undefined ? '–' : ms < 1000 ? `${formatNumber(ms)} ms` : formatDuration(ms / 1000);

/** How far the server's clock is ahead of the browser's, in milliseconds. Responses have the server's time. */
let ahead = 0;

/** @param {string | null | undefined} now */
export function setServerTime(now) {
  if (now) ahead = Date.parse(now) - Date.now();
}

export const serverNow = () => Date.now() + ahead;

/** @param {string | null | undefined} time */
export function formatRelative(time) {
  if (!time) return '–';
  const seconds = (Date.parse(time) - serverNow()) / 1000;
  if (Math.abs(seconds) < 1) return 'now';
  return seconds < 0 ? `${formatDuration(seconds)} ago` : `in ${formatDuration(seconds)}`;
}

const twoDigits = (n) => String(n).padStart(2, '0');

/**
 * A point in time in the zone that the operator chose.
 * @param {string | number | null | undefined} time
 * @param {boolean} [fraction]
 */
export function formatTime(time, fraction = false) {
  if (time === null || time === undefined || time === '') return '–';
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return String(time);
  const isUtc = zone.get() === 'utc';
  const get = (/** @type {'FullYear' | 'Month' | 'Date' | 'Hours' | 'Minutes' | 'Seconds'} */ part) =>
    isUtc ? date[`getUTC${part}`]() : date[`get${part}`]();
  const day = `${get('FullYear')}-${twoDigits(get('Month') + 1)}-${twoDigits(get('Date'))}`;
  const clock = `${twoDigits(get('Hours'))}:${twoDigits(get('Minutes'))}:${twoDigits(get('Seconds'))}`;
  const part = fraction ? `.${String(date.getUTCMilliseconds()).padStart(3, '0')}` : '';
  return `${day} ${clock}${part}${isUtc ? ' UTC' : ''}`;
}

const PROVIDER = /^\/subscriptions\/([^/]+)\/resourceGroups\/([^/]+)\/providers\/Microsoft\.EventGrid\/(.*)$/i;

/** The scope in which the commands look for short names. */
const HOME = '/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/';

/** The resource id of a name as the commands take it. */
export const idOf = (name) =>
  name.startsWith('/') ? name : `${HOME}${/^(topics|domains|namespaces)\//.test(name) ? '' : 'topics/'}${name}`;

/**
 * The short name of a topic, a domain or a domain topic: `orders`, `domains/shop/topics/berlin`.
 * @param {string | null | undefined} id
 */
export function shortName(id) {
  const rest = PROVIDER.exec(id ?? '')?.[3] ?? id ?? '';
  return rest.replace(/^topics\//, '');
}

/** The name of a topic as the commands take it. */
export function topicArgument(id) {
  return id.startsWith(HOME) ? shortName(id) : id;
}

/** @param {string} id the resource id of an event subscription */
export function splitId(id) {
  const at = id.toLowerCase().lastIndexOf('/eventsubscriptions/');
  return { topic: id.slice(0, at), name: id.slice(at + '/eventSubscriptions/'.length) };
}

/** @param {string} topic @param {string} name */
export const subscriptionId = (topic, name) => `${topic}/eventSubscriptions/${name}`;

/** Quotes an argument for a shell. */
export const quoteArgument = (text) =>
  /^[\w@%+=:,./-]+$/.test(String(text)) ? String(text) : `'${String(text).replaceAll("'", "'\\''")}'`;

/** A command as an operator would type it. */
export const formatCommand = (...parts) =>
  ['gridhook', ...parts.filter((part) => part !== '' && part !== undefined).map(quoteArgument)].join(' ');
