// Create or change an event subscription: a form and its JSON side by side, the changes before they are made, and the filter tried.
import { callApi, getJson, hasRole, pathOf, tagOf, withQuery } from '../api.js';
import { runAction } from '../actions.js';
import { formatCommand, formatDuration, shortName, splitId, subscriptionId, topicArgument } from '../format.js';
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from '../html.js';
import { isObject, parseExact, printJson } from '../json.js';
import { usePoll } from '../poll.js';
import { withOneDestination } from '../resources.js';
import { goTo, leaveQuestion, link, useParams } from '../state.js';
import { Command, Diff, Failed, Field, Head, Loaded, askOperator } from '../ui.js';
import { Bench } from './filter.js';
import {
  DeadLetters,
  DeliveryMode,
  Destination,
  Filter,
  Headers,
  Labels,
  Order,
  PLACES,
  Requests,
  Retries,
  Schema,
  Signing,
  Transformation,
  wrongMember,
} from './subjects.js';
import { TransformBench } from './transform.js';

export default function Edit() {
  const params = useParams();
  const id = params.get('id') ?? '';
  const topic = id ? splitId(id).topic : (params.get('topic') ?? '');
  const poll = usePoll(id ? (signal) => callApi('GET', pathOf(id), { signal, isExact: true }) : null, ['edit', id], 0);
  const parent = usePoll(
    (signal) => getJson(pathOf(topic.replace(/(\/domains\/[^/]+)\/topics\/.*$/i, '$1')), signal),
    ['topic of', topic],
    0,
  );
  if (id)
    return html`<${Loaded} poll=${poll}>
      ${(data) => html`<${Editor} key=${id} topic=${topic} id=${id} read=${data} parent=${parent.data?.properties ?? {}} />`}
    <//>`;
  return html`
    ${!parent.data && html`<${Head} title="New event subscription" />`}
    <${Loaded} poll=${parent}>
      ${(data) => html`<${Editor} key=${topic} topic=${topic} read=${null} parent=${data.properties ?? {}} />`}
    <//>
  `;
}

const isInNamespace = (topic) => /\/namespaces\//i.test(topic);
const NEW_DESTINATION = { endpointType: 'WebHook', properties: { endpointUrl: '' } };
const NEW_PUSH = { deliveryMode: 'Push', push: { destination: NEW_DESTINATION } };
const NEW_QUEUE = { deliveryMode: 'Queue', queue: {} };

/** The properties of a new event subscription, as its topic allows them. */
function newProperties(topic, parent) {
  if (isInNamespace(topic))
    return { deliveryConfiguration: NEW_PUSH, eventDeliverySchema: 'CloudEventSchemaV1_0', filtersConfiguration: {} };
  const eventDeliverySchema = parent.inputSchema === 'CloudEventSchemaV1_0' ? parent.inputSchema : 'EventGridSchema';
  return {
    destination: {
      endpointType: 'WebHook',
      properties: { endpointUrl: '', maxEventsPerBatch: 1, preferredBatchSizeInKilobytes: 64 },
    },
    eventDeliverySchema,
    filter: {},
    retryPolicy: { maxDeliveryAttempts: 30, eventTimeToLiveInMinutes: 1440 },
    labels: [],
  };
}

const SERVER_OWNED = ['provisioningState', 'topic', 'endpointInService'];

/** The writable properties of a resource. The query of the address is left out, and secrets are hidden: the server keeps both unless a request sets them. */
function editableProperties(data) {
  const properties = structuredClone(withOneDestination(data.properties));
  for (const key of SERVER_OWNED) delete properties[key];
  const webhook = (properties.destination ?? properties.deliveryConfiguration?.push?.destination)?.properties ?? {};
  if (webhook.endpointBaseUrl !== undefined) webhook.endpointUrl = webhook.endpointBaseUrl;
  delete webhook.endpointBaseUrl;
  for (const key of ['subjectBeginsWith', 'subjectEndsWith'])
    if (properties.filter?.[key] === '') delete properties.filter[key];
  return properties;
}

/** A JSON merge patch (RFC 7396) from one to the other; undefined where they are equal. */
export function mergePatch(before, after) {
  if (JSON.stringify(before) === JSON.stringify(after)) return undefined;
  if (!isObject(before) || !isObject(after)) return after;
  const patch = {};
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (!Object.hasOwn(after, key)) patch[key] = null;
    else {
      const part = mergePatch(before[key], after[key]);
      if (part !== undefined) patch[key] = part;
    }
  }
  return Object.keys(patch).length > 0 ? patch : undefined;
}

