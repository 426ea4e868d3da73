//! The metric families of event subscriptions, as tables: name, help text, label, and the figure
//! each sample shows.

use std::time::Duration;

use super::{
    figures::{SubscriptionFigures, ends_by_cause},
    scrape::NamedSubscription,
    server,
};
use gridhook_event::Timestamp;
use gridhook_metrics::{
    HistogramCounts,
    text::{MetricFamily, MetricsText, SampleValue},
};
use gridhook_policy::outcome::{Failure, Reason};
use gridhook_subscription::PHASE_NAMES;

/// A family with one sample for each event subscription.
struct SubscriptionMetric {
    family: MetricFamily,
    /// [`None`] omits the sample.
    of: fn(&SubscriptionFigures, Timestamp) -> Option<SampleValue>,
}

/// A family with one sample for each value of `label`.
struct LabelledMetric {
    family: MetricFamily,
    label: &'static str,
    of: fn(&SubscriptionFigures) -> Vec<(String, u64)>,
}

/// A family with one histogram for each event subscription.
struct SubscriptionHistogram {
    family: MetricFamily,
    of: fn(&SubscriptionFigures) -> &HistogramCounts,
}

const fn counter(
    name: &'static str,
    help: &'static str,
    of: fn(&SubscriptionFigures, Timestamp) -> Option<SampleValue>,
) -> SubscriptionMetric {
    SubscriptionMetric {
        family: server::counter(name, help),
        of,
    }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    of: fn(&SubscriptionFigures, Timestamp) -> Option<SampleValue>,
) -> SubscriptionMetric {
    SubscriptionMetric {
        family: server::gauge(name, help),
        of,
    }
}

const fn labelled(
    name: &'static str,
    label: &'static str,
    help: &'static str,
    of: fn(&SubscriptionFigures) -> Vec<(String, u64)>,
) -> LabelledMetric {
    LabelledMetric {
        family: server::counter(name, help),
        label,
        of,
    }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    of: fn(&SubscriptionFigures) -> &HistogramCounts,
) -> SubscriptionHistogram {
    SubscriptionHistogram {
        family: server::histogram(name, help),
        of,
    }
}

fn count_sample(value: u64) -> Option<SampleValue> {
    Some(value.into())
}

fn seconds_sample(time: Duration) -> SampleValue {
    time.as_secs_f64().into()
}

fn date_sample(at: Timestamp) -> SampleValue {
    seconds_sample(at.since(Timestamp::default()))
}

