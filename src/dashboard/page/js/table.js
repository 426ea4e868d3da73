// Tables: sorted by the server or here, rows that open, rows that are selected, and windows on long lists.
import { formatNumber } from './format.js';
import { html, useEffect, useRef, useState } from './html.js';
import { useParam } from './state.js';

const narrow = matchMedia('(max-width: 480px)');
/** Height of a row in a window on a long list, or of a card, as app.css has it. */
const rowHeight = () => (narrow.matches ? 132 : 33);
/** No row is selected. @type {Set<string>} */
export const NO_ROWS = new Set();

/** Longer lists are windowed … */
const WINDOWED = 150;
/** … with so many rows outside of the window on each side. */
const SPARE = 10;

/**
 * @template R
 * @typedef {{ key: string, name: string, cell: (row: R) => any, num?: boolean, sort?: boolean, wide?: boolean, rank?: 'low' | 'mid' | 'sticky' }} Column
 */

/**
 * @template R
 * @typedef {(Column<R> | false | null)[]} Columns
 */

/**
 * Rows that keep their places while a reader is in the list: known rows are updated in place, new ones wait.
 *
 * @param {any[]} rows
 * @param {(row: any) => string} id
 * @param {string | undefined} hold what the list is of; undefined if it does not hold
 * @param {boolean} isHeld
 * @returns {{ rows: any[], fresh: number, gone: Set<string>, release: () => void }}
 */
function useStillRows(rows, id, hold, isHeld) {
  const kept = useRef(/** @type {{ hold: string | undefined, rows: any[] }} */ ({ hold: undefined, rows: [] }));
  const [, redraw] = useState(0);
  const release = () => {
    kept.current = { hold: undefined, rows: [] };
    redraw((n) => n + 1);
  };
  if (hold === undefined || !isHeld || kept.current.hold !== hold) {
    kept.current = { hold, rows };
    return { rows, fresh: 0, gone: new Set(), release };
  }
  const now = new Map(rows.map((row) => [id(row), row]));
  const known = new Set(kept.current.rows.map(id));
  kept.current.rows = kept.current.rows.map((row) => now.get(id(row)) ?? row);
  const fresh = rows.filter((row) => !known.has(id(row))).length;
  return { rows: kept.current.rows, fresh, gone: new Set([...known].filter((key) => !now.has(key))), release };
}

/**
 * @param {{
 *   name: string,
 *   columns: Columns<any>,
 *   rows: any[],
 *   id: (row: any) => string,
 *   sort?: string,
 *   onSort?: (key: string) => void,
 *   selected?: Set<string>,
 *   onSelect?: (selected: Set<string>) => void,
 *   opened?: string,
 *   details?: (row: any) => any,
 *   total?: number,
 *   first?: number,
 *   onWindow?: (from: number, to: number) => void,
 *   hold?: string,
 *   isHeld?: boolean,
 *   isEvery?: boolean,
 * }} props with `hold` a live list that holds still under the pointer, with the focus in it, or scrolled; with `total` the rows are a part of a longer list, from `first` on; `onWindow` tells which part is looked at
 */
