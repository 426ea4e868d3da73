// The manual, and the API of the server from its own description.
import { getJson, withQuery, callApi } from '../api.js';
import { html, useState } from '../html.js';
import { indentJson } from '../json.js';
import { renderMarkdown } from '../markdown.js';
import { usePoll } from '../poll.js';
import { link, useParam } from '../state.js';
import { Badge, Command, Copy, Failed, Field, Head, Loaded, Search } from '../ui.js';

const CHAPTERS = [
  'dashboard',
  'publishing',
  'subscriptions',
  'delivery',
  'dead-letters',
  'replay',
  'pull-delivery',
  'destinations',
  'security',
  'metrics',
  'backup',
  'chaos',
  'install',
  'kubernetes',
  'cluster',
  'upgrade',
  'settings',
  'tuning',
  'azure-clients',
  'environment',
  'exit-status',
  'files',
  'names',
  'times',
  'glossary',
];

export default function Help() {
  const [text, setText] = useParam('q');
  const [chapter] = useParam('chapter');
  const poll = usePoll((signal) => getJson('/openapi.json', signal), ['openapi'], 0);
  return html`
    <${Head} title="Manual and API" />
    <section class="panel">
      <h2>Manual</h2>
      <p class="chapters">
        ${CHAPTERS.map((name) => html`<a key=${name} href=${link('help', { chapter: name })} aria-current=${name === chapter ? 'page' : undefined}>
          ${name}
        </a>`)}
      </p>
    </section>
    ${chapter && html`<${Chapter} name=${chapter} key=${chapter} />`}
    <section class="panel">
      <h2>API</h2>
      <div class="filters">
        <${Search} label="Search operations" value=${text} onChange=${setText} />
      </div>
      <${Loaded} poll=${poll}>${(document) => html`<${Operations} document=${document} text=${text.toLowerCase()} />`}<//>
    </section>
  `;
}

/** A chapter of the manual, as `gridhook help` prints it. */
function Chapter({ name }) {
  const poll = usePoll(
    (signal) => callApi('GET', `/ui/manual/${encodeURIComponent(name)}.md`, { signal, text: true }),
    ['chapter', name],
    0,
  );
  return html`<article class="panel manual">
    <${Loaded} poll=${poll}>${(text) => renderMarkdown(text)}<//>
    <${Command} parts=${['help', name]} />
  </article>`;
}

const METHODS = ['get', 'put', 'post', 'patch', 'delete', 'head', 'options'];

/** The first of several paths with the same operation: topics, domains and namespaces have them in common. */
function operationsOf(document) {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({
      path,
      method,
      shared: item.parameters ?? [],
      ...item[method],
    })),
  );
}

function Operations({ document, text }) {
  const found = operationsOf(document).filter((one) =>
    `${one.method} ${one.path} ${one.summary} ${one.operationId} ${one.tags}`.toLowerCase().includes(text),
  );
  return html`
    <p class="faint" role="status">
      ${found.length} operations${found.length > 60 ? ', the first 60 are shown' : ''}
    </p>
    ${found.slice(0, 60).map((one) => html`<details key=${`${one.method} ${one.path}`}>
      <summary>
        <${Badge}>${one.method.toUpperCase()}<//> <code>${one.path}</code> ${one.summary}
      </summary>
      <${Operation} document=${document} operation=${one} />
    </details>`)}
  `;
}

const resolveReference = (document, part) =>
  part?.$ref
    ? part.$ref
        .slice(2)
        .split('/')
        .reduce((at, key) => at[key], document)
    : part;

function Operation({ document, operation }) {
  const parameters = [...operation.shared, ...(operation.parameters ?? [])].map((part) =>
    resolveReference(document, part),
  );
  const [form, setForm] = useState(/** @type {Record<string, string>} */ ({}));
  const [answer, setAnswer] = useState('');
  const [error, setError] = useState(/** @type {any} */ (null));
  const body = Object.values(operation.requestBody?.content ?? {})[0];
  const filled = operation.path.replace(/\{([^}]+)\}/g, (_, name) => encodeURIComponent(form[name] ?? `{${name}}`));
  const path = withQuery(
    filled,
    Object.fromEntries(parameters.filter((one) => one.in === 'query').map((one) => [one.name, form[one.name]])),
  );
  const send = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      setAnswer(indentJson(await callApi('GET', path, { text: true })).slice(0, 64 * 1024));
    } catch (problem) {
      setError(problem);
    }
  };
  const isReadable = operation.method === 'get' && !operation.path.startsWith('/tail');
  return html`<form onSubmit=${send} class="fields">
    <div class="filters">
      ${parameters
        .filter((one) => one.in !== 'header')
        .map((one) => html`<${Field}
          key=${`${one.in} ${one.name}`}
          label=${`${one.name} (${one.in})`}
          hint=${one.description}
          required=${one.required}
          value=${form[one.name] ?? ''}
          onInput=${(event) => setForm({ ...form, [one.name]: event.currentTarget.value })}
        />`)}
    </div>
    ${body?.example && html`<pre class="text" tabindex="0" role="region" aria-label="Example of a body">
      ${JSON.stringify(body.example, null, 2)}
    </pre>`}
    <ul class="plain">
      ${Object.entries(operation.responses).map(([status, part]) => html`<li key=${status}>
        <b>${status}</b> ${resolveReference(document, part).description}
      </li>`)}
    </ul>
    <div class="command">
      <code
        tabindex="0"
        role="group"
        aria-label="Command"
      >${`curl -X ${operation.method.toUpperCase()} -H "Authorization: Bearer $TOKEN" '${location.origin}${path}'`}</code>
      <${Copy}
        text=${`curl -X ${operation.method.toUpperCase()} -H "Authorization: Bearer $TOKEN" '${location.origin}${path}'`}
      />
    </div>
    ${isReadable && html`<div class="acts">
      <button type="submit">Send</button>
    </div>`}
    <${Failed} error=${error} />
    ${answer && html`<pre class="text" tabindex="0" role="region" aria-label="Response">
      ${answer}
    </pre>`}
  </form>`;
}