#[rustfmt::skip]
const METRICS: [SubscriptionMetric; 35] = [
    counter("gridhook_subscription_passed_events_total", "Published events that the event \
        subscription has read, filtered or not.", |f, _| count_sample(f.sums.counters.passed)),
    counter("gridhook_subscription_filtered_events_total", "Published events that the filter \
        rejected.", |f, _| count_sample(f.sums.counters.filtered)),
    counter("gridhook_subscription_matched_events_total", "Published events that matched the \
        filter.", |f, _| count_sample(f.sums.counters.matched)),
    counter("gridhook_subscription_delivered_events_total", "Published events that were \
        delivered.", |f, _| count_sample(f.sums.counters.delivered)),
    counter("gridhook_subscription_canceled_events_total", "Published events whose delivery was \
        canceled.", |f, _| count_sample(f.sums.counters.canceled)),
    counter("gridhook_subscription_late_responses_total", "Requests that succeeded after the \
        response timeout.", |f, _| count_sample(f.sums.counters.late + f.sums.replayed.late)),
    counter("gridhook_subscription_replayed_events_total", "Events that replays and redrives \
        delivered.", |f, _| count_sample(f.sums.replayed.delivered)),
    counter("gridhook_subscription_dead_letters_written_total", "Dead letters written to the \
        destination.", |f, _| count_sample(f.sums.written)),
    counter("gridhook_subscription_dead_letters_lost_total", "Dead letters lost because the \
        destination was unavailable for too long.", |f, _| count_sample(f.sums.lost)),
    counter("gridhook_subscription_dead_letters_redriven_total", "Dead letters redriven before \
        they were written to a file.", |f, _| count_sample(f.sums.redriven)),
    counter("gridhook_subscription_dead_letters_purged_total", "Dead letters purged before they \
        were written to a file.", |f, _| count_sample(f.sums.purged)),
    counter("gridhook_subscription_dead_letter_files_total", "Dead-letter files written.",
        |f, _| count_sample(f.sums.files)),
    counter("gridhook_subscription_quarantined_events_total", "Events quarantined because \
        processing them ended the actor repeatedly, since the process started.",
        |f, _| count_sample(f.sums.quarantined)),
    gauge("gridhook_subscriptions", "Number of event subscriptions in the series: 1, or more for \
        subscription=\"_other\".", |f, _| count_sample(f.state.subscriptions)),
    gauge("gridhook_subscription_suspended", "Whether delivery to the endpoint is suspended.",
        |f, _| count_sample(f.state.suspended)),
    gauge("gridhook_subscription_probing", "Whether a probe of the suspended endpoint is in \
        flight.", |f, _| count_sample(f.state.probing)),
    gauge("gridhook_subscription_held", "Whether delivery is held by an operator, by a 410 \
        response of the endpoint, or because the endpoint failed for too long.", |f, _| count_sample(f.state.held)),
    gauge("gridhook_subscription_endpoint_failing", "Whether delivery is held because the endpoint \
        had no success for delivery.hold_after_failing.", |f, _| count_sample(f.state.held_failing)),
    gauge("gridhook_subscription_suspension_start_time_seconds", "Start of the suspension; missing \
        for a healthy endpoint.", |f, _| f.state.since.map(date_sample)),
    gauge("gridhook_subscription_next_probe_time_seconds", "Time of the next probe; missing for an \
        endpoint that is not suspended.", |f, _| f.state.until.map(date_sample)),
    gauge("gridhook_subscription_consecutive_suspensions", "Consecutive suspensions of the \
        endpoint.", |f, _| Some(f.state.consecutive_suspensions.into())),
    gauge("gridhook_subscription_consecutive_failures", "Consecutive failed requests.",
        |f, _| Some(f.state.failures.into())),
    gauge("gridhook_subscription_backlog_events", "Events of the topic that the event subscription \
        has not read yet, before its filter.", |f, _| count_sample(f.state.backlog)),
    gauge("gridhook_subscription_backlog_age_seconds", "Age of the oldest event of the backlog; 0 \
        for an empty backlog.", |f, now| Some(seconds_sample(f.state.unread_age(now)))),
    gauge("gridhook_subscription_time_to_live_seconds", "Time to live of events.",
        |f, _| f.state.time_to_live.map(seconds_sample)),
    gauge("gridhook_subscription_pending_events", "Events that were attempted or \
        held back and have not ended.",
        |f, _| count_sample(f.state.pending)),
    gauge("gridhook_subscription_next_due_time_seconds", "Time of the next retry.",
        |f, _| f.state.next_due.map(date_sample)),
    gauge("gridhook_subscription_holding_keys", "Order keys that hold back events.",
        |f, _| count_sample(f.state.holding_keys)),
    gauge("gridhook_subscription_held_back_events", "Events held back until an earlier event of \
        their order key has ended. They count as pending.", |f, _| count_sample(f.state.held_back)),
    gauge("gridhook_subscription_blocked_keys", "Order keys that are blocked by an event until an \
        operator decides.", |f, _| count_sample(f.state.blocked_keys)),
    gauge("gridhook_subscription_dead_letters_waiting", "Dead letters that wait to be written to a \
        file.", |f, _| count_sample(f.state.waiting)),
    gauge("gridhook_subscription_in_flight_requests", "Requests sent whose outcome is not on disk \
        yet.", |f, _| count_sample(f.state.in_flight)),
    gauge("gridhook_subscription_late_requests", "Requests past the response timeout whose late \
        response is still accepted.", |f, _| count_sample(f.state.late_requests)),
    gauge("gridhook_subscription_concurrency_limit_requests", "Current limit of requests in \
        flight.", |f, _| count_sample(f.state.concurrency)),
    gauge("gridhook_subscription_actor_incarnation", "Number of the current incarnation of the \
        actor.", |f, _| count_sample(f.state.incarnation)),
];

#[rustfmt::skip]
const LABELLED: [LabelledMetric; 5] = [
    labelled("gridhook_subscription_attempts_total", "outcome", "Requests to the endpoint by \
        outcome. For pull delivery: receives that returned events, and each expired lock as \
        TimedOut.", |f| f.sums.requests_by_outcome()),
    labelled("gridhook_subscription_dead_lettered_events_total", "reason", "Dead-lettered events \
        by reason.", |f| with_all_reasons(f.sums.dead_lettered_by_reason())),
    labelled("gridhook_subscription_dropped_events_total", "reason", "Events given up without a \
        dead-letter destination, by reason.", |f| with_all_reasons(f.sums.dropped_by_reason())),
    labelled("gridhook_subscription_leased_events_total", "step", "Operations of pulling clients, \
        one for each event: received, acknowledged, released, rejected, renewed, lockExpired.",
        |f| f.sums.lease_operations()),
    labelled("gridhook_subscription_restarts_total", "end", "Restarts of the actor by the end of \
        the previous incarnation, since the process started.", |f| labelled_counts(ends_by_cause(f.sums.ends))),
];

