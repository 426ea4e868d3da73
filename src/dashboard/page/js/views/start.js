// The first run: a topic, an event subscription and an event in three steps, with the test endpoint of the server.
import { callApi, getJson, pathOf, postJson } from '../api.js';
import { formatCommand, idOf, subscriptionId, topicArgument } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { usePoll } from '../poll.js';
import { statusOf } from '../resources.js';
import { goTo, link } from '../state.js';
import { Command, Failed, Field } from '../ui.js';

const TOPIC = 'orders';
const SUBSCRIPTION = 'first';
/** The pause between two looks for the first delivery, in milliseconds. */
const LOOK = 500;

/** The event that is published. */
const firstEvent = (id) => ({
  id,
  eventType: 'Order.Placed',
  subject: 'orders/1',
  dataVersion: '1',
  eventTime: new Date().toISOString(),
  data: { total: 12.5 },
});

/** One of the steps: it is open, done, or waits for those before. */
function Step({ number, title, step, error, children }) {
  const isOpen = step === number;
  return html`<li class=${`panel ${isOpen ? '' : 'closed'}`} aria-current=${isOpen ? 'step' : undefined}>
    <h3>
      ${number}. ${title}
      ${step > number && html`
        ${' '}
        <span class="badge ok">done</span>
      `}
    </h3>
    ${isOpen && html`
      ${children}
      <${Failed} error=${error} />
    `}
  </li>`;
}

/** Waits for the first delivery, and shows the event. */
function Waiting({ topic, subscription, eventId }) {
  const poll = usePoll((signal) => statusOf(subscription, signal), ['first delivery', subscription], LOOK);
  const isDelivered = Number(poll.data?.counters.delivered ?? 0) > 0;
  useEffect(() => {
    if (isDelivered) goTo('event', { topic, id: eventId });
  }, [isDelivered]);
  return html`<p role="status">
    Waiting for the first event … <a href=${link('subscription', { id: subscription })}>What happens?</a>
  </p>`;
}

export default function Start() {
  const facts = usePoll((signal) => getJson('/server', signal), ['first run'], 0);
  const [step, setStep] = useState(1);
  const [name, setName] = useState(TOPIC);
  const [givenEndpoint, setGivenEndpoint] = useState(/** @type {string | null} */ (null));
  const [eventId, setEventId] = useState('');
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const testEndpoint = facts.data?.testEndpoint;
  const endpoint = givenEndpoint ?? (testEndpoint ? `${testEndpoint}${SUBSCRIPTION}` : '');
  const topic = idOf(name);
  const subscription = subscriptionId(topic, SUBSCRIPTION);

  const run = (work, next) => async (event) => {
    event.preventDefault();
    setError(null);
    setBusy(true);
    try {
      await work();
      setStep(next);
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  const createTopic = async () => {
    try {
      await callApi('PUT', pathOf(topic), { body: { location: 'local' }, match: null });
    } catch (problem) {
      // A first run that was abandoned may have created it.
      if (problem.status !== 412) throw problem;
    }
  };
  const subscribe = () => {
    const destination = { endpointType: 'WebHook', properties: { endpointUrl: endpoint } };
    return callApi('PUT', pathOf(subscription), { body: { properties: { destination } } });
  };
  const publish = async () => {
    const event = firstEvent(`first-${Date.now()}`);
    await postJson(`${pathOf(topic)}/publish`, [event]);
    setEventId(event.id);
  };
  const hint = testEndpoint
    ? 'The test endpoint of the server accepts every event. Your own program can have its address here.'
    : 'The address of your program. The server validates it first.';
  const publishLine = `${formatCommand('publish', topicArgument(topic))} <<< '${JSON.stringify(firstEvent('1'))}'`;
  return html`<section aria-labelledby="start">
    <h2 id="start">Nothing subscribes yet: your first event in three steps</h2>
    <ol class="plain steps">
      <${Step} number=${1} title="Create a topic, to which programs publish" step=${step} error=${error}>
        <form class="fields" onSubmit=${run(createTopic, 2)}>
          <${Field}
            label="Name of the topic"
            value=${name}
            required
            hint="3 to 50 letters, digits and hyphens"
            onInput=${(event) => setName(event.currentTarget.value)}
          />
          <${Command} parts=${['topics', 'create', topicArgument(topic)]} />
          <div class="acts">
            <button type="submit" class="primary" disabled=${isBusy}>
              Create the topic
            </button>
          </div>
        </form>
      <//>
      <${Step} number=${2} title="Subscribe an endpoint, which receives the events" step=${step} error=${error}>
        <form class="fields" onSubmit=${run(subscribe, 3)}>
          <${Field}
            label="Endpoint URL"
            type="url"
            value=${endpoint}
            required
            autofocus
            placeholder="https://example.com/hook"
            hint=${hint}
            onInput=${(event) => setGivenEndpoint(event.currentTarget.value)}
          />
          <${Command}
            parts=${[
              'subscriptions',
              'create',
              topicArgument(topic),
              SUBSCRIPTION,
              '--endpoint',
              endpoint || 'https://example.com/hook',
            ]}
          />
          <div class="acts">
            <button type="submit" class="primary" disabled=${isBusy}>
              Subscribe
            </button>
            ${isBusy && html`<span role="status">Waiting for the endpoint, which is validated …</span>`}
          </div>
        </form>
      <//>
      <${Step} number=${3} title="Publish an event" step=${step} error=${error}>
        <form class="fields" onSubmit=${run(publish, 3)}>
          <p>
            An event of the type <code>Order.Placed</code> is published to the topic <b>${name}</b>.
          </p>
          <${Command} line=${publishLine} parts=${[]} />
          <div class="acts">
            <button type="submit" class="primary" autofocus disabled=${isBusy || eventId !== ''}>
              Publish
            </button>
          </div>
          ${eventId && html`<${Waiting} topic=${topic} subscription=${subscription} eventId=${eventId} />`}
        </form>
      <//>
    </ol>
  </section>`;
}
