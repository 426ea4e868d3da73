//! What is told of subscriptions, as a table: its names, its sentences, and where it is found.

use std::time::Duration;

use super::{
    figures::{SubscriptionFigures, by_end},
    scrape::NamedSubscription,
};
use crate::{
    control::registry::PHASE_NAMES,
    event::Timestamp,
    metrics::{
        HistogramCounts,
        text::{MetricFamily, MetricKind, MetricsText, SampleValue},
    },
};

/// One sample of a subscription.
struct SubscriptionGauge {
    family: MetricFamily,
    /// [`None`] where there is nothing to tell.
    of: fn(&SubscriptionFigures, Timestamp) -> Option<SampleValue>,
}

/// A sample for each value of a label.
struct LabelledGauge {
    family: MetricFamily,
    label: &'static str,
    of: fn(&SubscriptionFigures) -> Vec<(String, u64)>,
}

/// A histogram.
struct SubscriptionHistogram {
    family: MetricFamily,
    of: fn(&SubscriptionFigures) -> &HistogramCounts,
}

const fn counter(
    name: &'static str,
    help: &'static str,
    of: fn(&SubscriptionFigures, Timestamp) -> Option<SampleValue>,
) -> SubscriptionGauge {
    SubscriptionGauge { family: MetricFamily { name, kind: MetricKind::Counter, help }, of }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    of: fn(&SubscriptionFigures, Timestamp) -> Option<SampleValue>,
) -> SubscriptionGauge {
    SubscriptionGauge { family: MetricFamily { name, kind: MetricKind::Gauge, help }, of }
}

const fn many(
    name: &'static str,
    label: &'static str,
    help: &'static str,
    of: fn(&SubscriptionFigures) -> Vec<(String, u64)>,
) -> LabelledGauge {
    LabelledGauge { family: MetricFamily { name, kind: MetricKind::Counter, help }, label, of }
}

const fn spread(
    name: &'static str,
    help: &'static str,
    of: fn(&SubscriptionFigures) -> &HistogramCounts,
) -> SubscriptionHistogram {
    SubscriptionHistogram { family: MetricFamily { name, kind: MetricKind::Histogram, help }, of }
}

fn whole(value: u64) -> Option<SampleValue> {
    Some(value.into())
}

fn seconds(time: Duration) -> SampleValue {
    time.as_secs_f64().into()
}

fn date(at: Timestamp) -> SampleValue {
    seconds(at.since(Timestamp::default()))
}

#[rustfmt::skip]
const ONES: [SubscriptionGauge; 31] = [
    counter("gridhook_subscription_passed_events_total", "Published events that it has passed, whatever became of them.", |f, _| whole(f.sums.counters.passed)),
    counter("gridhook_subscription_filtered_events_total", "Published events that its filter stopped.", |f, _| whole(f.sums.counters.filtered)),
    counter("gridhook_subscription_matched_events_total", "Published events that its filter let through.", |f, _| whole(f.sums.counters.matched)),
    counter("gridhook_subscription_delivered_events_total", "Published events that its endpoint took.", |f, _| whole(f.sums.counters.delivered)),
    counter("gridhook_subscription_canceled_events_total", "Published events that ended because somebody no longer wanted them.", |f, _| whole(f.sums.counters.canceled)),
    counter("gridhook_subscription_late_responses_total", "Requests that were answered with success after their wait was over.", |f, _| whole(f.sums.counters.late + f.sums.replayed.late)),
    counter("gridhook_subscription_replayed_events_total", "Events that replays and redrives sent once more and its endpoint took.", |f, _| whole(f.sums.replayed.delivered)),
    counter("gridhook_subscription_dead_letters_written_total", "Dead letters that were written to their destination.", |f, _| whole(f.sums.written)),
    counter("gridhook_subscription_dead_letters_lost_total", "Dead letters that their destination did not take in time.", |f, _| whole(f.sums.lost)),
    counter("gridhook_subscription_dead_letters_redriven_total", "Dead letters that were sent again before they were in a file.", |f, _| whole(f.sums.redriven)),
    counter("gridhook_subscription_dead_letters_purged_total", "Dead letters that an operator gave up before they were in a file.", |f, _| whole(f.sums.purged)),
    counter("gridhook_subscription_dead_letter_files_total", "Files of dead letters that were written.", |f, _| whole(f.sums.files)),
    counter("gridhook_subscription_quarantined_events_total", "Events that were put aside because they killed its actor again and again, since the process started.", |f, _| whole(f.sums.quarantined)),
    gauge("gridhook_subscriptions", "How many event subscriptions these series stand for: 1, but for those that are summed up.", |f, _| whole(f.state.subscriptions)),
    gauge("gridhook_subscription_suspended", "Whether its endpoint is left alone.", |f, _| whole(f.state.suspended)),
    gauge("gridhook_subscription_probing", "Whether one request is on its way to find out whether its endpoint is back.", |f, _| whole(f.state.probing)),
    gauge("gridhook_subscription_held", "Whether nothing is sent because an operator, or the endpoint by 410, said so.", |f, _| whole(f.state.held)),
    gauge("gridhook_subscription_suspension_start_time_seconds", "When the suspension began, where it is suspended or probed.", |f, _| f.state.since.map(date)),
    gauge("gridhook_subscription_next_probe_time_seconds", "When its endpoint is asked next, where it is suspended.", |f, _| f.state.until.map(date)),
    gauge("gridhook_subscription_consecutive_suspensions", "How many times in a row it was suspended.", |f, _| Some(f.state.consecutive_suspensions.into())),
    gauge("gridhook_subscription_consecutive_failures", "Requests that failed since the last success.", |f, _| Some(f.state.failures.into())),
    gauge("gridhook_subscription_backlog_events", "Events of its topic that it has not passed, before its filter.", |f, _| whole(f.state.backlog)),
    gauge("gridhook_subscription_backlog_age_seconds", "How old the oldest of these is; 0 where there is none.", |f, now| Some(seconds(f.state.unread_age(now)))),
    gauge("gridhook_subscription_time_to_live_seconds", "How old an event becomes before it is given up.", |f, _| f.state.time_to_live.map(seconds)),
    gauge("gridhook_subscription_pending_events", "Events that were tried and failed and are tried again.", |f, _| whole(f.state.pending)),
    gauge("gridhook_subscription_next_due_time_seconds", "When the first of these is tried again.", |f, _| f.state.next_due.map(date)),
    gauge("gridhook_subscription_dead_letters_waiting", "Dead letters that are not in a file yet.", |f, _| whole(f.state.waiting)),
    gauge("gridhook_subscription_in_flight_requests", "Requests on their way, or back and not on disk.", |f, _| whole(f.state.in_flight)),
    gauge("gridhook_subscription_late_requests", "Requests whose wait is over and that may be answered yet.", |f, _| whole(f.state.late_requests)),
    gauge("gridhook_subscription_concurrency_limit_requests", "Requests that may be on their way at once, at present.", |f, _| whole(f.state.concurrency)),
    gauge("gridhook_subscription_actor_incarnation", "The number of the life that its actor is in.", |f, _| whole(f.state.incarnation)),
];

