// Line charts as SVG, with colours from the style sheet and a text for screen readers.
import { html, useEffect, useRef, useState } from './html.js';
import { formatTime, formatNumber } from './format.js';
import { createStore, useStore, zone } from './state.js';

const LEFT = 60;
const BOTTOM = 18;
const STEPS = [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

/** The round step between grid lines, with which three or four lines reach `most`. */
function stepOf(most) {
  const raw = most / 3;
  const power = 10 ** Math.floor(Math.log10(raw));
  return ([1, 2, 5, 10].find((one) => one * power >= raw) ?? 10) * power;
}

const shortNumber = (n) =>
  n >= 1e9
    ? `${formatNumber(n / 1e9)} G`
    : n >= 1e6
      ? `${formatNumber(n / 1e6)} M`
      : n >= 1e4
        ? `${formatNumber(n / 1e3)} k`
        : formatNumber(n);
/** The point in time under the pointer: all charts of a page show it. */
const pointedTime = createStore(/** @type {number | null} */ (null));

const lastValue = (values) => values.findLast((value) => value !== null && value !== undefined);
const isThere = (value) => value !== null && value !== undefined;

/**
 * @param {{
 *   title: string, xs: number[], series: { name: string, values: (number | null)[], kind?: string }[], unit?: string, height?: number,
 *   xText?: (x: number) => string, dots?: boolean, onRange?: ((from: number, to: number) => void) | null
 * }} props `xs` are seconds since 1970, unless `xText` names them
 */
export function Chart({ title, xs, series, unit = '', height = 130, xText = undefined, dots = false, onRange = null }) {
  useStore(zone);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [width, setWidth] = useState(480);
  const [ownPoint, setOwnPoint] = useState(/** @type {number | null} */ (null));
  const [start, setStart] = useState(/** @type {number | null} */ (null));
  const shared = useStore(pointedTime);
  const pointed = xText ? ownPoint : shared;
  const setPointed = xText ? setOwnPoint : pointedTime.set;
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(160, Math.round(entry.contentRect.width))));
    watch.observe(/** @type {HTMLElement} */ (box.current));
    return () => watch.disconnect();
  }, []);

  const [low, high] = [xs[0] ?? 0, xs.at(-1) ?? 1];
  const most = Math.max(1e-3, ...series.flatMap(({ values }) => values.filter(isThere)));
  const step = stepOf(most);
  const top = Math.ceil(most / step) * step;
  const x = (value) => LEFT + ((value - low) / (high - low || 1)) * (width - LEFT - 6);
  const y = (value) => 6 + (1 - value / top) * (height - BOTTOM - 6);
  const line = (values) => {
    let path = '';
    let isDown = false;
    for (const [index, value] of values.entries()) {
      if (isThere(value)) path += `${isDown ? 'L' : 'M'}${x(xs[index]).toFixed(1)} ${y(value).toFixed(1)}`;
      isDown = isThere(value);
    }
    return path;
  };
  /** Samples without a neighbour are drawn as points: a line needs two. */
  const lone = (values) => {
    const isLone = (value, index) => isThere(value) && !isThere(values[index - 1]) && !isThere(values[index + 1]);
    return values
      .map((value, index) => (isLone(value, index) ? `M${x(xs[index]).toFixed(1)} ${y(value).toFixed(1)}h.01` : ''))
      .join('');
  };
  /** A label at an edge is aligned so that it stays inside the chart. */
  const anchor = (at) => (at > width - 40 ? 'end' : at < LEFT + 30 ? '' : 'middle');
  const spacing = STEPS.find((one) => (high - low) / one <= (width - LEFT) / 90) ?? STEPS.at(-1);
  const clock = (value) =>
    formatTime(value * 1000).slice(spacing >= 86400 ? 5 : 11, spacing >= 86400 ? 10 : spacing >= 60 ? 16 : 19);
  const marks = [];
  if (xText) for (let i = 0; i < 5; i += 1) marks.push(low + ((high - low) * i) / 4);
  else for (let mark = Math.ceil(low / spacing) * spacing; mark <= high; mark += spacing) marks.push(mark);

  const nearestIndex = (wanted) => {
    let best = 0;
    for (const [index, value] of xs.entries()) if (Math.abs(value - wanted) < Math.abs(xs[best] - wanted)) best = index;
    return best;
  };
  const indexUnder = (event) => {
    const { left } = event.currentTarget.getBoundingClientRect();
    return nearestIndex(low + ((event.clientX - left - LEFT) / (width - LEFT - 6)) * (high - low));
  };
  const at = pointed === null || xs.length === 0 ? null : nearestIndex(pointed);
  const leave = () => {
    setPointed(null);
    setStart(null);
  };
  const chooseRange = (event) => {
    const to = indexUnder(event);
    if (onRange && start !== null && to !== start) onRange(xs[Math.min(start, to)], xs[Math.max(start, to)]);
    setStart(null);
  };
  const text = (value) => `${isThere(value) ? formatNumber(value) : '–'}${unit}`;
  const words = series
    .map(
      ({ name, values }) =>
        `${name}: ${text(lastValue(values))} now, ${text(Math.max(0, ...values.filter(isThere)))} at most`,
    )
    .join('; ');
  const when = at === null || xs[at] === undefined ? '' : xText ? xText(xs[at]) : formatTime(xs[at] * 1000);
  return html`<figure class="chart">
    <figcaption>
      <span>${title}</span>
      ${series.map(({ name, values, kind }, index) => html`<span class=${`key ${kind ?? `s${index + 1}`}`} key=${name}>
        <span aria-hidden="true">■</span> ${name}
        ${at !== null && html`
          ${' '}
          <b>${text(values[at])}</b>
        `}
      </span>`)}
      <span class="faint">${when}</span>
    </figcaption>
    <div ref=${box}>
      <svg
        width=${width}
        height=${height}
        viewBox=${`0 0 ${width} ${height}`}
        role="img"
        aria-label=${`${title}. ${words}`}
        onMouseMove=${(event) => setPointed(xs[indexUnder(event)] ?? null)}
        onMouseLeave=${leave}
        onMouseDown=${onRange ? (event) => setStart(indexUnder(event)) : undefined}
        onMouseUp=${chooseRange}
      >
        ${[0, 1, 2, 3, 4, 5]
          .map((n) => n * step)
          .filter((value) => value <= top * 1.001)
          .map((value) => html`<g key=${value}>
            <line class="grid" x1=${LEFT} x2=${width} y1=${y(value)} y2=${y(value)} />
            <text x=${LEFT - 6} y=${y(value) + 4} class="axis end">
              ${shortNumber(value)}
              ${unit}
            </text>
          </g>`)}
        ${marks.map((value, index) => html`<text
          key=${value}
          x=${x(value)}
          y=${height - 3}
          class=${`axis ${xText && index === 4 ? 'end' : anchor(x(value))}`}
        >
          ${xText ? xText(value) : clock(value)}
        </text>`)}
        ${start !== null && at !== null && html`<rect
          class="chosen"
          x=${Math.min(x(xs[start]), x(xs[at]))}
          width=${Math.abs(x(xs[at]) - x(xs[start]))}
          y="6"
          height=${height - BOTTOM - 6}
        />`}
        ${series.map(({ name, values, kind }, index) => html`
          <path key=${name} class=${`series ${kind ?? `s${index + 1}`}`} d=${line(values)} />
          <path key=${`${name} lone`} class=${`series lone ${kind ?? `s${index + 1}`}`} d=${lone(values)} />
        `)}
        ${dots &&
          series.map(({ values }, index) =>
            values.map(
              (value, i) =>
                isThere(value) && html`<circle class=${`dot s${index + 1}`} cx=${x(xs[i])} cy=${y(value)} r="2.5" />`,
            ),
          )}
        ${at !== null && xs[at] !== undefined && html`<line class="cursor" x1=${x(xs[at])} x2=${x(xs[at])} y1="6" y2=${height - BOTTOM} />`}
      </svg>
    </div>
  </figure>`;
}
