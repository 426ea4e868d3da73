//! Compares the state of event subscriptions, certificates and the disk with what was reported, and
//! reports what changed.
//!
//! At most one change of each is reported at a look, so an endpoint that fails and recovers between
//! two looks is not. A new process reports suspended and held event subscriptions again.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use serde_json::{Value, json};

use crate::certificates::{ShownCertificate, ShownCertificates};
use gridhook_engine::control::{
    registry::{Registry, SubscriptionSnapshot},
    system_events::SystemEvents,
};
use gridhook_event::{SubscriptionKey, Timestamp, WallTime};
use gridhook_journal::Journal;
use gridhook_policy::record::{Health, HeldBy};

pub(super) struct Watch {
    certificates: ShownCertificates,
    disk_free_bytes: u64,
    certificate_expiry: Duration,
    /// [`None`] before the first look.
    subscriptions: Option<HashMap<SubscriptionKey, Reported>>,
    /// Name and end of each certificate.
    expiring: BTreeSet<(String, Timestamp)>,
    is_disk_low: bool,
}

/// The state of an event subscription that was last reported.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Reported {
    state: EndpointState,
    dead_lettered: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum EndpointState {
    #[default]
    Active,
    Suspended,
    Held(HeldBy),
}

impl Watch {
    pub(super) fn new(
        certificates: ShownCertificates,
        disk_free_bytes: u64,
        certificate_expiry: Duration,
    ) -> Self {
        Self {
            certificates,
            disk_free_bytes,
            certificate_expiry,
            subscriptions: None,
            expiring: BTreeSet::new(),
            is_disk_low: false,
        }
    }

    /// Reports what changed since the last look.
    pub(super) async fn report_changes(
        &mut self,
        registry: &Registry,
        journal: &Journal,
        events: &SystemEvents,
        wall: WallTime,
    ) {
        self.look_at_subscriptions(registry, events);
        self.look_at_certificates(events, wall);
        let journal = journal.clone();
        let figures =
            tokio::task::spawn_blocking(move || journal.read_figures().store?.free_bytes).await;
        if let Some(free) = figures.ok().flatten() {
            let is_low = free < self.disk_free_bytes;
            if is_low && !self.is_disk_low {
                let data = json!({ "freeBytes": free, "limitBytes": self.disk_free_bytes });
                events.report_event("Gridhook.DiskLow", "disk".to_owned(), None, data);
            }
            self.is_disk_low = is_low;
        }
    }

    fn look_at_subscriptions(&mut self, registry: &Registry, events: &SystemEvents) {
        let before = self.subscriptions.take();
        let mut subscriptions = HashMap::new();
        for topic in registry.list_topics() {
            for snapshot in topic.snapshots() {
                let key = SubscriptionKey {
                    partition: topic.partition(),
                    subscription: snapshot.number(),
                };
                let current = Reported {
                    state: EndpointState::from_snapshot(&snapshot),
                    dead_lettered: snapshot.counters.dead_lettered,
                };
                // Dead letters of an earlier process are not reported again. Those after its last
                // look are in no event.
                let last = match &before {
                    Some(before) => before.get(&key).copied().unwrap_or_default(),
                    None => Reported {
                        dead_lettered: current.dead_lettered,
                        ..Reported::default()
                    },
                };
                let topic = topic.record();
                let subscription = snapshot.record();
                let report = |event_type, data| {
                    events.report_subscription(event_type, &topic, &subscription, data)
                };
                if current.state != last.state {
                    report(current.state.event_type(), describe_endpoint(&snapshot));
                }
                let more = current.dead_lettered.saturating_sub(last.dead_lettered);
                if more > 0 {
                    let data =
                        json!({ "deadLettered": more, "deadLetteredTotal": current.dead_lettered });
                    report("Gridhook.SubscriptionDeadLettered", data);
                }
                subscriptions.insert(key, current);
            }
        }
        self.subscriptions = Some(subscriptions);
    }

    fn look_at_certificates(&mut self, events: &SystemEvents, wall: WallTime) {
        let now = wall.to_timestamp();
        for ShownCertificate {
            name, not_after, ..
        } in (self.certificates)()
        {
            if not_after <= now.after(self.certificate_expiry)
                && self.expiring.insert((name.clone(), not_after))
            {
                let data = json!({ "name": name, "expires": not_after.to_event_grid(), "expired": not_after <= now });
                events.report_event("Gridhook.CertificateNearExpiry", name, None, data);
            }
        }
    }
}

impl EndpointState {
    fn from_snapshot(snapshot: &SubscriptionSnapshot) -> Self {
        match (snapshot.held, snapshot.health) {
            (Some(cause), _) => Self::Held(cause),
            (None, Health::Suspended { .. } | Health::Probing { .. }) => Self::Suspended,
            (None, Health::Healthy { .. }) => Self::Active,
        }
    }

    fn event_type(self) -> &'static str {
        match self {
            Self::Active => "Gridhook.SubscriptionResumed",
            Self::Suspended => "Gridhook.SubscriptionSuspended",
            Self::Held(_) => "Gridhook.SubscriptionHeld",
        }
    }
}

/// The data of an event about the endpoint's state.
fn describe_endpoint(snapshot: &SubscriptionSnapshot) -> Value {
    if let Some(cause) = snapshot.held {
        return json!({ "cause": cause.to_string() });
    }
    match snapshot.health {
        Health::Healthy { .. } => json!({}),
        Health::Suspended {
            cause,
            since,
            until,
            consecutive_suspensions,
        } => json!({
            "cause": cause.to_string(), "since": since.to_event_grid(), "until": until.to_event_grid(),
            "consecutiveSuspensions": consecutive_suspensions,
        }),
        Health::Probing {
            cause,
            since,
            consecutive_suspensions,
        } => json!({
            "cause": cause.to_string(), "since": since.to_event_grid(),
            "consecutiveSuspensions": consecutive_suspensions,
        }),
    }
}
