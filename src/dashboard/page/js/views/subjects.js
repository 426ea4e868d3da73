// The parts of the form of an event subscription, folded by subject.
import { exactDuration } from '../format.js';
import { html, useEffect, useRef, useState } from '../html.js';
import { exactNumber, exactText, isObject, parseExact, printJson } from '../json.js';
import { link } from '../state.js';
import { Field, Select } from '../ui.js';

/** @typedef {{ places: Record<string, string>, read: (path: string) => any, put: (path: string) => (value: any) => void, errorAt: (path: string) => string | null }} Form */

/** The paths of the settings in the properties, which differ for namespaces. */
export const PLACES = {
  topic: {
    destination: 'destination',
    attempts: 'retryPolicy.maxDeliveryAttempts',
    timeToLive: 'retryPolicy.eventTimeToLiveInMinutes',
    letters: 'deadLetterDestination',
    types: 'filter.includedEventTypes',
    filters: 'filter.advancedFilters',
  },
  push: {
    destination: 'deliveryConfiguration.push.destination',
    attempts: 'deliveryConfiguration.push.maxDeliveryCount',
    timeToLive: 'deliveryConfiguration.push.eventTimeToLive',
    letters: 'deliveryConfiguration.push.deadLetterDestinationWithResourceIdentity.deadLetterDestination',
    types: 'filtersConfiguration.includedEventTypes',
    filters: 'filtersConfiguration.filters',
  },
  queue: {
    attempts: 'deliveryConfiguration.queue.maxDeliveryCount',
    timeToLive: 'deliveryConfiguration.queue.eventTimeToLive',
    letters: 'deliveryConfiguration.queue.deadLetterDestinationWithResourceIdentity.deadLetterDestination',
    types: 'filtersConfiguration.includedEventTypes',
    filters: 'filtersConfiguration.filters',
  },
};

/** The kinds of destinations, and what each needs beside its service: property, label, example. */
const KINDS = {
  WebHook: [],
  Amqp: [
    ['exchange', 'Exchange', 'shop'],
    ['routingKey', 'Routing key or queue', 'orders'],
  ],
  AzureFunction: [],
  EventHub: [],
  Kafka: [['topicName', 'Topic of Kafka', 'orders']],
  NamespaceTopic: [],
  Nats: [['subject', 'Subject of JetStream', 'orders.placed']],
  ServiceBusQueue: [],
  ServiceBusTopic: [],
  Sqs: [['queueName', 'Queue', 'orders']],
  StorageQueue: [['queueName', 'Queue', 'orders']],
};
/** An example of a resource id, for kinds where it is more than the name of a service. */
const RESOURCES = {
  AzureFunction: 'functions/functions/bill',
  EventHub: 'hub/eventhubs/orders',
  NamespaceTopic: '/subscriptions/…/namespaces/shop/topics/orders',
  ServiceBusQueue: 'bus/queues/orders',
  ServiceBusTopic: 'bus/topics/orders',
};
const WITH_BATCHES = ['WebHook', 'AzureFunction'];

const commaList = (text) =>
  text
    .split(',')
    .map((one) => one.trim())
    .filter(Boolean);
const isText = (value) => typeof value === 'string';

/** Members of the properties that are lists, with what their items are. */
const LISTS = {
  advancedFilters: isObject,
  deliveryAttributeMappings: isObject,
  filters: isObject,
  includedEventTypes: isText,
  labels: isText,
  secrets: isText,
  values: () => true,
};
/** Members of the properties that are objects. */
const OBJECTS =
  /^(destination|properties|push|queue|filter|retryPolicy|ordering|transform|signing)$|(Configuration|Destination|WithResourceIdentity)$/;

/** The first member that the form cannot show, because it has another kind of value; empty if there is none. */
export function wrongMember(object, path = '') {
  for (const [key, value] of Object.entries(object)) {
    const at = path ? `${path}.${key}` : key;
    if (value === null) continue;
    if (Object.hasOwn(LISTS, key)) {
      if (!Array.isArray(value) || !value.every(LISTS[key])) return `“${at}” is a list: [ … ]`;
    } else if (OBJECTS.test(key) && !isObject(value)) return `“${at}” is an object: { … }`;
    else if (key === 'schedule' && ![].concat(value).every(isText)) return `“${at}” is a text or a list of texts`;
    const inner = [].concat(value).filter(isObject);
    for (const one of key === 'transform' ? [] : inner) {
      const wrong = wrongMember(one, at);
      if (wrong) return wrong;
    }
  }
  return '';
}

