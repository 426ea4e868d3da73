// Create or change an event subscription: a form and its JSON side by side, the changes before they are made, and the filter tried.
import { call, get, pathOf, tagOf, withQuery } from '../api.js';
import { run } from '../actions.js';
import { command, duration, shortName, splitId, subscriptionId, topicArgument } from '../format.js';
import { html, useEffect, useMemo, useRef, useState } from '../html.js';
import { usePoll } from '../poll.js';
import { plain } from '../resources.js';
import { go, link, useParams } from '../state.js';
import { Command, Diff, Failed, Field, Head, Loaded, Select } from '../ui.js';
import { Bench } from './filter.js';
import { TransformBench } from './transform.js';

export default function Edit() {
  const params = useParams();
  const id = params.get('id') ?? '';
  const poll = usePoll(id ? (signal) => get(pathOf(id), signal) : null, ['edit', id], 0);
  if (!id) return html`<${Editor} topic=${params.get('topic') ?? ''} read=${null} />`;
  return html`<${Loaded} poll=${poll}>${(data) => html`<${Editor} topic=${splitId(id).topic} id=${id} read=${data} />`}<//>`;
}

const NEW = {
  destination: { endpointType: 'WebHook', properties: { endpointUrl: '', maxEventsPerBatch: 1, preferredBatchSizeInKilobytes: 64 } },
  eventDeliverySchema: 'EventGridSchema',
  filter: {},
  retryPolicy: { maxDeliveryAttempts: 30, eventTimeToLiveInMinutes: 1440 },
  labels: [],
};

const SERVER_OWNED = ['provisioningState', 'topic', 'endpointInService'];

/** What of a resource may be written. The address is without its query, and secrets are not there: both are kept unless they are given. */
function editable(data) {
  const properties = structuredClone(plain(data.properties));
  for (const key of SERVER_OWNED) delete properties[key];
  const webhook = properties.destination?.properties ?? {};
  if (webhook.endpointBaseUrl !== undefined) webhook.endpointUrl = webhook.endpointBaseUrl;
  delete webhook.endpointBaseUrl;
  delete webhook.signing;
  if (webhook.deliveryAttributeMappings?.some((one) => one.properties?.isSecret)) delete webhook.deliveryAttributeMappings;
  for (const key of ['subjectBeginsWith', 'subjectEndsWith']) if (properties.filter?.[key] === '') delete properties.filter[key];
  return properties;
}

/** The waits of a retry schedule, or the name of an edition. */
function waits(text) {
  const all = text.split(',').map((one) => one.trim()).filter(Boolean);
  return all.length === 1 && !/^\d+[a-z]/i.test(all[0]) ? all[0] : all.length > 0 ? all : '';
}

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** A JSON merge patch (RFC 7396) from one to the other; undefined where they are equal. */
export function mergePatch(before, after) {
  if (JSON.stringify(before) === JSON.stringify(after)) return undefined;
  if (!isObject(before) || !isObject(after)) return after;
  const patch = {};
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (!(key in after)) patch[key] = null;
    else {
      const part = mergePatch(before[key], after[key]);
      if (part !== undefined) patch[key] = part;
    }
  }
  return Object.keys(patch).length > 0 ? patch : undefined;
}

/** What a JSON merge patch makes of a value. */
function merged(value, patch) {
  if (!isObject(patch)) return patch;
  const next = isObject(value) ? { ...value } : {};
  for (const [key, part] of Object.entries(patch)) {
    if (part === null) delete next[key];
    else next[key] = merged(next[key], part);
  }
  return next;
}

/** The leaves of a patch: where, from what, to what. */
function changesOf(patch, before, path = '') {
  return Object.entries(patch ?? {}).flatMap(([key, value]) => {
    const at = path ? `${path}.${key}` : key;
    return isObject(value) && isObject(before?.[key]) ? changesOf(value, before[key], at) : [{ at, before: before?.[key], after: value ?? undefined }];
  });
}

