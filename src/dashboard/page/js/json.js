// Lossless JSON: integers beyond 2^53 stay exact, and payloads are shown without being parsed.

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * Parses a response of the server. An integer that a number cannot hold becomes a string with its digits.
 * @param {string} text
 * @returns {any}
 */
export function parseJson(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const exact = text.replace(TOKEN, (token) => {
    const isLong = token[0] !== '"' && /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token));
    return isLong ? `"${token}"` : token;
  });
  return JSON.parse(exact);
}

/** Marks the digits of an integer that a number cannot hold, in a text. */
const EXACT = '\u{e000}';

/**
 * Parses JSON to be written again by `printJson`: an integer that a number cannot hold keeps its digits. Another number
 * that is too large is refused, because it would be written as null.
 * @param {string} text
 * @returns {any}
 */
export const parseExact = (text) =>
  JSON.parse(
    text.replace(TOKEN, (token) => {
      if (token[0] === '"' || Number.isSafeInteger(Number(token))) return token;
      if (/^-?\d{16,}$/.test(token)) return `"${EXACT}${token}"`;
      if (!Number.isFinite(Number(token))) throw new SyntaxError(`${token} is too large for a number`);
      return token;
    }),
  );

export const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** The number of a text; an integer that a number cannot hold keeps its digits, as with `parseExact`. @param {string} text */
export function exactNumber(text) {
  const number = Number(text);
  return /^-?\d+$/.test(text) && !Number.isSafeInteger(number) ? EXACT + BigInt(text) : number;
}

/** The text of a value of `parseExact` that is no object. */
export const exactText = (value) => String(value).replace(EXACT, '');

/** The JSON of a value, with the digits that `parseExact` has kept. */
export const printJson = (value, space = 0) =>
  JSON.stringify(value, null, space)?.replace(new RegExp(`"${EXACT}(-?\\d+)"`, 'g'), '$1');

/** Where the value that begins at `at` ends. */
function valueEnd(text, at) {
  let depth = 0;
  for (let i = at; i < text.length; i += 1) {
    const c = text[i];
    if (c === '"') {
      for (i += 1; i < text.length && text[i] !== '"'; i += 1) if (text[i] === '\\') i += 1;
      if (depth === 0) return i + 1;
    } else if (c === '{' || c === '[') depth += 1;
    else if (c === '}' || c === ']') {
      if (depth === 0) return i;
      depth -= 1;
      if (depth === 0) return i + 1;
    } else if (depth === 0 && (c === ',' || /\s/.test(c))) return i;
  }
  return text.length;
}

const skipBlanks = (text, at) => {
  while (at < text.length && /\s/.test(text[at])) at += 1;
  return at;
};

/**
 * The text of one member of the object `text`, as it was sent.
 * @param {string} text
 * @param {string} name
 * @returns {string | undefined}
 */
export function memberText(text, name) {
  let at = skipBlanks(text, 0);
  if (text[at] !== '{') return undefined;
  at = skipBlanks(text, at + 1);
  while (at < text.length && text[at] === '"') {
    const close = valueEnd(text, at);
    const key = JSON.parse(text.slice(at, close));
    at = skipBlanks(text, skipBlanks(text, close) + 1);
    const stop = valueEnd(text, at);
    if (key === name) return text.slice(at, stop).trim();
    at = skipBlanks(text, stop);
    if (text[at] !== ',') return undefined;
    at = skipBlanks(text, at + 1);
  }
  return undefined;
}

/**
 * Indents JSON by its tokens: every value keeps its own digits and escapes. Text that is not JSON is returned unchanged.
 * @param {string} text
 */
export function indentJson(text) {
  let out = '';
  let depth = 0;
  const line = () => `\n${'  '.repeat(Math.min(depth, 40))}`;
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    if (c === '"') {
      const from = i;
      for (i += 1; i < text.length && text[i] !== '"'; i += 1) if (text[i] === '\\') i += 1;
      out += text.slice(from, i + 1);
    } else if (c === '{' || c === '[') {
      const next = skipBlanks(text, i + 1);
      if (text[next] === '}' || text[next] === ']') {
        out += c + text[next];
        i = next;
      } else {
        depth += 1;
        out += c + line();
      }
    } else if (c === '}' || c === ']') {
      depth = Math.max(0, depth - 1);
      out += line() + c;
    } else if (c === ',') out += c + line();
    else if (c === ':') out += ': ';
    else if (!/\s/.test(c)) out += c;
  }
  return out;
}

/** Whether the text is JSON. */
export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