const isGiven = (value) =>
  value !== undefined && value !== null && value !== '' && !(Array.isArray(value) && value.length === 0);

/** A part of the form that is open if one of its settings is set or wrong. */
function Subject({ name, isSet, isWrong = false, children }) {
  const element = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  const isFirstOpen = useRef(isSet).current;
  useEffect(() => {
    if (isWrong && element.current) element.current.open = true;
  }, [isWrong]);
  return html`<details class="panel subject" ref=${element} open=${isFirstOpen}>
    <summary>
      ${name}
      ${isSet && html`
        ${' '}
        <span class="faint">set</span>
      `}
    </summary>
    <div class="fields">${children}</div>
  </details>`;
}

/** One setting as a field. @param {{ form: Form, path: string, label: string, [more: string]: any }} props */
function Setting({ form, path, label, ...more }) {
  const isNumber = more.type === 'number';
  const write = ({ currentTarget: { value } }) => form.put(path)(isNumber && value !== '' ? Number(value) : value);
  return html`<${Field} label=${label} value=${form.read(path) ?? ''} error=${form.errorAt(path)} onInput=${write} ...${more} />`;
}

/** A field whose value is taken when it loses the focus. What is typed stays when the form is drawn again. */
function DraftField({ value, onCommit, ...more }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const commit = (event) => {
    onCommit(event.currentTarget.value);
    setDraft(null);
  };
  return html`<${Field}
    value=${draft ?? value}
    onInput=${(event) => setDraft(event.currentTarget.value)}
    onChange=${commit}
    ...${more}
  />`;
}

/** A setting with several texts. */
const ListSetting = ({ form, path, label, ...more }) => html`<${DraftField}
  label=${label}
  value=${form.read(path)?.join(', ') ?? ''}
  error=${form.errorAt(path)}
  onCommit=${(text) => form.put(path)(commaList(text).length > 0 ? commaList(text) : '')}
  ...${more}
/>`;

/** The destination and its required settings. */
export function Destination({ form, isNew, isNamespace }) {
  const { destination } = form.places;
  const kind = form.read(`${destination}.endpointType`) ?? 'WebHook';
  const kinds = Object.keys(KINDS).filter((one) => !(isNamespace && one === 'NamespaceTopic'));
  // The arrow keys pass through kinds, and come back.
  const known = useRef({});
  known.current[kind] = form.read(destination);
  const choose = (next) =>
    form.put(destination)(
      known.current[next] ?? {
        endpointType: next,
        properties: next === 'WebHook' ? { endpointUrl: '' } : { resourceId: '' },
      },
    );
  return html`
    <${Select}
      label="Destination"
      value=${kind}
      onChange=${choose}
      options=${kinds.map((one) => [one, one])}
      error=${form.errorAt('destination.endpointType')}
    />
    ${kind === 'WebHook' ? html`<${Setting}
      form=${form}
      path=${`${destination}.properties.endpointUrl`}
      label="Endpoint URL"
      required
      type="url"
      placeholder="https://example.com/hook"
      hint=${
        isNew
          ? 'It is validated first (handshake), which may take 35 s.'
          : 'Shown without its query. The query is kept unless you change the URL. A new address is validated first.'
      }
    />` : html`<${Setting}
      form=${form}
      path=${`${destination}.properties.resourceId`}
      label="Resource id"
      required
      placeholder=${RESOURCES[kind] ?? 'archive'}
      hint="The name of a service in the settings (delivery.resources), or a resource id of Azure"
    />`}
    ${KINDS[kind]?.map(([key, label, example]) => html`<${Setting} key=${key} form=${form} path=${`${destination}.properties.${key}`} label=${label} placeholder=${example} />`)}
  `;
}