/** The value with a JSON merge patch applied. */
function applyPatch(value, patch) {
  if (!isObject(patch)) return patch;
  const next = isObject(value) ? { ...value } : {};
  for (const [key, part] of Object.entries(patch)) {
    if (part === null) delete next[key];
    else next[key] = applyPatch(next[key], part);
  }
  return next;
}

/** The leaves of a patch, each with its path, the value before and the value after. */
function changesOf(patch, before, path = '') {
  return Object.entries(patch ?? {}).flatMap(([key, value]) => {
    const at = path ? `${path}.${key}` : key;
    return isObject(value) && isObject(before?.[key])
      ? changesOf(value, before[key], at)
      : [{ at, before: before?.[key], after: value ?? undefined }];
  });
}

const withValueAt = (object, path, value) => {
  const next = structuredClone(object);
  const keys = path.split('.');
  const last = keys.pop();
  let at = next;
  for (const key of keys) at = at[key] ??= {};
  if (value === undefined) delete at[last];
  else at[last] = value;
  return next;
};
const valueAt = (object, path) => path.split('.').reduce((at, key) => at?.[key], object);

/** @typedef {{ at: string, before: any, after: any }} Change */

/**
 * The properties as an object, which the form edits, and as text, with the result of the server's review.
 * @typedef {{ body: any, text: string, wrong: string, plan: Change[] | null, warnings: string[], error: any }} Draft
 */

const NO_REVIEW = { plan: null, warnings: [], error: null };

/** @returns {Draft} */
const newDraft = (body) => ({ body, text: printJson(body, 2), wrong: '', ...NO_REVIEW });

/**
 * The draft with a text that was typed. While the form cannot show the text, it keeps the last one.
 * @param {Draft} draft @param {string} text @returns {Draft}
 */
function draftWithText(draft, text) {
  const next = { ...draft, ...NO_REVIEW, text };
  try {
    const body = parseExact(text);
    const wrong = isObject(body) ? wrongMember(body) : 'The properties are an object: { … }';
    return wrong ? { ...next, wrong } : { ...next, body, wrong };
  } catch (problem) {
    return { ...next, wrong: problem.message };
  }
}

/** @param {Draft} draft @param {any} action @returns {Draft} */
function reduceDraft(draft, action) {
  switch (action.type) {
    case 'setBody':
      return newDraft(action.body);
    case 'setText':
      return draftWithText(draft, action.text);
    case 'clearReview':
      return { ...draft, ...NO_REVIEW };
    case 'setReview':
      return { ...draft, plan: action.plan, warnings: action.warnings };
    case 'setError':
      return { ...draft, error: action.error };
    default:
      throw new Error(`There is no action “${action.type}”.`);
  }
}

/** Asks before unsaved input is left. An effect that runs after the next frame would miss who leaves at once. */
function useLeaveQuestion(isDirty) {
  useLayoutEffect(() => {
    if (!isDirty) return undefined;
    const stay = (event) => event.preventDefault();
    leaveQuestion.set(() =>
      askOperator({
        title: 'Leave without saving?',
        body: 'What you changed here is not saved.',
        confirm: 'Leave',
        danger: true,
      }),
    );
    addEventListener('beforeunload', stay);
    return () => {
      leaveQuestion.set(null);
      removeEventListener('beforeunload', stay);
    };
  }, [isDirty]);
}

