// Chaos: break parts of the server on purpose. Only where it is enabled.
import { callApi, getJson, hasRole, postJson } from '../api.js';
import { runAction } from '../actions.js';
import { formatNumber } from '../format.js';
import { html, useState } from '../html.js';
import { useChanges, usePoll } from '../poll.js';
import { Badge, Command, Facts, Field, Head, Loaded, Select, Time, askOperator } from '../ui.js';

/** @typedef {import('../openapi').components['schemas']} Schemas */

/** @typedef {{ name: string, label: string, type?: string, standard: string, options?: string[], optional?: boolean }} Input */

/** @type {{ path: string, title: string, about: string, inputs: Input[], confirm?: boolean }[]} */
const FAULTS = [
  {
    path: 'kill',
    title: 'Kill an actor',
    about: 'It restarts from the journal.',
    confirm: true,
    inputs: [
      {
        name: 'actor',
        label: 'Actor',
        standard: 'subscription',
        options: ['subscription', 'topic', 'deadLetter', 'delivery', 'random'],
      },
      { name: 'by', label: 'By', standard: 'panic', options: ['panic', 'stop'] },
      { name: 'topic', label: 'Topic', standard: '', optional: true },
      { name: 'subscription', label: 'Event subscription', standard: '', optional: true },
    ],
  },
  {
    path: 'stall',
    title: 'Stall',
    about: 'The journal or an actor stands still.',
    inputs: [
      {
        name: 'actor',
        label: 'What',
        standard: 'journal',
        options: ['journal', 'topic', 'subscription', 'deadLetter', 'random'],
      },
      { name: 'duration', label: 'Duration', standard: '500ms' },
      { name: 'topic', label: 'Topic', standard: '', optional: true },
      { name: 'subscription', label: 'Event subscription', standard: '', optional: true },
    ],
  },
  {
    path: 'writes',
    title: 'Fail writes',
    about: 'The next writes of the journal fail as on a full disk.',
    inputs: [
      { name: 'fail', label: 'Writes', type: 'number', standard: '3' },
      { name: 'duration', label: 'Duration', standard: '10s' },
    ],
  },
  {
    path: 'responses',
    title: 'Disturb responses',
    about: 'Answers of endpoints are lost, late or changed.',
    inputs: [
      { name: 'fault', label: 'Fault', standard: 'drop', options: ['drop', 'delay', 'corrupt'] },
      { name: 'rate', label: 'Share, 0 to 1', type: 'number', standard: '0.05' },
      { name: 'delay', label: 'Delay (delay only)', standard: '', optional: true },
      { name: 'duration', label: 'Duration', standard: '30s' },
      { name: 'topic', label: 'Topic', standard: '', optional: true },
      { name: 'subscription', label: 'Event subscription', standard: '', optional: true },
    ],
  },
  {
    path: 'clock',
    title: 'Step the clock',
    about: 'The wall clock of the server is wrong for a while.',
    inputs: [
      { name: 'step', label: 'Step', standard: '-1h' },
      { name: 'duration', label: 'Duration', standard: '10s' },
    ],
  },
  {
    path: 'poison',
    title: 'Poison an event',
    about: 'An event kills every actor that processes it, and is quarantined at the third time.',
    inputs: [
      { name: 'topic', label: 'Topic', standard: '' },
      { name: 'subscription', label: 'Event subscription', standard: '' },
      { name: 'eventId', label: 'Event id', standard: '' },
      { name: 'times', label: 'Times', type: 'number', standard: '3' },
    ],
  },
];

/** Whether the server has the paths of chaos: without it they do not exist. */
export const isOff = (error) => error?.status === 404;

export default function Chaos() {
  const poll = usePoll((signal) => /** @type {Promise<Schemas['Chaos']>} */ (getJson('/chaos', signal)), ['chaos']);
  useChanges(poll.refresh);
  if (isOff(poll.error)) {
    return html`
      <${Head} title="Chaos" />
      <div class="empty">
        <p>
          Chaos is off: nothing can be broken on purpose. <code>chaos.enabled = true</code> in the settings turns it
          on, for a server that may be broken.
        </p>
        <${Command} parts=${['help', 'chaos']} />
      </div>
    `;
  }
  return html`
    <${Head} title="Chaos" about="Everything here harms the running server. Each fault ends by itself.">
      ${hasRole('operate') && html`<button
        type="button"
        class="primary"
        onClick=${() => runAction(() => callApi('DELETE', '/chaos'), 'All faults ended', 'curl -X DELETE …/chaos')}
      >
        End all faults
      </button>`}
    <//>
    <${Loaded} poll=${poll}>
      ${(/** @type {Schemas['Chaos']} */ data) => html`
        <section class="panel">
          <h2>Active faults</h2>
          ${data.active.length === 0 ? html`<p>None.</p>` : html`<ul class="plain">
            ${data.active.map((one) => html`<li key=${one.number}>
              <${Badge} kind="bad">${one.fault}<//> <code>${JSON.stringify(one.request)}</code> until${' '}
              <${Time} at=${one.until} />
            </li>`)}
          </ul>`}
        </section>
        ${hasRole('admin') && html`<div class="columns">
          ${FAULTS.map((fault) => html`<${Fault} key=${fault.path} fault=${fault} />`)}
        </div>`}
        <section class="panel">
          <h2>Injected so far</h2>
          <${Facts}
            rows=${Object.entries(data.injected).map(([name, value]) => [
              name.replace(/[A-Z]/g, (c) => ` ${c.toLowerCase()}`),
              typeof value === 'object'
                ? `${formatNumber(value.responses)} responses, ${formatNumber(value.events)} events`
                : formatNumber(value),
            ])}
          />
        </section>
      `}
    <//>
    <${Command} parts=${['chaos', '--duration', '60s', '--rate', '2000', '--kill-every', '20ms']} />
  `;
}

function Fault({ fault }) {
  const [form, setForm] = useState(() => Object.fromEntries(fault.inputs.map((input) => [input.name, input.standard])));
  const body = Object.fromEntries(
    fault.inputs
      .filter((input) => form[input.name] !== '')
      .map((input) => [input.name, input.type === 'number' ? Number(form[input.name]) : form[input.name]]),
  );
  const line = `curl -X POST …/chaos/${fault.path} -d '${JSON.stringify(body)}'`;
  const submit = async (event) => {
    event.preventDefault();
    if (
      fault.confirm &&
      !(await askOperator({ title: `${fault.title}?`, confirm: fault.title, danger: true, typed: form.actor, line }))
    )
      return;
    await runAction(() => postJson(`/chaos/${fault.path}`, body), `${fault.title}: done`, line);
  };
  return html`<form onSubmit=${submit}>
    <fieldset>
      <legend>${fault.title}</legend>
      <p class="hint">${fault.about}</p>
      ${fault.inputs.map(({ name, label, options, type = 'text', optional }) =>
        options ? html`<${Select}
          key=${name}
          label=${label}
          value=${form[name]}
          onChange=${(value) => setForm({ ...form, [name]: value })}
          options=${options.map((one) => [one, one])}
        />` : html`<${Field}
          key=${name}
          label=${`${label}${optional ? ' (optional)' : ''}`}
          type=${type}
          step="any"
          required=${!optional}
          value=${form[name]}
          onInput=${(event) => setForm({ ...form, [name]: event.currentTarget.value })}
        />`,
      )}
      <button type="submit" class="danger">
        ${fault.title}
      </button>
    </fieldset>
  </form>`;
}