/** Batches, pace and time limits of requests. */
export function Requests({ form }) {
  const at = `${form.places.destination}.properties`;
  const kind = form.read(`${form.places.destination}.endpointType`) ?? 'WebHook';
  if (!WITH_BATCHES.includes(kind)) return null;
  const isSet =
    form.read(`${at}.maxEventsPerBatch`) > 1 ||
    (form.read(`${at}.preferredBatchSizeInKilobytes`) ?? 64) !== 64 ||
    isGiven(form.read(`${at}.maxRequestsPerSecond`)) ||
    isGiven(form.read(`${at}.responseTimeoutInSeconds`));
  const isWrong = [
    'maxEventsPerBatch',
    'preferredBatchSizeInKilobytes',
    'maxRequestsPerSecond',
    'responseTimeoutInSeconds',
  ].some((key) => form.errorAt(key));
  return html`<${Subject} name="Batching and rate limit" isSet=${isSet} isWrong=${isWrong}>
    <${Setting}
      form=${form}
      path=${`${at}.maxEventsPerBatch`}
      label="Events in a request, at most"
      type="number"
      min="1"
      max="5000"
    />
    <${Setting}
      form=${form}
      path=${`${at}.preferredBatchSizeInKilobytes`}
      label="Preferred kilobytes in a request"
      type="number"
      min="1"
      max="1024"
    />
    ${kind === 'WebHook' && html`
      <${Setting}
        form=${form}
        path=${`${at}.maxRequestsPerSecond`}
        label="Requests a second, at most"
        type="number"
        min="1"
        placeholder="not limited"
      />
      <${Setting}
        form=${form}
        path=${`${at}.responseTimeoutInSeconds`}
        label="Response timeout in seconds"
        type="number"
        min="1"
        placeholder="that of the server"
      />
    `}
  <//>`;
}

/** What the server shows instead of the value of a secret header. It keeps the value of a header that still has it. */
const HIDDEN = 'Hidden';

/** Headers of requests, with a text or a field of the event. */
export function Headers({ form }) {
  const path = `${form.places.destination}.properties.deliveryAttributeMappings`;
  const rows = form.read(path) ?? [];
  const write = (next) => form.put(path)(next.length > 0 ? next : '');
  const change = (index, row) => write(rows.map((one, at) => (at === index ? row : one)));
  const valueOf = ({ properties }) => properties?.value ?? properties?.sourceField ?? '';
  const shownValue = (row) => (valueOf(row) === HIDDEN ? '' : valueOf(row));
  // Without a value the server keeps the one of a secret header, also after a second thought.
  const withSecret = (row, isSecret) => ({
    ...row,
    properties: { value: shownValue(row) || (isSecret ? undefined : ''), isSecret },
  });
  const withValue = (row, value) => ({
    ...row,
    properties: row.type === 'Dynamic' ? { sourceField: value } : { ...row.properties, value },
  });
  return html`<${Subject} name="Headers" isSet=${rows.length > 0} isWrong=${Boolean(form.errorAt('deliveryAttributeMappings'))}>
    ${rows.map((row, index) => html`<div class="filters" key=${index}>
      <${Field}
        label="Header"
        value=${row.name}
        onInput=${(event) => change(index, { ...row, name: event.currentTarget.value })}
      />
      <${Select}
        label="From"
        value=${row.type}
        onChange=${(type) => change(index, withValue({ name: row.name, type, properties: {} }, shownValue(row)))}
        options=${[
          ['Static', 'a text'],
          ['Dynamic', 'a field of the event'],
        ]}
      />
      <${Field}
        label=${row.type === 'Dynamic' ? 'Field, such as data.region' : 'Value'}
        value=${valueOf(row)}
        onInput=${(event) => change(index, withValue(row, event.currentTarget.value))}
      />
      ${row.type === 'Static' && html`<label>
        <input
          type="checkbox"
          checked=${row.properties?.isSecret ?? false}
          onChange=${(event) => change(index, withSecret(row, event.currentTarget.checked))}
        />${' '}
        secret
      </label>`}
      <button
        type="button"
        class="small"
        aria-label=${`Remove the header ${row.name}`}
        onClick=${() => write(rows.filter((_, at) => at !== index))}
      >
        Remove
      </button>
    </div>`)}
    ${form.errorAt('deliveryAttributeMappings') && html`<p class="wrong">${form.errorAt('deliveryAttributeMappings')}</p>`}
    <div class="acts">
      <button type="button" onClick=${() => write([...rows, { name: '', type: 'Static', properties: { value: '' } }])}>
        Add a header
      </button>
    </div>
  <//>`;
}

/** A new secret of Standard Webhooks. */
const newSecret = () => `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))))}`;