function Editor({ topic, id = '', read: first, parent }) {
  const [name, setName] = useState('');
  const [resource, setResource] = useState(first);
  const [conflict, setConflict] = useState(/** @type {any} */ (null));
  const before = useMemo(() => (resource ? editableProperties(resource) : null), [resource]);
  const [draft, dispatch] = useReducer(reduceDraft, null, () => newDraft(before ?? newProperties(topic, parent)));
  const { body, text, wrong, error, plan, warnings } = draft;
  const firstText = useRef(text).current;
  const [since, setSince] = useState(0);
  const target = id || subscriptionId(topic, name);
  const patch = before ? mergePatch(before, body) : undefined;
  useLeaveQuestion(text !== firstText || name !== '');

  const write = (next) => dispatch({ type: 'setBody', body: next });
  // The request has If-None-Match: *, so 412 means that the name exists.
  const isTaken = !id && error?.status === 412;
  const isWrongName = !id && error?.target === "the subscription's name";
  const nameError = isTaken
    ? 'An event subscription with this name exists. Choose another one.'
    : isWrongName
      ? error.message
      : null;
  const errorAt = (path) => (error?.target?.includes(path) ? error.message : null);
  const isAtField = Boolean(nameError) || FIELDS.some((field) => error?.target?.includes(field));
  const isNamespace = isInNamespace(topic);
  const mode = body.deliveryConfiguration?.deliveryMode;
  const places = isNamespace ? PLACES[mode === 'Queue' ? 'queue' : 'push'] : PLACES.topic;
  const put = (path) => (value) => write(withValueAt(body, path, value === '' ? undefined : value));
  const form = { places, read: (path) => valueAt(body, path), put, errorAt };
  const writeName = (event) => {
    setName(event.currentTarget.value);
    dispatch({ type: 'clearReview' });
  };
  const setMode = (next) => write({ ...body, deliveryConfiguration: next === 'Queue' ? NEW_QUEUE : NEW_PUSH });

  const noteProblem = async (problem) => {
    dispatch({ type: 'setError', error: problem });
    if (id && problem.status === 412)
      setConflict(await callApi('GET', pathOf(id), { isExact: true }).catch(() => null));
  };
  const refuse = async (problem) => {
    await noteProblem(problem);
    throw problem;
  };
  /** The request that saves; as a preview, the server checks it in the same way and changes nothing. */
  const send = (query) =>
    id
      ? callApi('PATCH', withQuery(pathOf(id), query), {
          body: isNamespace ? { properties: patch ?? {} } : (patch ?? {}),
          match: tagOf(resource),
        })
      : callApi('PUT', withQuery(pathOf(target), query), { body: { properties: body }, match: null });
  const review = async (event) => {
    event.preventDefault();
    dispatch({ type: 'clearReview' });
    try {
      const answer = await send({ whatIf: true });
      // The changes of an update are those of this form: the server's own list hides secrets.
      const changes = before ? changesOf(patch, before) : answer.changes;
      const notes = answer.needsValidation ? [VALIDATION] : [];
      dispatch({ type: 'setReview', plan: changes, warnings: [...(answer.warnings ?? []), ...notes] });
    } catch (problem) {
      await noteProblem(problem);
    }
  };
  const line = id
    ? formatCommand('subscriptions', 'update', topicArgument(topic), splitId(id).name, '--body', 'changes.json')
    : formatCommand('subscriptions', 'create', topicArgument(topic), name || 'NAME', '--body', 'subscription.json');
  const save = async () => {
    setSince(Date.now());
    const done = await runAction(
      () => send({}).catch(refuse),
      id ? 'Event subscription changed' : `${name} created`,
      line,
    );
    setSince(0);
    if (!done) return;
    leaveQuestion.set(null);
    goTo('subscription', { id: target, tab: 'settings' });
  };
  // Applies the changes of this form to the state that others saved.
  const rebase = () => {
    write(applyPatch(editableProperties(conflict), patch ?? {}));
    setResource(conflict);
    setConflict(null);
  };
  const isPush = mode !== 'Queue';
  const filter = isNamespace
    ? {
        includedEventTypes: body.filtersConfiguration?.includedEventTypes,
        advancedFilters: body.filtersConfiguration?.filters,
      }
    : (body.filter ?? {});
  return html`
    <${Head}
      title=${id ? `Edit ${splitId(id).name}` : 'New event subscription'}
      crumbs=${[
        ['Topics', link('topics')],
        [shortName(topic), link('topic', { id: topic })],
        ...(id ? [[splitId(id).name, link('subscription', { id })]] : []),
      ]}
    />
    <div class="columns">
      <form onSubmit=${review}>
        <div class="panel fields">
          ${!id && html`<${Field}
            label="Name"
            value=${name}
            required
            autofocus
            error=${nameError}
            hint="3 to 64 letters, digits and hyphens"
            onInput=${writeName}
          />`}
          ${isNamespace && html`<${DeliveryMode} form=${form} isNew=${!id} onChange=${setMode} />`}
          ${isPush && html`<${Destination} form=${form} isNew=${!id} isNamespace=${isNamespace} />`}
          ${!isNamespace && html`<${Schema} form=${form} input=${parent.inputSchema} />`}
          ${!isNamespace && html`<${Labels} form=${form} />`}
        </div>
        <${Filter} form=${form} isNamespace=${isNamespace} />
        ${isPush && html`
          <${Headers} form=${form} />
          <${Signing} form=${form} />
          <${Requests} form=${form} />
        `}
        <${Retries} form=${form} isNamespace=${isNamespace} edition=${parent.edition} />
        ${isPush && html`
          <${Order} form=${form} />
          <${Transformation} form=${form} />
        `}
        <${DeadLetters} form=${form} name=${name || (id && splitId(id).name)} />
        <${Field} label="JSON of the properties" error=${wrong || null}>
          ${(a11y) => html`<textarea
            ...${a11y}
            rows="12"
            spellcheck=${false}
            value=${text}
            onInput=${(event) => dispatch({ type: 'setText', text: event.currentTarget.value })}
          ></textarea>`}
        <//>
        ${error && !isAtField && html`<${Failed} error=${error} />`}
        ${conflict && before && html`<section class="panel" aria-label="Conflict">
          <h2>Changed meanwhile</h2>
          <p>
            ${conflict.systemData?.lastModifiedBy ?? 'Somebody'} changed this event subscription after you opened it:
          </p>
          <${Diff} changes=${changesOf(mergePatch(before, editableProperties(conflict)), before)} />
          <button type="button" onClick=${rebase}>
            Apply my changes to the new state
          </button>
        </section>`}
        ${plan && html`<section class="panel" aria-label="Changes">
          <h2>${plan.length === 0 ? 'Nothing changes' : id ? 'What changes' : 'What is created'}</h2>
          <${Diff} changes=${plan} />
          ${warnings.map((one) => html`<p class="notice warn" key=${one}>
            ${one}
          </p>`)}
        </section>`}
        <${Command} line=${line} parts=${[]} />
        <div class="acts">
          ${hasRole('admin') ? html`
            <button type="submit" disabled=${Boolean(wrong) || (!id && !name)}>
              Review
            </button>
            <button
              type="button"
              class="primary"
              disabled=${!plan || Boolean(wrong) || since > 0 || (Boolean(id) && !patch)}
              onClick=${save}
            >
              ${id ? 'Save' : 'Create'}
            </button>
          ` : html`<p class="notice">Changes need the role admin.</p>`}
          <a href=${id ? link('subscription', { id }) : link('topic', { id: topic })}>Cancel</a>
          ${since > 0 && html`<${Handshake} since=${since} />`}
        </div>
      </form>
      <div class="beside">
        <h2>Try the filter</h2>
        <${Bench} topic=${topic} id=${id} filter=${filter} />
        ${id && html`
          <h2>Try the transformation</h2>
          <${TransformBench} id=${id} transform=${body.transform} />
        `}
      </div>
    </div>
  `;
}

const VALIDATION =
  'The server validates the endpoint when you save: it sends a request, and the endpoint must respond.';

/** Settings with a field of their own, which shows what is wrong with them. */
const FIELDS = [
  'endpointType',
  'endpointUrl',
  'properties.resourceId',
  'blobContainerName',
  'maxEventsPerBatch',
  'preferredBatchSizeInKilobytes',
  'maxRequestsPerSecond',
  'responseTimeoutInSeconds',
  'deliveryAttributeMappings',
  'signing.secrets',
  'maxDeliveryAttempts',
  'maxDeliveryCount',
  'eventTimeToLive',
  'retryPolicy.schedule',
  'ordering.key',
  'transform.body',
  'includedEventTypes',
  'subjectBeginsWith',
  'subjectEndsWith',
  'advancedFilters',
  'filtersConfiguration.filters',
];

function Handshake({ since }) {
  const [, setTick] = useState(0);
  const timer = useRef(0);
  useEffect(() => {
    timer.current = setInterval(() => setTick((n) => n + 1), 500);
    return () => clearInterval(timer.current);
  }, []);
  return html`<span role="status">
    Waiting for the server, which may validate the endpoint: ${formatDuration(Math.round((Date.now() - since) / 1000))}
  </span>`;
}