#[rustfmt::skip]
const HISTOGRAMS: [SubscriptionHistogram; 4] = [
    histogram("gridhook_subscription_response_seconds", "Time from the first byte of a request to \
        the last byte of the response, since the process started.", |f| &f.sums.measured.response),
    histogram("gridhook_subscription_queue_wait_seconds", "Time that the oldest event of a request \
        waited after it was due, since the process started.", |f| &f.sums.measured.wait),
    histogram("gridhook_subscription_delivery_seconds", "Time from the publish of the oldest event \
        of a request to its delivery, since the process started.", |f| &f.sums.measured.delivery),
    histogram("gridhook_subscription_batch_events", "Events in a request, since the process \
        started.", |f| &f.sums.measured.batch),
];

const PHASE: MetricFamily = server::histogram(
    "gridhook_subscription_phase_seconds",
    "Duration of each phase of a request (dns, connect, tls, first_byte, body), since the \
        process started.",
);

const CAUSE: MetricFamily = server::gauge(
    "gridhook_subscription_suspension_info",
    "1, with the outcome that caused the suspension.",
);

fn labelled_counts(counts: [(&'static str, u64); 4]) -> Vec<(String, u64)> {
    counts
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}

/// Adds zeros for the reasons that did not occur. A counter that begins with its first event shows no
/// increase, so that no alert would fire.
fn with_all_reasons(mut counts: Vec<(String, u64)>) -> Vec<(String, u64)> {
    for reason in Reason::all().filter(|reason| is_final(*reason)) {
        let name = reason.to_string();
        if !counts.iter().any(|(known, _)| *known == name) {
            counts.push((name, 0));
        }
    }
    counts
}

/// Whether an event is given up for this reason in a shipped edition. Other failures are retried.
fn is_final(reason: Reason) -> bool {
    match reason {
        Reason::Undeliverable(failure) => matches!(
            failure,
            Failure::BadRequest
                | Failure::Unauthorized
                | Failure::Forbidden
                | Failure::NotFound
                | Failure::PayloadTooLarge
                | Failure::TransformationFailed
                // An edition names further statuses, such as 414.
                | Failure::GenericError
        ),
        _ => true,
    }
}

const DESTINATIONS: MetricFamily = server::gauge(
    "gridhook_subscription_destinations",
    "Number of event subscriptions in the series by kind of destination: WebHook, Pull, \
        Kafka and others.",
);

fn labels_of(named: &NamedSubscription) -> [(&'static str, String); 2] {
    [
        ("topic", named.topic.clone()),
        ("subscription", named.subscription.clone()),
    ]
}

/// Writes all families of event subscriptions.
pub(super) fn write_families(text: &mut MetricsText, all: &[NamedSubscription], now: Timestamp) {
    let own_figures: Vec<(_, &SubscriptionFigures)> = all
        .iter()
        .map(|named| (labels_of(named), &named.figures))
        .collect();
    let all: Vec<([(&str, &str); 2], &SubscriptionFigures)> = own_figures
        .iter()
        .map(|(labels, figures)| {
            (
                labels.each_ref().map(|(name, text)| (*name, &**text)),
                *figures,
            )
        })
        .collect();
    for SubscriptionMetric { family, of } in &METRICS {
        text.start_family(*family);
        for (labels, figures) in &all {
            if let Some(value) = of(figures, now) {
                text.add_sample(labels, value);
            }
        }
    }
    for LabelledMetric { family, label, of } in &LABELLED {
        text.start_family(*family);
        for ([topic, subscription], figures) in &all {
            for (name, count) in of(figures) {
                text.add_sample(&[*topic, *subscription, (label, &name)], count);
            }
        }
    }
    text.start_family(DESTINATIONS);
    for ([topic, subscription], figures) in &all {
        for (destination, count) in &figures.state.destinations {
            text.add_sample(
                &[*topic, *subscription, ("destination", destination)],
                *count,
            );
        }
    }
    text.start_family(CAUSE);
    for ([topic, subscription], figures) in &all {
        if let Some(cause) = figures.state.cause {
            text.add_sample(
                &[*topic, *subscription, ("cause", &cause.to_string())],
                1_u64,
            );
        }
    }
    for SubscriptionHistogram { family, of } in &HISTOGRAMS {
        text.start_family(*family);
        for (labels, figures) in &all {
            text.add_histogram(labels, of(figures));
        }
    }
    text.start_family(PHASE);
    for ([topic, subscription], figures) in &all {
        for (phase, counts) in PHASE_NAMES.into_iter().zip(&figures.sums.measured.phases) {
            text.add_histogram(&[*topic, *subscription, ("phase", phase)], counts);
        }
    }
}
