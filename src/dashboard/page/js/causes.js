// What an operator can do about the cause of a suspension or a failure.

import { formatCode } from './format.js';

const NEXT = {
  Busy: 'The endpoint returns 429 or 503. It recovers by itself, or its capacity has to grow.',
  TimedOut: 'The endpoint does not respond in time. Look at its load; delivery.response_timeout is the limit.',
  NotFound: 'The endpoint returns 404 or 410. Correct its address.',
  Unauthorized: 'The endpoint returns 401. Correct the credentials in its headers or address.',
  Forbidden: 'The endpoint returns 403. Look at its access rules.',
  BadRequest: 'The endpoint returns 400. Look at what it says about the events.',
  PayloadTooLarge: 'The endpoint returns 413. Make batches smaller.',
  SocketError: 'No connection or no TLS session. Is the endpoint running, and is its certificate valid?',
  ResolutionError: 'The name of the endpoint has no address. Correct its address or the DNS.',
  GenericError: 'The endpoint returns another status. Look at what it says.',
  CredentialRefused:
    'The service refuses the credentials in delivery.resources. The operator corrects them; events wait.',
  Aborted: 'gridhook ended the request itself, at a shutdown.',
};

/** @param {string | null | undefined} cause @param {number | null} [timeout] the time-out of the event subscription, in seconds */
export function nextStep(cause, timeout = null) {
  if (cause === 'TimedOut' && timeout)
    return `The endpoint does not respond within ${timeout} s. Look at its load; responseTimeoutInSeconds of the event subscription is the limit.`;
  return NEXT[cause ?? ''] ?? 'Look at the attempts of the event subscription.';
}

/** The results of an event for an event subscription; those that need attention come first. */
export const RESULTS = [
  'deadLetterLost',
  'dropped',
  'deadLettered',
  'deadLetterWaiting',
  'pending',
  'unread',
  'unknown',
  'canceled',
  'delivered',
  'filtered',
  'beforeSubscription',
  'notPublished',
];

/** The steps of the ledger, the outcomes of an attempt and the reasons of dead letters, by which lines are filtered. */
export const STEPS = [
  'filtered',
  'delivered',
  'deferred',
  'undeliverable',
  'expired',
  'deadLettered',
  'dropped',
  'late',
  'canceled',
  'written',
  'lost',
  'redriven',
  'received',
  'renewed',
  'acknowledged',
  'released',
  'lockExpired',
];
export const OUTCOMES = [
  'Delivered',
  'NotFound',
  'Unauthorized',
  'Forbidden',
  'BadRequest',
  'TimedOut',
  'Busy',
  'PayloadTooLarge',
  'SocketError',
  'ResolutionError',
  'GenericError',
  'TransformationFailed',
  'Disabled',
  'Full',
  'SessionQueueNotSupported',
  'InvalidAzureFunctionDestination',
  'CredentialRefused',
  'Aborted',
  'Canceled',
];
export const REASONS = [
  'TimeToLiveExceeded',
  'MaxDeliveryAttemptsExceeded',
  'UndeliverableDueToHttpBadRequest',
  'UndeliverableDueToHttpForbidden',
  'UndeliverableDueToHttpUnauthorized',
  'UndeliverableDueToHttpNotFound',
  'UndeliverableDueToHttpPayloadTooLarge',
  'UndeliverableDueToHttpBusy',
  'UndeliverableDueToTimedOut',
  'UndeliverableDueToSocketError',
  'UndeliverableDueToResolutionError',
  'UndeliverableDueToGenericError',
  'UndeliverableDueToDisabled',
  'UndeliverableDueToFull',
  'UndeliverableDueToSessionQueueNotSupported',
  'UndeliverableDueToInvalidAzureFunctionDestination',
  'UndeliverableDueToCredentialRefused',
  'UndeliverableDueToProbationCausedByClientError',
  'TransformationFailed',
  'Rejected',
  'Quarantined',
  'Missing',
  'BacklogExceeded',
  'RedriveCanceled',
];

const CODES = new Set([...OUTCOMES, ...REASONS]);

/** A sentence of the server with its codes in words. @param {string} text */
export const withWords = (text) =>
  text.replace(/[A-Za-z]+/g, (word) => (CODES.has(word) ? formatCode(word).toLowerCase() : word));
