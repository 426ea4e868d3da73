//! Records published and delivered events; the verdict is computed from it.
//!
//! Each event has a number as its id. Its data contains the number and a checksum derived from the
//! seed, so that damaged and foreign events are detected.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use crate::format::join;

/// The maximum number of lost events to name.
const NAMED_MAX: usize = 10;

/// The result of publishing an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PublishResult {
    /// No response: the event may or may not arrive.
    #[default]
    Unknown,
    /// The event must arrive.
    Acknowledged,
    Refused,
}

/// The published and delivered events of a run.
#[derive(Debug)]
pub struct DeliveryLedger {
    seed: u64,
    publish_results: Vec<PublishResult>,
    /// For each subscription, the number of arrivals of each event.
    arrivals: Vec<Vec<u8>>,
    acknowledged: u64,
    arrived: u64,
    damaged: u64,
}

/// The totals of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerSummary {
    /// Number of acknowledged events.
    pub acknowledged: u64,
    /// First arrivals of acknowledged events, over all subscriptions.
    pub arrived: u64,
    /// Number of missing arrivals of acknowledged events, over all subscriptions.
    pub lost: u64,
    /// Some missing arrivals: the numbers of the subscription and the event.
    pub named: Vec<(usize, u64)>,
    /// Number of repeated arrivals, over all subscriptions.
    pub repeated: u64,
    /// Arrivals that differ from what was published.
    pub damaged: u64,
    /// Number of refused events that arrived.
    pub refused_but_arrived: u64,
}

/// The checked part of an event.
#[derive(Deserialize)]
struct ArrivedEvent {
    id: String,
    data: ArrivedData,
}

#[derive(Deserialize)]
struct ArrivedData {
    number: u64,
    check: String,
}

impl DeliveryLedger {
    /// An empty ledger of a run.
    pub fn new(seed: u64, subscriptions: usize) -> Self {
        let arrivals = vec![Vec::new(); subscriptions];
        Self {
            seed,
            publish_results: Vec::new(),
            arrivals,
            acknowledged: 0,
            arrived: 0,
            damaged: 0,
        }
    }

    /// The body of a request with new events, and the number of the first event.
    pub fn issue_events(&mut self, events: usize) -> (u64, String) {
        let first = self.publish_results.len() as u64;
        self.publish_results
            .resize(self.publish_results.len() + events, PublishResult::Unknown);
        let bodies = (first..first + events as u64).map(|number| {
            let check = self.compute_checksum(number);
            let event = json!({
                "id": number.to_string(),
                "subject": "/chaos",
                "eventType": "Chaos.Event",
                "eventTime": "2026-01-01T00:00:00Z",
                "dataVersion": "1",
                "data": {"number": number, "check": check},
            });
            event.to_string()
        });
        (first, format!("[{}]", join(bodies, ",")))
    }

    pub fn record_acknowledged(&mut self, first: u64, events: usize) {
        self.acknowledged += events as u64;
        self.record_publish(first, events, PublishResult::Acknowledged);
    }

    pub fn record_refused(&mut self, first: u64, events: usize) {
        self.record_publish(first, events, PublishResult::Refused);
    }

    /// Records the events of a request to a subscription's endpoint.
    pub fn record_arrivals(&mut self, subscription: usize, body: &[u8]) {
        let events: Vec<ArrivedEvent> = match body.trim_ascii_start().first() {
            Some(b'[') => serde_json::from_slice(body).unwrap_or_default(),
            Some(_) | None => serde_json::from_slice(body)
                .map(|event| vec![event])
                .unwrap_or_default(),
        };
        if events.is_empty() {
            self.damaged += 1;
        }
        for ArrivedEvent {
            id,
            data: ArrivedData { number, check },
        } in events
        {
            let is_intact = id == number.to_string()
                && check == self.compute_checksum(number)
                && number < self.publish_results.len() as u64;
            let (true, Some(arrivals)) = (is_intact, self.arrivals.get_mut(subscription)) else {
                self.damaged += 1;
                continue;
            };
            let at = number as usize;
            if arrivals.len() <= at {
                arrivals.resize(at + 1, 0);
            }
            self.arrived += u64::from(arrivals[at] == 0);
            arrivals[at] = arrivals[at].saturating_add(1);
        }
    }

    /// The acknowledged events and the first arrivals so far.
    pub fn current_counts(&self) -> (u64, u64) {
        (self.acknowledged, self.arrived)
    }

    pub fn summarize(&self) -> LedgerSummary {
        let mut sum = LedgerSummary {
            acknowledged: self.acknowledged,
            damaged: self.damaged,
            ..LedgerSummary::default()
        };
        for (subscription, arrivals) in self.arrivals.iter().enumerate() {
            for (number, result) in self.publish_results.iter().enumerate() {
                let times = arrivals.get(number).copied().unwrap_or(0);
                sum.repeated += u64::from(times.saturating_sub(1));
                match (result, times) {
                    (PublishResult::Acknowledged, 0) => {
                        sum.lost += 1;
                        if sum.named.len() < NAMED_MAX {
                            sum.named.push((subscription, number as u64));
                        }
                    }
                    (PublishResult::Acknowledged, 1..) => sum.arrived += 1,
                    (PublishResult::Refused, 1..) => sum.refused_but_arrived += 1,
                    (PublishResult::Refused, 0) | (PublishResult::Unknown, _) => {}
                }
            }
        }
        sum
    }

    fn record_publish(&mut self, first: u64, events: usize, result: PublishResult) {
        let first = first as usize;
        self.publish_results[first..first + events].fill(result);
    }

    /// The checksum of an event.
    fn compute_checksum(&self, number: u64) -> String {
        // The finalizer of splitmix64: adjacent numbers give unrelated checksums.
        let mut hash = self.seed ^ number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        format!("{:016x}", hash ^ (hash >> 31))
    }
}

/// The server's fault counters by name, flattened: `responsesDropped.events`.
pub(super) fn flatten_counts(value: &serde_json::Value) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::Object(_) => {
                counters.extend(
                    flatten_counts(value)
                        .into_iter()
                        .map(|(inner, count)| (format!("{name}.{inner}"), count)),
                );
            }
            value => {
                counters.extend(value.as_u64().map(|count| (name.clone(), count)));
            }
        }
    }
    counters
}
