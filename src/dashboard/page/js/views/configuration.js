// The settings and the filter of an event subscription, and its secrets on request.
import { hasRole, callApi, pathOf, postJson } from '../api.js';
import { html, useState } from '../html.js';
import { flattenProperties } from '../resources.js';
import { link } from '../state.js';
import { formatNumber, splitId, topicArgument } from '../format.js';
import { Command, Copy, Facts, Time, showMessage } from '../ui.js';

/** Properties with a row of their own; others are shown as they are. */
const SHOWN = new Set([
  'topic',
  'destination',
  'deliveryMode',
  'endpointInService',
  'eventDeliverySchema',
  'retryPolicy',
  'deadLetterDestination',
  'labels',
  'expirationTimeUtc',
  'provisioningState',
  'filter',
  'filtersConfiguration',
]);

const DELIVERY = new Set(['endpointBaseUrl', 'resourceId', 'maxEventsPerBatch', 'preferredBatchSizeInKilobytes']);

/** The other properties, as they are. */
const otherRows = (object, known) =>
  Object.entries(object)
    .filter(([key, value]) => !known.has(key) && value !== null)
    .map(([key, value]) => [key, html`<code>${JSON.stringify(value)}</code>`]);

export function Configuration({ id, data }) {
  const { topic, name } = splitId(id);
  const properties = flattenProperties(data.properties);
  const identity = (
    data.properties.deliveryWithResourceIdentity ??
    data.properties.deliveryConfiguration?.push?.deliveryWithResourceIdentity
  )?.identity.type;
  const webhook = properties.destination?.properties ?? {};
  const filter = properties.filter ?? properties.filtersConfiguration ?? {};
  const retry = properties.retryPolicy;
  const letters = properties.deadLetterDestination;
  return html`
    <div class="columns">
      <section class="panel">
        <h2>Delivery</h2>
        <${Facts}
          rows=${[
            ['Destination', properties.destination?.endpointType ?? properties.deliveryMode],
            [
              'Endpoint',
              (webhook.endpointBaseUrl ?? webhook.resourceId) && html`<code>${webhook.endpointBaseUrl ?? webhook.resourceId}</code>`,
            ],
            identity && ['Identity', identity],
            properties.endpointInService && ['In service', html`<code>${properties.endpointInService}</code>`],
            ['Schema', properties.eventDeliverySchema],
            [
              'Batch',
              `${formatNumber(webhook.maxEventsPerBatch ?? 1)} events, ${formatNumber(webhook.preferredBatchSizeInKilobytes ?? 64)} KB`,
            ],
            [
              'Attempts',
              retry &&
                `${formatNumber(retry.maxDeliveryAttempts)} within ${formatNumber(retry.eventTimeToLiveInMinutes)} min`,
            ],
            retry?.schedule && ['Retry schedule', [retry.schedule].flat().join(', ')],
            [
              'Dead letters',
              letters ? html`<code>
                ${letters.properties.resourceId}
                ${letters.properties.blobContainerName ? ` / ${letters.properties.blobContainerName}` : ''}
              </code>` : 'no destination: what is given up is dropped',
            ],
            ['Labels', properties.labels?.join(', ')],
            ['Expires', properties.expirationTimeUtc && html`<${Time} at=${properties.expirationTimeUtc} />`],
            ...otherRows(webhook, DELIVERY),
            ...otherRows(properties, SHOWN),
            ['State', properties.provisioningState],
            [
              'Changed',
              data.systemData && html`
                <${Time} at=${data.systemData.lastModifiedAt} /> by ${data.systemData.lastModifiedBy}
              `,
            ],
          ]}
        />
      </section>
      <section class="panel">
        <h2>Filter</h2>
        <${Facts}
          rows=${[
            ['Event types', filter.includedEventTypes?.join(', ') || 'all'],
            ['Subject begins with', filter.subjectBeginsWith && html`<code>${filter.subjectBeginsWith}</code>`],
            ['Subject ends with', filter.subjectEndsWith && html`<code>${filter.subjectEndsWith}</code>`],
            ...(filter.advancedFilters ?? filter.filters ?? []).map((one, index) => [
              `[${index}] ${one.operatorType}`,
              html`<code>
                ${one.key} ${JSON.stringify(one.values ?? one.value ?? '')}
              </code>`,
            ]),
          ]}
        />
        <p>
          <a href=${link('filter', { id })}>Try the filter on events</a>
        </p>
      </section>
    </div>
    ${hasRole('admin') && html`<${Secrets} id=${id} />`}
    <details class="panel">
      <summary>JSON</summary>
      <div class="acts">
        <${Copy} text=${JSON.stringify(data, null, 2)} />
      </div>
      <pre class="text" tabindex="0" role="region" aria-label="JSON">
        ${JSON.stringify(data, null, 2)}
      </pre>
    </details>
    <${Command} parts=${['subscriptions', 'show', topicArgument(topic), name, '--output', 'json']} />
  `;
}

/** The query of the endpoint and secret headers, on request only: the audit trail records each request. */
function Secrets({ id }) {
  const [shown, setShown] = useState(/** @type {{ url: string, headers: any[] } | null} */ (null));
  const reveal = async () => {
    try {
      const [url, attributes] = await Promise.all([
        postJson(`${pathOf(id)}/getFullUrl`),
        callApi('POST', `${pathOf(id)}/getDeliveryAttributes`),
      ]);
      setShown({ url: url.endpointUrl, headers: attributes.value });
    } catch (error) {
      showMessage(error.message, { kind: 'bad' });
    }
  };
  return html`<section class="panel">
    <h2>Secrets</h2>
    ${shown === null ? html`<button type="button" onClick=${reveal}>
      Reveal the full address and headers
    </button>` : html`
      <${Facts}
        rows=${[
          [
            'Endpoint',
            html`
              <code>${shown.url}</code> <${Copy} text=${shown.url} />
            `,
          ],
          ...shown.headers.map((one) => [
            one.name,
            html`<code>${one.properties.value ?? one.properties.sourceField}</code>`,
          ]),
        ]}
      />
      <button type="button" onClick=${() => setShown(null)}>
        Hide
      </button>
    `}
  </section>`;
}
