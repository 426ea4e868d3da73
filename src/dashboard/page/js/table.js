// Tables: sorted by the server or here, rows that open, rows that are selected, and windows on long lists.
import { html, useEffect, useRef, useState } from './html.js';
import { useParam } from './state.js';

/** Height of a row in a window on a long list, as app.css has it. */
const ROW = 33;
/** Longer lists are windowed … */
const WINDOWED = 150;
/** … with so many rows outside of the window on each side. */
const SPARE = 10;

/**
 * @template R
 * @typedef {{ key: string, name: string, cell: (row: R) => any, num?: boolean, sort?: boolean, wide?: boolean }} Column
 */

/**
 * @template R
 * @typedef {(Column<R> | false | null)[]} Columns
 */

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
 * }} props with `total` the rows are a part of a longer list, from `first` on; `onWindow` tells which part is looked at
 */
export function Table({ name, columns: wanted, rows, id, sort, onSort, selected, onSelect, opened, details, total = rows.length, first = 0, onWindow }) {
  const columns = /** @type {Column<any>[]} */ (wanted.filter(Boolean));
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [top, setTop] = useState(0);
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
  return html`<div class=${`table ${isWindowed ? 'windowed' : ''}`} ref=${box} onScroll=${onScroll} tabindex="0" role="region" aria-label=${name} data-list>
    <table aria-rowcount=${total + 1}>
      <thead>
        <tr aria-rowindex="1">
          ${onSelect && html`<th class="pick"><input type="checkbox" aria-label=${`Select all of ${name}`} checked=${hasAll} onChange=${() => onSelect(hasAll ? new Set() : new Set(rows.map(id)))} /></th>`}
          ${columns.map(({ key, name: text, num, sort: sorts, wide }) => html`<th key=${key} scope="col" class=${`${num ? 'num' : ''} ${wide ? 'wide' : ''}`} aria-sort=${sort === key ? 'descending' : undefined}>
            ${sorts && onSort ? html`<button type="button" class="sort" onClick=${() => onSort(key)}>${text}<span aria-hidden="true">${sort === key ? ' ▾' : ''}</span></button>` : text}
          </th>`)}
        </tr>
      </thead>
      <tbody>
        ${from > 0 && html`<tr key="before" class="spacer" aria-hidden="true"><td colspan=${width} style=${{ height: `${from * ROW}px` }}></td></tr>`}
        ${shown.map((row, index) => {
          if (row === null) return html`<tr key=${`row ${from + index}`}><td colspan=${width} class="faint">…</td></tr>`;
          const key = id(row);
          const isOpen = details && opened === key;
          return html`
            <tr key=${key} data-row aria-rowindex=${from + index + 2} class=${`${selected?.has(key) ? 'selected' : ''}`}>
              ${onSelect && html`<td class="pick"><input type="checkbox" aria-label=${`Select ${key}`} checked=${selected?.has(key) ?? false} onChange=${() => toggle(key)} /></td>`}
              ${columns.map(({ key: column, cell, num, wide }) => html`<td key=${column} class=${`${num ? 'num' : ''} ${wide ? 'wide' : ''}`}>${cell(row)}</td>`)}
            </tr>
            ${isOpen && html`<tr key=${`${key} details`} class="details"><td colspan=${width}>${details(row)}</td></tr>`}
          `;
        })}
        ${isWindowed && to < total && html`<tr key="after" class="spacer" aria-hidden="true"><td colspan=${width} style=${{ height: `${(total - to) * ROW}px` }}></td></tr>`}
      </tbody>
    </table>
  </div>`;
}

/** The ways to the first and to the next page of a list; `after` of the address has the place. */
export function Pages({ next }) {
  const [place, go] = useParam('after');
  return (place || next) && html`<div class="toolbar">
    <button type="button" disabled=${!place} onClick=${() => go('')}>First page</button>
    <button type="button" disabled=${!next} onClick=${() => go(next)}>Next page</button>
  </div>`;
}

/** The button that opens and closes the details of a row. */
export const Opener = ({ isOpen, onClick, children }) => html`<button type="button" class="opener" data-open aria-expanded=${isOpen} onClick=${onClick}>
  <span aria-hidden="true">${isOpen ? '▾' : '▸'}</span> ${children}
</button>`;