export function Table({
  name,
  columns: wanted,
  rows: current,
  id,
  hold,
  isHeld = false,
  isEvery = false,
  sort,
  onSort,
  selected,
  onSelect,
  opened,
  details,
  total: all,
  first = 0,
  onWindow,
}) {
  const columns = /** @type {Column<any>[]} */ (wanted.filter(Boolean));
  const ROW = rowHeight();
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [isBusy, setBusy] = useState(false);
  const { rows, fresh, gone, release } = useStillRows(
    current,
    id,
    hold && `${hold} ${first}`,
    isHeld || isBusy || top > 0 || Boolean(opened),
  );
  const total = all ?? rows.length;
  // A reader may be in a cell, and the pointer elsewhere.
  const checkFocus = () => setBusy(Boolean(box.current?.matches(':hover, :focus-within')));
  const [height, setHeight] = useState(600);
  const isWindowed = total > WINDOWED && !details;
  useEffect(() => {
    const element = box.current;
    if (!element || !isWindowed) return undefined;
    const watch = new ResizeObserver(() => setHeight(element.clientHeight));
    watch.observe(element);
    return () => watch.disconnect();
  }, [isWindowed]);
  const from = isWindowed ? Math.max(0, Math.min(Math.floor(top / ROW), total - 1) - SPARE) : 0;
  const to = isWindowed ? Math.min(total, Math.ceil((top + height) / ROW) + SPARE) : rows.length;
  const onScroll = (event) => {
    const element = event.currentTarget;
    if (isWindowed && Math.abs(element.scrollTop - top) >= ROW) setTop(element.scrollTop);
  };
  useEffect(() => onWindow?.(from, to), [from, to]);
  const shown = [];
  for (let index = from; index < to; index += 1) shown.push(rows[index - first] ?? null);
  const width = columns.length + (onSelect ? 1 : 0);
  const toggle = (key) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect?.(next);
  };
  const hasAll = rows.length > 0 && rows.every((row) => selected?.has(id(row)));
  const show = () => {
    if (box.current) box.current.scrollTop = 0;
    release();
  };
  return html`<div
    class=${`table ${isWindowed ? 'windowed' : ''} ${isEvery ? 'every' : ''}`}
    ref=${box}
    onScroll=${onScroll}
    tabindex="0"
    role="region"
    aria-label=${name}
    data-list
    onMouseEnter=${() => setBusy(true)}
    onMouseLeave=${checkFocus}
    onFocusIn=${() => setBusy(true)}
    onFocusOut=${() => setTimeout(checkFocus)}
  >
    ${fresh > 0 && html`<p class="fresh">
      <button type="button" class="small" onClick=${show}>
        ${formatNumber(fresh)} new · show
      </button>
    </p>`}
    <table aria-rowcount=${total + 1}>
      <thead>
        <tr aria-rowindex="1">
          ${onSelect && html`<th class="pick">
            <input
              type="checkbox"
              aria-label=${`Select all of ${name}`}
              checked=${hasAll}
              onChange=${() => onSelect(hasAll ? new Set() : new Set(rows.map(id)))}
            />
          </th>`}
          ${columns.map(({ key, name: text, num: isNumber, sort: sorts, wide, rank = '' }) => html`<th
            key=${key}
            scope="col"
            class=${`${isNumber ? 'num' : ''} ${wide ? 'wide' : ''} ${rank}`}
            aria-sort=${sort === key ? 'descending' : undefined}
          >
            ${sorts && onSort ? html`<button type="button" class="sort" onClick=${() => onSort(key)}>
              ${text}
              <span aria-hidden="true">${sort === key ? ' ▾' : ''}</span>
            </button>` : text}
          </th>`)}
        </tr>
      </thead>
      <tbody>
        ${from > 0 && html`<tr key="before" class="spacer" aria-hidden="true">
          <td colspan=${width} style=${{ height: `${from * ROW}px` }}></td>
        </tr>`}
        ${shown.map((row, index) => {
          if (row === null)
            return html`<tr key=${`row ${from + index}`}>
              <td colspan=${width} class="faint">
                …
              </td>
            </tr>`;
          const key = id(row);
          const isOpen = details && opened === key;
          return html`
            <tr
              key=${key}
              data-row
              aria-rowindex=${from + index + 2}
              class=${`${selected?.has(key) ? 'selected' : ''} ${gone.has(key) ? 'gone' : ''}`}
            >
              ${onSelect && html`<td class="pick">
                <input
                  type="checkbox"
                  aria-label=${`Select ${key}`}
                  checked=${selected?.has(key) ?? false}
                  onChange=${() => toggle(key)}
                />
              </td>`}
              ${columns.map(({ key: column, name: text, cell, num: isNumber, wide, rank = '' }) => html`<td key=${column} data-name=${text} class=${`${isNumber ? 'num' : ''} ${wide ? 'wide' : ''} ${rank}`}>
                ${cell(row)}
              </td>`)}
            </tr>
            ${isOpen && html`<tr key=${`${key} details`} class="details">
              <td colspan=${width}>${details(row)}</td>
            </tr>`}
          `;
        })}
        ${isWindowed && to < total && html`<tr key="after" class="spacer" aria-hidden="true">
          <td colspan=${width} style=${{ height: `${(total - to) * ROW}px` }}></td>
        </tr>`}
      </tbody>
    </table>
  </div>`;
}

/** Text that is shortened in its middle where it does not fit: its end matters, too. */
export function Middle({ text, end = 14 }) {
  if (text.length <= end * 2) return html`<span title=${text}>${text}</span>`;
  return html`<span class="middle" title=${text}>
    <span>${text.slice(0, -end)}</span>
    <span>${text.slice(-end)}</span>
  </span>`;
}

/** The links to the first and to the next page of a list. The parameter `after` of the address has the position. */
export function Pages({ next }) {
  const [place, setPlace] = useParam('after');
  return (
    (place || next) && html`<div class="toolbar">
      <button type="button" disabled=${!place} onClick=${() => setPlace('')}>
        First page
      </button>
      <button type="button" disabled=${!next} onClick=${() => setPlace(next)}>
        Next page
      </button>
    </div>`
  );
}

/** The button that opens and closes the details of a row. */
export const Opener = ({ isOpen, onClick, children }) => html`<button type="button" class="opener" data-open aria-expanded=${isOpen} onClick=${onClick}>
  <span aria-hidden="true">${isOpen ? '▾' : '▸'}</span> ${children}
</button>`;
