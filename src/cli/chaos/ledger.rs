//! What was published and what came of it: the account that the verdict is made of.
//!
//! Events are numbered; the number is their id, and stands in their data beside a check that only this run knows. So what
//! arrives is known to be what was sent, whoever sends it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// So many of the lost are named.
const NAMED: usize = 10;

/// What is known of a publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PublishAnswer {
    /// Nobody knows: it may arrive or not.
    #[default]
    Unknown,
    /// It was acknowledged: it must arrive.
    Acknowledged,
    /// It was refused.
    Refused,
}

/// The account of a run.
#[derive(Debug)]
pub struct DeliveryAccount {
    seed: u64,
    words: Vec<PublishAnswer>,
    /// For each subscription how often each event arrived.
    arrivals: Vec<Vec<u8>>,
    acknowledged: u64,
    arrived: u64,
    damaged: u64,
}

/// What the account comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountSummary {
    /// Events that were acknowledged.
    pub acknowledged: u64,
    /// Arrivals of acknowledged events, each counted once for each subscription.
    pub arrived: u64,
    /// Those that are missing.
    pub lost: u64,
    /// A few of them: the subscription's number and the event's.
    pub named: Vec<(usize, u64)>,
    /// Arrivals beyond the first.
    pub repeated: u64,
    /// Arrivals of what was not sent like this.
    pub damaged: u64,
    /// Events that were refused, and arrived.
    pub refused_but_arrived: u64,
}

/// An event, as much of it as is looked at.
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

impl DeliveryAccount {
    /// Of a run with this seed and so many subscriptions.
    pub fn new(seed: u64, subscriptions: usize) -> Self {
        let arrivals = vec![Vec::new(); subscriptions];
        Self { seed, words: Vec::new(), arrivals, acknowledged: 0, arrived: 0, damaged: 0 }
    }

    /// The body of a request with so many new events, and the number of the first.
    pub fn issue(&mut self, events: usize) -> (u64, String) {
        let first = self.words.len() as u64;
        self.words.resize(self.words.len() + events, PublishAnswer::Unknown);
        let bodies = (first..first + events as u64).map(|number| {
            let check = self.check(number);
            format!(
                r#"{{"id":"{number}","subject":"/chaos","eventType":"Chaos.Event","eventTime":"2026-01-01T00:00:00Z","dataVersion":"1","data":{{"number":{number},"check":"{check}"}}}}"#
            )
        });
        (first, format!("[{}]", bodies.collect::<Vec<_>>().join(",")))
    }

    /// These events were acknowledged.
    pub fn acknowledged(&mut self, first: u64, events: usize) {
        self.acknowledged += events as u64;
        self.record_publish(first, events, PublishAnswer::Acknowledged);
    }

    /// These events were refused.
    pub fn refused(&mut self, first: u64, events: usize) {
        self.record_publish(first, events, PublishAnswer::Refused);
    }

    /// A request's events arrived for a subscription.
    pub fn arrived(&mut self, subscription: usize, body: &[u8]) {
        let events: Vec<ArrivedEvent> = match body.trim_ascii_start().first() {
            Some(b'[') => serde_json::from_slice(body).unwrap_or_default(),
            Some(_) | None => serde_json::from_slice(body).map(|event| vec![event]).unwrap_or_default(),
        };
        if events.is_empty() {
            self.damaged += 1;
        }
        for ArrivedEvent { id, data: ArrivedData { number, check } } in events {
            let whole = id == number.to_string() && check == self.check(number) && number < self.words.len() as u64;
            let (true, Some(arrivals)) = (whole, self.arrivals.get_mut(subscription)) else {
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

    /// How many were acknowledged, and how many arrivals there were, each counted once.
    pub fn so_far(&self) -> (u64, u64) {
        (self.acknowledged, self.arrived)
    }

    /// What it comes to now.
    pub fn sum(&self) -> AccountSummary {
        let mut sum =
            AccountSummary { acknowledged: self.acknowledged, damaged: self.damaged, ..AccountSummary::default() };
        for (subscription, arrivals) in self.arrivals.iter().enumerate() {
            for (number, word) in self.words.iter().enumerate() {
                let times = arrivals.get(number).copied().unwrap_or(0);
                sum.repeated += u64::from(times.saturating_sub(1));
                match (word, times) {
                    (PublishAnswer::Acknowledged, 0) => {
                        sum.lost += 1;
                        if sum.named.len() < NAMED {
                            sum.named.push((subscription, number as u64));
                        }
                    }
                    (PublishAnswer::Acknowledged, 1..) => sum.arrived += 1,
                    (PublishAnswer::Refused, 1..) => sum.refused_but_arrived += 1,
                    (PublishAnswer::Refused, 0) | (PublishAnswer::Unknown, _) => {}
                }
            }
        }
        sum
    }

    fn record_publish(&mut self, first: u64, events: usize, word: PublishAnswer) {
        let first = first as usize;
        self.words[first..first + events].fill(word);
    }

    /// What stands in the data of an event beside its number.
    fn check(&self, number: u64) -> String {
        // The mixing of splitmix64: neighbours have nothing in common.
        let mut mixed = self.seed ^ number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        format!("{:016x}", mixed ^ (mixed >> 31))
    }
}

/// Numbers by name, as the server counts its acts, flattened: `responsesDropped.events`.
pub(super) fn counts(value: &serde_json::Value) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::Object(_) => {
                found.extend(counts(value).into_iter().map(|(inner, count)| (format!("{name}.{inner}"), count)));
            }
            value => {
                found.extend(value.as_u64().map(|count| (name.clone(), count)));
            }
        }
    }
    found
}
