// The manual's part of Markdown as elements: headings, paragraphs, lists of one level, tables, fenced blocks.
import { html } from './html.js';
import { link } from './state.js';

const INLINE = /(`[^`]+`)|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\(([^)]+)\)/g;

/** Code, emphasis and links within a line. A link to a chapter stays in the page; others are shown as text. */
function renderInline(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    parts.push(text.slice(at, found.index));
    const [all, code, strong, em, label, to] = found;
    const chapter = /^([\w-]+)\.md$/.exec(to ?? '')?.[1];
    if (code) parts.push(html`<code>${code.slice(1, -1)}</code>`);
    else if (strong) parts.push(html`<strong>${strong}</strong>`);
    else if (em) parts.push(html`<em>${em}</em>`);
    else if (chapter) parts.push(html`<a href=${link('help', { chapter })}>${label}</a>`);
    else parts.push(`${label} (${to})`);
    at = found.index + all.length;
  }
  parts.push(text.slice(at));
  return parts;
}

const splitCells = (row) =>
  row
    .replace(/^\||\|$/g, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));

/** @param {string} text */
export function renderMarkdown(text) {
  const lines = text.split('\n');
  const blocks = [];
  for (let n = 0; n < lines.length; ) {
    const line = lines[n];
    const until = (isOver) => {
      const taken = [];
      while (n < lines.length && !isOver(lines[n])) taken.push(lines[n++]);
      return taken;
    };
    if (line.startsWith('```')) {
      n += 1;
      const code = until((one) => one.startsWith('```'));
      n += 1;
      blocks.push(
        html`<pre class="text" tabindex="0" role="region" aria-label="Example">
          ${code.join('\n')}
        </pre>`,
      );
    } else if (/^#+ /.test(line)) {
      n += 1;
      const title = renderInline(line.replace(/^#+ /, ''));
      blocks.push(
        line.startsWith('### ') ? html`<h4>${title}</h4>` : line.startsWith('## ') ? html`<h3>${title}</h3>` : html`<h2>${title}</h2>`,
      );
    } else if (line.startsWith('|')) {
      const [head, , ...rows] = until((one) => !one.startsWith('|'));
      blocks.push(
        html`<div class="table" tabindex="0" role="region" aria-label="Table">
          <table>
            <thead>
              <tr>
                ${splitCells(head).map((cell) => html`<th scope="col">${renderInline(cell)}</th>`)}
              </tr>
            </thead>
            <tbody>
              ${rows.map((row) => html`<tr>
                ${splitCells(row).map((cell) => html`<td class="wide">${renderInline(cell)}</td>`)}
              </tr>`)}
            </tbody>
          </table>
        </div>`,
      );
    } else if (/^([-*]|\d+\.) /.test(line)) {
      const items = [];
      for (const one of until((next) => next === '')) {
        if (/^([-*]|\d+\.) /.test(one)) items.push(one.replace(/^([-*]|\d+\.) /, ''));
        else items[items.length - 1] += ` ${one.trim()}`;
      }
      blocks.push(
        html`<ul>
          ${items.map((item) => html`<li>${renderInline(item)}</li>`)}
        </ul>`,
      );
    } else if (line === '' || line.startsWith('![')) n += 1;
    else blocks.push(html`<p>${renderInline(until((one) => one === '' || /^(#+ |\||```|[-*] )/.test(one)).join(' '))}</p>`);
  }
  return blocks;
}