/** The secrets that sign requests. */
export function Signing({ form }) {
  const path = `${form.places.destination}.properties.signing`;
  const secrets = form.read(path)?.secrets ?? [];
  const write = (next) => form.put(path)(next.length > 0 ? { ...form.read(path), secrets: next } : '');
  return html`<${Subject} name="Signing" isSet=${secrets.length > 0} isWrong=${Boolean(form.errorAt('signing.secrets'))}>
    <${DraftField}
      label="Secrets, the newest first"
      value=${secrets.join(', ')}
      error=${form.errorAt('signing.secrets')}
      onCommit=${(text) => write(commaList(text))}
      placeholder="none: requests are not signed"
      hint="Requests are signed as Standard Webhooks asks for. A secret is whsec_ and 24 to 64 bytes in Base64; it is not shown again, and one shown as [hidden] is kept."
    />
    <div class="acts">
      <button type="button" onClick=${() => write([newSecret(), ...secrets].slice(0, 2))}>
        Generate a secret
      </button>
    </div>
  <//>`;
}

const SECONDS = { ms: 0.001, s: 1, m: 60, min: 60, h: 3600, d: 86400 };
const secondsOf = (wait) =>
  [...wait.matchAll(/(\d+)\s*(ms|min|s|m|h|d)/g)].reduce(
    (sum, [, number, unit]) => sum + Number(number) * SECONDS[unit],
    0,
  );

/** The number of attempts that are drawn. */
const DRAWN = 12;

/** When each attempt is made, as a line of time on a logarithmic scale. */
function Schedule({ waits, attempts }) {
  const count = Math.min(attempts ?? 30, DRAWN);
  let at = 0;
  const times = Array.from(
    { length: count },
    (_, index) => (at += index === 0 ? 0 : secondsOf(waits[Math.min(index, waits.length) - 1])),
  );
  const place = (seconds) => 4 + (Math.log10(1 + seconds) / Math.log10(2 + times.at(-1))) * 292;
  const text = times
    .map((seconds, index) => `${index + 1}: ${index === 0 ? 'at once' : `after ${exactDuration(seconds)}`}`)
    .join('; ');
  return html`<figure>
    <svg class="schedule" viewBox="0 0 300 16" width="300" height="16" role="img" aria-label=${`Attempts. ${text}`}>
      <line x1="4" x2="296" y1="8" y2="8" />
      ${times.map((seconds) => html`<circle cx=${place(seconds)} cy="8" r="3.5" />`)}
    </svg>
    <figcaption class="hint">
      ${text}
      ${attempts > DRAWN ? ' …' : ''}
    </figcaption>
  </figure>`;
}

/** The waits of a retry schedule, or the name of an edition. */
function waitsOf(text) {
  const all = commaList(text);
  return all.length === 1 && !/^\d+[a-z]/i.test(all[0]) ? all[0] : all.length > 0 ? all : '';
}

/** Attempts, time to live and schedule. */
export function Retries({ form, isNamespace, edition }) {
  const { attempts, timeToLive } = form.places;
  const schedule = form.read('retryPolicy.schedule') ?? '';
  const most = form.read(attempts);
  const usualAttempts = isNamespace ? 10 : 30;
  const isSet =
    isGiven(schedule) ||
    (most ?? usualAttempts) !== usualAttempts ||
    (!isNamespace && (form.read(timeToLive) ?? 1440) !== 1440);
  const isWrong = [attempts, timeToLive, 'retryPolicy.schedule'].some((path) => form.errorAt(path));
  return html`<${Subject} name="Retries" isSet=${isSet} isWrong=${isWrong}>
    <${Setting} form=${form} path=${attempts} label="Attempts, at most" type="number" min="1" />
    ${isNamespace ? html`<${Setting} form=${form} path=${timeToLive} label="Time to live" placeholder="P1D" hint="Such as PT30M or P1D" />` : html`
      <${Setting} form=${form} path=${timeToLive} label="Time to live in minutes" type="number" min="1" max="1440" />
      <${DraftField}
        label="Retry schedule"
        value=${[].concat(schedule).join(', ')}
        error=${form.errorAt('retryPolicy.schedule')}
        placeholder="that of the topic's edition"
        hint="Waits such as 30s, 10m, 2h, or the name of an edition"
        onCommit=${(text) => form.put('retryPolicy.schedule')(waitsOf(text))}
      />
    `}
    ${Array.isArray(schedule) && schedule.every((wait) => secondsOf(wait) > 0) ? html`<${Schedule} waits=${schedule} attempts=${most} />` : html`<p>
      <a
        href=${link('editions', { edition: typeof schedule === 'string' && schedule ? schedule : edition })}
        target="_blank"
      >
        The schedule, drawn
      </a>
    </p>`}
  <//>`;
}

/** The last value that was set. A field that is emptied and typed again keeps what is beside it. */
function useLastSet(value) {
  const last = useRef(value);
  if (value) last.current = value;
  return last;
}