#[rustfmt::skip]
const MANIES: [LabelledGauge; 5] = [
    many("gridhook_subscription_attempts_total", "outcome", "Requests to its endpoint, by how they ended; of what is pulled, those that were answered with events, and as TimedOut each event whose lock expired.", |f| f.sums.attempts()),
    many("gridhook_subscription_dead_lettered_events_total", "reason", "Events that were given up and put aside, by why.", |f| f.sums.dead_lettered()),
    many("gridhook_subscription_dropped_events_total", "reason", "Events that were given up without a place for them, by why.", |f| f.sums.dropped()),
    many("gridhook_subscription_leased_events_total", "step", "What clients that pull did, each counted for one event: received, acknowledged, released, rejected, renewed, lockExpired.", |f| f.sums.leases()),
    many("gridhook_subscription_restarts_total", "end", "How often its actor was built again since the process started, by how the life before had ended.", |f| named(by_end(f.sums.ends))),
];

#[rustfmt::skip]
const SPREADS: [SubscriptionHistogram; 4] = [
    spread("gridhook_subscription_response_seconds", "How long its endpoint took, from the first byte of a request to the last of the answer, since the process started.", |f| &f.sums.measured.response),
    spread("gridhook_subscription_queue_wait_seconds", "How long the oldest event of a request had waited since it could have left, since the process started.", |f| &f.sums.measured.wait),
    spread("gridhook_subscription_delivery_seconds", "How long it took from the publishing of a request's oldest event to its delivery, since the process started.", |f| &f.sums.measured.delivery),
    spread("gridhook_subscription_batch_events", "Events in a request, since the process started.", |f| &f.sums.measured.batch),
];

const PHASE: MetricFamily = MetricFamily {
    name: "gridhook_subscription_phase_seconds",
    kind: MetricKind::Histogram,
    help: "How long the parts of requests took (dns, connect, tls, first_byte, body), since the process started.",
};

const CAUSE: MetricFamily = MetricFamily {
    name: "gridhook_subscription_suspension_info",
    kind: MetricKind::Gauge,
    help: "1, with the outcome that its endpoint is suspended for.",
};

fn named(counts: [(&'static str, u64); 4]) -> Vec<(String, u64)> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Tells all of it.
pub(super) fn write_families(text: &mut MetricsText, all: &[NamedSubscription], now: Timestamp) {
    let own =
        |named: &NamedSubscription| [("topic", named.topic.clone()), ("subscription", named.subscription.clone())];
    let owned: Vec<(_, &SubscriptionFigures)> = all.iter().map(|named| (own(named), &named.figures)).collect();
    let all: Vec<([(&str, &str); 2], &SubscriptionFigures)> = owned
        .iter()
        .map(|(labels, figures)| (labels.each_ref().map(|(name, text)| (*name, &**text)), *figures))
        .collect();
    for SubscriptionGauge { family, of } in &ONES {
        text.family(*family);
        for (labels, figures) in &all {
            if let Some(value) = of(figures, now) {
                text.sample(labels, value);
            }
        }
    }
    for LabelledGauge { family, label, of } in &MANIES {
        text.family(*family);
        for ([topic, subscription], figures) in &all {
            for (name, count) in of(figures) {
                text.sample(&[*topic, *subscription, (label, &name)], count);
            }
        }
    }
    text.family(CAUSE);
    for ([topic, subscription], figures) in &all {
        if let Some(cause) = figures.state.cause {
            text.sample(&[*topic, *subscription, ("cause", &cause.to_string())], 1_u64);
        }
    }
    for SubscriptionHistogram { family, of } in &SPREADS {
        text.family(*family);
        for (labels, figures) in &all {
            text.histogram(labels, of(figures));
        }
    }
    text.family(PHASE);
    for ([topic, subscription], figures) in &all {
        for (phase, counts) in PHASE_NAMES.into_iter().zip(&figures.sums.measured.phases) {
            text.histogram(&[*topic, *subscription, ("phase", phase)], counts);
        }
    }
}