const set = (object, path, value) => {
  const next = structuredClone(object);
  const keys = path.split('.');
  const last = keys.pop();
  let at = next;
  for (const key of keys) at = at[key] ??= {};
  if (value === undefined) delete at[last];
  else at[last] = value;
  return next;
};
const read = (object, path) => path.split('.').reduce((at, key) => at?.[key], object);

function Editor({ topic, id = '', read: first }) {
  const [name, setName] = useState('');
  const [resource, setResource] = useState(first);
  const [conflict, setConflict] = useState(/** @type {any} */ (null));
  const before = useMemo(() => (resource ? editable(resource) : null), [resource]);
  const [body, setBody] = useState(() => before ?? structuredClone(NEW));
  const [text, setText] = useState(() => JSON.stringify(body, null, 2));
  const [wrong, setWrong] = useState('');
  const [error, fail] = useState(/** @type {any} */ (null));
  const [plan, setPlan] = useState(/** @type {{ at: string, before: any, after: any }[] | null} */ (null));
  const [warnings, setWarnings] = useState(/** @type {string[]} */ ([]));
  const [since, setSince] = useState(0);
  const target = id || subscriptionId(topic, name);
  const patch = before ? mergePatch(before, body) : undefined;

  const write = (next) => {
    setBody(next);
    setText(JSON.stringify(next, null, 2));
    setWrong('');
    setPlan(null);
    fail(null);
  };
  const put = (path) => (value) => write(set(body, path, value === '' ? undefined : value));
  const writeText = (next) => {
    setText(next);
    setPlan(null);
    try {
      setBody(JSON.parse(next));
      setWrong('');
    } catch (problem) {
      setWrong(problem.message);
    }
  };
  const about = (path) => (error?.target?.endsWith(path) ? error.message : null);
  // The request is for a name that does not exist.
  const isTaken = !id && error?.status === 412;
  const isKnown = error?.target && FIELDS.some((path) => error.target.endsWith(path));

  const review = async (event) => {
    event.preventDefault();
    fail(null);
    setPlan(null);
    try {
      const answer = await call('PUT', withQuery(pathOf(target), { whatIf: true }), { body: { properties: body } });
      // A secret that is not shown is kept, although a PUT without it would remove it.
      setPlan(before ? changesOf(patch, before) : answer.changes);
      setWarnings(answer.warnings ?? []);
    } catch (problem) {
      fail(problem);
    }
  };
  const line = id
    ? command('subscriptions', 'update', topicArgument(topic), splitId(id).name, '--body', 'changes.json')
    : command('subscriptions', 'create', topicArgument(topic), name || 'NAME', '--body', 'subscription.json');
  const save = async () => {
    setSince(Date.now());
    const done = id
      ? await run(() => call('PATCH', pathOf(id), { body: patch, match: tagOf(resource) }).catch(keep), 'Event subscription changed', line)
      : await run(() => call('PUT', pathOf(target), { body: { properties: body }, match: null }).catch(keep), `${name} created`, line);
    setSince(0);
    if (done) go('subscription', { id: target, tab: 'settings' });
  };
  const keep = async (problem) => {
    fail(problem);
    if (id && problem.status === 412) setConflict(await get(pathOf(id)).catch(() => null));
    throw problem;
  };
  // The own changes, on what others made of it.
  const rebase = () => {
    write(merged(editable(conflict), patch ?? {}));
    setResource(conflict);
    setConflict(null);
  };
  const text2 = (path, label, more = {}) => html`<${Field} label=${label} value=${read(body, path) ?? ''} error=${about(path)} onInput=${(event) => put(path)(more.type === 'number' ? (event.currentTarget.value === '' ? '' : Number(event.currentTarget.value)) : event.currentTarget.value)} ...${more} />`;
  const list = (path) => (event) => put(path)(event.currentTarget.value.split(',').map((one) => one.trim()).filter(Boolean).length > 0 ? event.currentTarget.value.split(',').map((one) => one.trim()).filter(Boolean) : '');

  const kind = body.destination?.endpointType ?? 'WebHook';
  const isWebhook = kind === 'WebHook';
  const schedule = read(body, 'retryPolicy.schedule') ?? '';
  const order = (event) => put('ordering')(event.currentTarget.value ? { ...body.ordering, key: event.currentTarget.value } : '');
  const transform = (event) => {
    const next = { ...body.transform, body: event.currentTarget.value };
    if (!next.body) delete next.body;
    put('transform')(Object.keys(next).length > 0 ? next : '');
  };
  return html`
    <${Head} title=${id ? `Edit ${splitId(id).name}` : 'New event subscription'} crumbs=${[['Topics', link('topics')], [shortName(topic), link('topic', { id: topic })], ...(id ? [[splitId(id).name, link('subscription', { id })]] : [])]} />
    <form onSubmit=${review}>
      <div class="columns">
        <div>
          <fieldset><legend>Delivery</legend>
            ${!id && html`<${Field} label="Name" value=${name} required autofocus error=${isTaken ? 'An event subscription with this name exists. Choose another one.' : null} hint="3 to 64 letters, digits and hyphens" onInput=${(event) => { setName(event.currentTarget.value); setPlan(null); }} />`}
            ${isWebhook && text2('destination.properties.endpointUrl', 'Endpoint URL', { required: true, type: 'url', placeholder: 'https://example.com/hook', hint: id ? 'Shown without its query. The query is kept unless you change the URL. A new address is validated first.' : 'It is validated first (handshake), which may take 35 s.' })}
            ${!isWebhook && html`<p class="hint">Destination: ${kind}. Its other properties are in the JSON.</p>${text2('destination.properties.resourceId', 'Resource id', { required: true })}`}
            <${Select} label="Delivery schema" value=${body.eventDeliverySchema ?? ''} onChange=${put('eventDeliverySchema')} options=${[['EventGridSchema', 'Event Grid'], ['CloudEventSchemaV1_0', 'CloudEvents 1.0'], ['CustomInputSchema', 'as published (custom)']]} />
            ${(isWebhook || kind === 'AzureFunction') && html`${text2('destination.properties.maxEventsPerBatch', 'Events in a request, at most', { type: 'number', min: 1, max: 5000 })}
            ${text2('destination.properties.preferredBatchSizeInKilobytes', 'Preferred kilobytes in a request', { type: 'number', min: 1, max: 1024 })}`}
            <${Field} label="Order by key" value=${body.ordering?.key ?? ''} error=${about('ordering.key')} placeholder="none" hint="Such as subject or data.order.id: events of a key are delivered one after the other" onInput=${order} />
            <${Field} label="Transformation of the body (JMESPath)" error=${about('transform.body')} hint="Method, path suffix and headers are in the JSON.">${(a11y) => html`<textarea ...${a11y} rows="3" spellcheck=${false} value=${body.transform?.body ?? ''} onInput=${transform}></textarea>`}<//>
          </fieldset>
          <fieldset><legend>Retry and dead letters</legend>
            ${text2('retryPolicy.maxDeliveryAttempts', 'Attempts, at most', { type: 'number', min: 1, max: 30 })}
            ${text2('retryPolicy.eventTimeToLiveInMinutes', 'Time to live in minutes', { type: 'number', min: 1, max: 1440 })}
            <${Field} label="Retry schedule" value=${Array.isArray(schedule) ? schedule.join(', ') : schedule} error=${about('retryPolicy.schedule')} placeholder="that of the topic's edition" hint="Waits such as 30s, 10m, 2h, or the name of an edition" onChange=${(event) => put('retryPolicy.schedule')(waits(event.currentTarget.value))} />
            <${Field} label="Dead-letter destination" value=${read(body, 'deadLetterDestination.properties.resourceId') ?? ''} error=${about('resourceId')} placeholder="none: events that are given up are dropped" hint="Resource id of a storage account, or a URL such as s3://bucket/prefix"
              onInput=${(event) => write(set(body, 'deadLetterDestination', event.currentTarget.value ? { endpointType: 'StorageBlob', properties: { ...read(body, 'deadLetterDestination.properties'), resourceId: event.currentTarget.value } } : undefined))} />
            ${body.deadLetterDestination && text2('deadLetterDestination.properties.blobContainerName', 'Container', {})}
          </fieldset>
          <fieldset><legend>Filter</legend>
            <${Field} label="Event types, separated by commas" value=${body.filter?.includedEventTypes?.join(', ') ?? ''} error=${about('includedEventTypes')} placeholder="all" onChange=${list('filter.includedEventTypes')} />
            ${text2('filter.subjectBeginsWith', 'Subject begins with')}
            ${text2('filter.subjectEndsWith', 'Subject ends with')}
            <p class="hint">Advanced filters, headers and signing are in the JSON.</p>
          </fieldset>
          <${Field} label="Labels, separated by commas" value=${body.labels?.join(', ') ?? ''} onChange=${list('labels')} />
        </div>
        <div>
          <${Field} label="JSON of the properties" error=${wrong || null}>${(a11y) => html`<textarea ...${a11y} rows="24" spellcheck=${false} value=${text} onInput=${(event) => writeText(event.currentTarget.value)}></textarea>`}<//>
        </div>
      </div>
      ${error && !isKnown && !isTaken && html`<${Failed} error=${error} />`}
      ${conflict && before && html`<section class="panel" aria-label="Conflict"><h2>Changed meanwhile</h2>
        <p>${conflict.systemData?.lastModifiedBy ?? 'Somebody'} changed this event subscription after you opened it:</p>
        <${Diff} changes=${changesOf(mergePatch(before, editable(conflict)), before)} />
        <button type="button" onClick=${rebase}>Apply my changes to the new state</button>
      </section>`}
      ${plan && html`<section class="panel" aria-label="Changes"><h2>${plan.length === 0 ? 'Nothing changes' : id ? 'What changes' : 'What is created'}</h2><${Diff} changes=${plan} />${warnings.map((text) => html`<p class="notice warn" key=${text}>${text}</p>`)}</section>`}
      <${Command} line=${line} parts=${[]} />
      <div class="acts">
        <button type="submit" disabled=${Boolean(wrong) || (!id && !name)}>Review</button>
        <button type="button" class="primary" disabled=${!plan || Boolean(wrong) || since > 0 || (Boolean(id) && !patch)} onClick=${save}>${id ? 'Save' : 'Create'}</button>
        <a href=${id ? link('subscription', { id }) : link('topic', { id: topic })}>Cancel</a>
        ${since > 0 && html`<${Handshake} since=${since} />`}
      </div>
    </form>
    <h2>Try the filter</h2>
    <${Bench} topic=${topic} id=${id} filter=${body.filter ?? {}} />
    ${id && html`<h2>Try the transformation</h2><${TransformBench} id=${id} transform=${body.transform} />`}
  `;
}

const FIELDS = [
  'endpointUrl', 'maxEventsPerBatch', 'preferredBatchSizeInKilobytes', 'maxDeliveryAttempts', 'eventTimeToLiveInMinutes',
  'resourceId', 'blobContainerName', 'ordering.key', 'transform.body', 'retryPolicy.schedule', 'includedEventTypes', 'subjectBeginsWith', 'subjectEndsWith',
];

function Handshake({ since }) {
  const [, tick] = useState(0);
  const timer = useRef(0);
  useEffect(() => {
    timer.current = setInterval(() => tick((n) => n + 1), 500);
    return () => clearInterval(timer.current);
  }, []);
  return html`<span role="status">Waiting for the server, which may validate the endpoint: ${duration(Math.round((Date.now() - since) / 1000))}</span>`;
}