/** Order by key and transformation. */
export function Order({ form }) {
  const last = useLastSet(form.read('ordering'));
  return html`<${Subject} name="Order" isSet=${isGiven(form.read('ordering.key'))} isWrong=${Boolean(form.errorAt('ordering.key'))}>
    <${Field}
      label="Order by key"
      value=${form.read('ordering.key') ?? ''}
      error=${form.errorAt('ordering.key')}
      placeholder="none"
      hint="Such as subject or data.order.id: events of a key are delivered one after the other"
      onInput=${({ currentTarget: { value } }) => form.put('ordering')(value ? { ...last.current, key: value } : '')}
    />
  <//>`;
}

export function Transformation({ form }) {
  const write = ({ currentTarget: { value } }) => {
    const next = { ...form.read('transform'), body: value };
    if (!value) delete next.body;
    form.put('transform')(Object.keys(next).length > 0 ? next : '');
  };
  return html`<${Subject} name="Transformation" isSet=${isGiven(form.read('transform'))} isWrong=${Boolean(form.errorAt('transform'))}>
    <${Field}
      label="Transformation of the body (JMESPath)"
      error=${form.errorAt('transform.body')}
      hint="Method, path suffix and headers are in the JSON."
    >
      ${(a11y) => html`<textarea
        ...${a11y}
        rows="3"
        spellcheck=${false}
        value=${form.read('transform.body') ?? ''}
        onInput=${write}
      ></textarea>`}
    <//>
  <//>`;
}

/** Any name means the folder of the server, unless the settings name a store. */
const FOLDER = '/local';

export function DeadLetters({ form, name }) {
  const { letters } = form.places;
  const at = `${letters}.properties`;
  const id = form.read(`${at}.resourceId`) ?? '';
  const last = useLastSet(form.read(at));
  const write = (resourceId, container) =>
    form.put(letters)(
      resourceId
        ? {
            endpointType: 'StorageBlob',
            properties: { ...last.current, resourceId, ...(container && { blobContainerName: container }) },
          }
        : '',
    );
  const isWrong = [`${at}.resourceId`, `${at}.blobContainerName`].some((path) => form.errorAt(path));
  return html`<${Subject} name="Dead letters" isSet=${isGiven(id)} isWrong=${isWrong}>
    <${Field}
      label="Dead-letter destination"
      value=${id}
      error=${form.errorAt(`${at}.resourceId`)}
      placeholder="none: events that are given up are dropped"
      hint="Resource id of a storage account, or a URL such as s3://bucket/prefix"
      onInput=${({ currentTarget: { value } }) => write(value, undefined)}
    />
    ${!id && html`<div class="acts">
      <button type="button" onClick=${() => write(FOLDER, (name || 'dead-letters').toLowerCase())}>
        Use the folder of the server
      </button>
    </div>`}
    ${id && html`<${Setting} form=${form} path=${`${at}.blobContainerName`} label="Container" />`}
  <//>`;
}

const OPERATORS = [
  'StringIn',
  'StringNotIn',
  'StringBeginsWith',
  'StringNotBeginsWith',
  'StringEndsWith',
  'StringNotEndsWith',
  'StringContains',
  'StringNotContains',
  'NumberIn',
  'NumberNotIn',
  'NumberLessThan',
  'NumberLessThanOrEquals',
  'NumberGreaterThan',
  'NumberGreaterThanOrEquals',
  'NumberInRange',
  'NumberNotInRange',
  'BoolEquals',
  'IsNullOrUndefined',
  'IsNotNull',
];
const hasOneValue = (operator) => /Than|BoolEquals/.test(operator);
const hasNoValue = (operator) => /^Is/.test(operator);

/** Whether a text is a number that JSON can have; the digits of a long integer are kept. */
const isNumber = (text) => Number.isFinite(Number(text)) || /^-?\d+$/.test(text);

