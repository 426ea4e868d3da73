// The address of a webhook: the only setting that a portal link changes.
import { runAction } from '../actions.js';
import { callApi, getJson, pathOf, tagOf } from '../api.js';
import { formatCommand, splitId, topicArgument } from '../format.js';
import { html, useState } from '../html.js';
import { usePoll } from '../poll.js';
import { destinationOf } from '../resources.js';
import { goTo, link, useParams } from '../state.js';
import { Command, Failed, Field, Head, Loaded } from '../ui.js';

export default function Endpoint() {
  const id = useParams().get('id') ?? '';
  const poll = usePoll((signal) => getJson(pathOf(id), signal), ['endpoint', id], 0);
  const { name } = splitId(id);
  return html`
    <${Head}
      title=${`Endpoint of ${name}`}
      crumbs=${[
        ['Subscriptions', link('subscriptions')],
        [name, link('subscription', { id })],
      ]}
    />
    <${Loaded} poll=${poll}>${(data) => html`<${Change} id=${id} resource=${data} />`}<//>
  `;
}

function Change({ id, resource }) {
  const before = destinationOf(resource.properties)?.properties?.endpointBaseUrl;
  const [url, setUrl] = useState(before);
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const { topic, name } = splitId(id);
  const line = formatCommand('subscriptions', 'update', topicArgument(topic), name, '--endpoint', url);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    const change = { destination: { properties: { endpointUrl: url } } };
    const isPush = resource.properties.deliveryConfiguration?.push;
    const body = isPush ? { properties: { deliveryConfiguration: { push: change } } } : change;
    const keep = (problem) => {
      setError(problem);
      throw problem;
    };
    const done = await runAction(
      () => callApi('PATCH', pathOf(id), { body, match: tagOf(resource) }).catch(keep),
      'Endpoint changed',
      line,
    );
    setBusy(false);
    if (done) goTo('subscription', { id });
  };
  return html`<form onSubmit=${submit}>
    <${Field}
      label="Endpoint URL"
      type="url"
      required
      autofocus
      value=${url}
      hint="Shown without its query. A new address is validated first (handshake), which may take 35 s."
      onInput=${(event) => setUrl(event.currentTarget.value)}
    />
    <${Failed} error=${error} />
    <${Command} line=${line} parts=${[]} />
    <div class="acts">
      <button type="submit" class="primary" disabled=${isBusy || url === before}>
        Save
      </button>
      <a href=${link('subscription', { id })}>Cancel</a>
    </div>
  </form>`;
}