/** What was typed as the operand of an operator: texts, numbers, or JSON. */
function operandOf(operator, text) {
  if (hasNoValue(operator)) return {};
  const one = (part) =>
    /^Number/.test(operator) && part !== '' && isNumber(part)
      ? exactNumber(part)
      : operator === 'BoolEquals'
        ? part === 'true'
        : part;
  if (hasOneValue(operator)) return { value: one(text.trim()) };
  try {
    return { values: text.trim().startsWith('[') ? parseExact(text) : commaList(text).map(one) };
  } catch {
    return { values: commaList(text) };
  }
}
/** Whether a list separated by commas would not keep this value. */
const needsJson = (one) => typeof one === 'object' || /^$|^\s|^\[|,|\s$/.test(String(one));
const operandText = ({ value, values }) =>
  !values ? exactText(value ?? '') : values.some(needsJson) ? printJson(values) : values.map(exactText).join(', ');

/** The filter: event types, subject, and conditions on fields. */
export function Filter({ form, isNamespace }) {
  const { types, filters } = form.places;
  const rows = form.read(filters) ?? [];
  const write = (next) => form.put(filters)(next.length > 0 ? next : '');
  const change = (index, row) => write(rows.map((one, at) => (at === index ? row : one)));
  const error = form.errorAt('advancedFilters') ?? form.errorAt('filtersConfiguration.filters');
  const isSet = [
    form.read(types),
    rows,
    form.read('filter.subjectBeginsWith'),
    form.read('filter.subjectEndsWith'),
  ].some(isGiven);
  return html`<${Subject}
    name="Filter"
    isSet=${isSet}
    isWrong=${Boolean(
      error ||
        form.errorAt('includedEventTypes') ||
        form.errorAt('subjectBeginsWith') ||
        form.errorAt('subjectEndsWith'),
    )}
  >
    <${ListSetting} form=${form} path=${types} label="Event types, separated by commas" placeholder="all" />
    ${!isNamespace && html`
      <${Setting} form=${form} path="filter.subjectBeginsWith" label="Subject begins with" />
      <${Setting} form=${form} path="filter.subjectEndsWith" label="Subject ends with" />
    `}
    ${rows.map((row, index) => html`<div class="filters" key=${index}>
      <${Field}
        label="Field"
        value=${row.key}
        placeholder="data.total"
        onInput=${(event) => change(index, { ...row, key: event.currentTarget.value })}
      />
      <${Select}
        label="Operator"
        value=${row.operatorType}
        onChange=${(operator) =>
          change(index, { operatorType: operator, key: row.key, ...operandOf(operator, operandText(row)) })
        }
        options=${OPERATORS.map((one) => [one, one])}
      />
      ${!hasNoValue(row.operatorType) && html`<${DraftField}
        label=${hasOneValue(row.operatorType) ? 'Value' : 'Values'}
        value=${operandText(row)}
        onCommit=${(text) =>
          change(index, { operatorType: row.operatorType, key: row.key, ...operandOf(row.operatorType, text) })
        }
      />`}
      <button
        type="button"
        class="small"
        aria-label=${`Remove condition ${index + 1}`}
        onClick=${() => write(rows.filter((_, at) => at !== index))}
      >
        Remove
      </button>
    </div>`)}
    ${error && html`<p class="wrong">${error}</p>`}
    <div class="acts">
      <button type="button" onClick=${() => write([...rows, { operatorType: 'StringIn', key: '', values: [] }])}>
        Add a condition
      </button>
      <span class="hint">All conditions must be true.</span>
    </div>
  <//>`;
}

/** The delivery mode of a namespace's event subscription, and the settings of its queue. */
export function DeliveryMode({ form, isNew, onChange }) {
  const mode = form.read('deliveryConfiguration.deliveryMode');
  return html`
    <${Select}
      label="Delivery"
      value=${mode}
      onChange=${onChange}
      disabled=${!isNew}
      options=${[
        ['Push', 'push: the server sends requests'],
        ['Queue', 'queue: clients receive'],
      ]}
    />
    ${mode === 'Queue' && html`<${Setting}
      form=${form}
      path="deliveryConfiguration.queue.receiveLockDurationInSeconds"
      label="Lock of a received event in seconds"
      type="number"
      min="1"
      placeholder="60"
    />`}
  `;
}

/** The schemas in which events of a topic can be delivered. */
export function Schema({ form, input }) {
  const all = [
    ['EventGridSchema', 'Event Grid'],
    ['CloudEventSchemaV1_0', 'CloudEvents 1.0'],
    ['CustomInputSchema', 'as published (custom)'],
  ];
  const allowed = input === 'CloudEventSchemaV1_0' ? [all[1]] : input === 'EventGridSchema' ? all.slice(0, 2) : all;
  return html`<${Select}
    label="Delivery schema"
    value=${form.read('eventDeliverySchema') ?? allowed[0][0]}
    onChange=${form.put('eventDeliverySchema')}
    options=${allowed}
  />`;
}

export const Labels = ({ form }) => html`<${ListSetting} form=${form} path="labels" label="Labels, separated by commas" />`;
