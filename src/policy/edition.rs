//! One edition of the delivery policy, as data: when a failed event is tried again, what a status means for the wait,
//! how long an endpoint is left alone.
//!
//! The numbers stand in `config/editions/*.toml` with the source of each; `config` reads the file, calls
//! [`Edition::check`] once, and the core is given the plain struct. Whoever holds a checked edition may rely on what
//! `check` says. Absent on purpose: the arithmetic (it belongs to the core), the name of an edition (no branch may
//! depend on it), and defaults (a file says everything).

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use crate::policy::outcome::Outcome;

/// An edition of the delivery policy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edition {
    /// When a failed event is tried again.
    pub retry: RetrySchedule,
    /// `maxDeliveryAttempts`, the first attempt counted.
    pub attempts: SettingRange,
    /// `eventTimeToLiveInMinutes`.
    pub time_to_live_minutes: SettingRange,
    /// What a webhook's status means for the wait.
    pub webhook: FailureRules,
    /// What the status of every other kind of destination means for the wait.
    pub resource: FailureRules,
    /// When an endpoint is left alone, and for how long.
    pub probation: ProbationRules,
    /// How fast an endpoint is called that has failed before.
    pub pace: PaceRules,
    /// How what was given up is put aside.
    pub dead_letter: DeadLetterRules,
}

/// The retry schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrySchedule {
    /// The steps after the first, second, third failure: never empty, never zero, ascending where they are offsets.
    #[serde(deserialize_with = "durations")]
    pub schedule: Vec<Duration>,
    /// What a step is counted from.
    pub steps: StepOrigin,
    /// The wait between attempts once the schedule is used up; never zero.
    #[serde(with = "humantime_serde")]
    pub repeat: Duration,
    /// How much of a wait is added by chance, from 0 to 1.
    pub jitter_share: f64,
    /// The most that is added by chance.
    #[serde(with = "humantime_serde")]
    pub jitter_max: Duration,
    /// For as long at most as an endpoint asks with `RetrySchedule-After`, no request is sent to it.
    #[serde(with = "humantime_serde")]
    pub retry_after_max: Duration,
}

/// What the steps of a schedule are counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepOrigin {
    /// From the failure before: a step is the wait after it.
    Delays,
    /// From the first attempt.
    Offsets,
}

/// What a subscription may ask for, and what it gets where it asks for nothing: `1 <= min <= default <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingRange {
    /// The least.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// Where nothing is asked for.
    pub default: u32,
}

/// The kinds of destination that an edition tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// An HTTP endpoint of whoever subscribed.
    Webhook,
    /// Every other one: queues, hubs, functions.
    Resource,
}

/// What a failure means for the wait, for one kind of destination. No status is in two of the three lists that would
/// contradict each other, none is a success, and no outcome is one of our own making.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureRules {
    /// Statuses after which an event is given up at once.
    pub never_retried: Vec<u16>,
    /// Statuses after which an event is given up at once where it becomes a dead letter. Where there is no place for dead
    /// letters it is tried again, after the wait that is said of the status.
    pub never_retried_with_dead_letter: Vec<u16>,
    /// How requests end without any status after which an event is given up at once.
    pub never_retried_without_status: Vec<Outcome>,
    /// The least wait after a status.
    #[serde(deserialize_with = "durations_by")]
    pub waits: BTreeMap<u16, Duration>,
    /// The least wait after everything else.
    #[serde(with = "humantime_serde")]
    pub otherwise: Duration,
}

/// When an endpoint is left alone, and for how long.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbationRules {
    /// As many failed requests in a row suspend it: at least one.
    pub after_failures: u32,
    /// So large a share of the requests suspends it too: above 0, 1 at most …
    pub failure_share: f64,
    /// … of those that came back within so long, over which the rate of successes is measured too: a second or more …
    #[serde(with = "humantime_serde")]
    pub window: Duration,
    /// … if they are as many: at least one.
    pub requests_min: u32,
    /// How long, by the outcome that caused it; never zero, never for a success.
    #[serde(deserialize_with = "durations_by")]
    pub durations: BTreeMap<Outcome, Duration>,
    /// How long for every other outcome; never zero.
    #[serde(with = "humantime_serde")]
    pub otherwise: Duration,
    /// The most that failed probes double it to: no less than any duration above.
    #[serde(with = "humantime_serde")]
    pub longest: Duration,
}

/// How fast an endpoint is called that has failed before. The rate is that of requests; its last healthy one is the mean
/// of the successes of the last window without probation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceRules {
    /// After probation it begins with this share of the last healthy rate: above 0, 1 at most …
    pub start_share: f64,
    /// … reaches that rate after so long, while all goes well …
    #[serde(with = "humantime_serde")]
    pub climb: Duration,
    /// … and grows by this share in each clean second then …
    pub growth_share: f64,
    /// … but never to more than so many times what was healthy before or is taken now: at least 1.
    pub over_share: f64,
    /// A failure takes it to this share of what was accepted: above 0, 1 at most.
    pub after_failure_share: f64,
    /// Failures that are so small a share of the requests are none of the endpoint's strength. Busy always is.
    pub tolerated_share: f64,
    /// Requests in a second, of which it never has fewer: above 0.
    pub least: f64,
    /// Without a failure it is forgotten after so long; never zero.
    #[serde(with = "humantime_serde")]
    pub forgotten_after: Duration,
}

/// How what was given up is put aside.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterRules {
    /// From the giving up to the file.
    #[serde(with = "humantime_serde")]
    pub delay: Duration,
    /// The form of its file.
    pub form: FileForm,
    /// The waits after a store's first, second, third failure to take a file; the last one repeats. Never empty, none zero.
    #[serde(deserialize_with = "durations")]
    pub retry: Vec<Duration>,
    /// How long a store may be out of reach before an event is dropped.
    #[serde(with = "humantime_serde")]
    pub outage_window: Duration,
    /// The most days that a subscription may ask for in its place; 0: it may not ask.
    pub retry_period_days_max: u32,
    /// Whether an event is dropped at once where the store says that it has no such place.
    pub drop_where_not_found: bool,
}

/// The forms that files of dead letters have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileForm {
    /// Of topics: each event with its fate among its own members.
    Basic,
    /// Of namespaces: each event beside its fate.
    Namespace,
}

impl Edition {
    /// The rules for this kind of destination.
    pub fn rules(&self, kind: EndpointKind) -> &FailureRules {
        match kind {
            EndpointKind::Webhook => &self.webhook,
            EndpointKind::Resource => &self.resource,
        }
    }

    /// Whether the edition can be followed; if not, the key, what it says and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        self.retry.check()?;
        self.attempts.check("attempts")?;
        self.time_to_live_minutes.check("time_to_live_minutes")?;
        self.webhook.check("webhook")?;
        self.resource.check("resource")?;
        self.probation.check()?;
        self.pace.check()?;
        self.dead_letter.check()
    }
}

impl RetrySchedule {
    fn check(&self) -> Result<(), String> {
        let Self { schedule, steps, repeat, jitter_share, jitter_max: _, retry_after_max: _ } = self;
        if schedule.is_empty() {
            return Err("retry.schedule is empty; allowed are one step or more".to_owned());
        }
        for step in schedule {
            positive("retry.schedule", *step)?;
        }
        match steps {
            StepOrigin::Delays => {}
            StepOrigin::Offsets if schedule.is_sorted_by(|a, b| a < b) => {}
            StepOrigin::Offsets => {
                return Err(
                    "retry.schedule does not ascend; allowed are ascending offsets from the first attempt".into()
                );
            }
        }
        positive("retry.repeat", *repeat)?;
        if !(0.0..=1.0).contains(jitter_share) {
            return Err(format!("retry.jitter_share is {jitter_share}; allowed is a number from 0 to 1"));
        }
        Ok(())
    }
}

impl SettingRange {
    fn check(self, key: &str) -> Result<(), String> {
        let Self { min, max, default } = self;
        if 1 <= min && min <= default && default <= max {
            return Ok(());
        }
        Err(format!("{key} has min {min}, default {default}, max {max}; allowed is 1 <= min <= default <= max"))
    }
}

/// The rules of an edition as they hold for one subscription.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionTerms<'a> {
    /// Those of its kind of destination.
    pub rules: &'a FailureRules,
    /// Whether what it gives up becomes a dead letter.
    pub dead_letter: bool,
}

impl FailureRules {
    /// How a request ends without a status: no answer, or a destination without HTTP that says so. What else there is,
    /// is our own doing.
    const WITHOUT_STATUS: [Outcome; 9] = [
        Outcome::TimedOut,
        Outcome::SocketError,
        Outcome::ResolutionError,
        Outcome::GenericError,
        Outcome::NotFound,
        Outcome::Disabled,
        Outcome::Full,
        Outcome::SessionQueueNotSupported,
        Outcome::InvalidAzureFunctionDestination,
    ];

    /// As they hold for a subscription that has a place for dead letters, or none.
    pub fn terms(&self, dead_letter: bool) -> SubscriptionTerms<'_> {
        SubscriptionTerms { rules: self, dead_letter }
    }

    fn check(&self, key: &str) -> Result<(), String> {
        let Self {
            never_retried,
            never_retried_with_dead_letter: with,
            never_retried_without_status,
            waits,
            otherwise: _,
        } = self;
        for status in never_retried.iter().chain(with).chain(waits.keys()) {
            let failure = (100..=599).contains(status) && Outcome::of_status(*status) != Outcome::Delivered;
            if !failure {
                return Err(format!("{key} speaks of status {status}; allowed are 100 to 599 without 200 to 204"));
            }
        }
        if let Some(both) = never_retried.iter().find(|status| waits.contains_key(status)) {
            return Err(format!("{key} has a wait for status {both} and never retries it; allowed is one of the two"));
        }
        if let Some(both) = never_retried.iter().find(|status| with.contains(status)) {
            return Err(format!(
                "{key} has status {both} in both lists of what is never retried; allowed is one of them"
            ));
        }
        if let Some(other) = never_retried_without_status.iter().find(|outcome| !Self::WITHOUT_STATUS.contains(outcome))
        {
            let allowed = Self::WITHOUT_STATUS.map(|outcome| outcome.to_string()).join(", ");
            return Err(format!("{key}.never_retried_without_status names {other}; allowed are {allowed}"));
        }
        Ok(())
    }
}

impl ProbationRules {
    fn check(&self) -> Result<(), String> {
        let Self { after_failures, failure_share, window, requests_min, durations, otherwise, longest } = self;
        for (key, count) in [("after_failures", after_failures), ("requests_min", requests_min)] {
            if *count == 0 {
                return Err(format!("probation.{key} is 0; allowed is 1 or more"));
            }
        }
        share("probation.failure_share", *failure_share)?;
        if *window < Duration::from_secs(1) {
            let window = humantime_serde::re::humantime::format_duration(*window);
            return Err(format!("probation.window is {window}; allowed is 1s or more"));
        }
        if durations.contains_key(&Outcome::Delivered) {
            return Err("probation.durations names Delivered; allowed are outcomes of a failure".to_owned());
        }
        for (outcome, duration) in durations {
            positive(&format!("probation.durations.{outcome}"), *duration)?;
        }
        positive("probation.otherwise", *otherwise)?;
        let most = durations.values().chain([otherwise]).max().copied().unwrap_or_default();
        if *longest < most {
            let [longest, most] = [*longest, most].map(humantime_serde::re::humantime::format_duration);
            return Err(format!("probation.longest is {longest}; allowed is {most}, the longest duration, or more"));
        }
        Ok(())
    }
}

impl PaceRules {
    fn check(&self) -> Result<(), String> {
        let Self { start_share, climb, growth_share, over_share, .. } = self;
        let Self { after_failure_share, tolerated_share, least, forgotten_after, .. } = self;
        share("pace.start_share", *start_share)?;
        positive("pace.climb", *climb)?;
        share("pace.growth_share", *growth_share)?;
        if !(1.0..=10.0).contains(over_share) {
            return Err(format!("pace.over_share is {over_share}; allowed is a number from 1 to 10"));
        }
        share("pace.after_failure_share", *after_failure_share)?;
        if !(0.0..=1.0).contains(tolerated_share) {
            return Err(format!("pace.tolerated_share is {tolerated_share}; allowed is a number from 0 to 1"));
        }
        if !(0.001..=1000.0).contains(least) {
            return Err(format!("pace.least is {least}; allowed is a number from 0.001 to 1000, requests in a second"));
        }
        positive("pace.forgotten_after", *forgotten_after)
    }
}

impl DeadLetterRules {
    fn check(&self) -> Result<(), String> {
        if self.retry.is_empty() {
            return Err("dead_letter.retry is empty; allowed is one duration or more".to_owned());
        }
        self.retry.iter().try_for_each(|wait| positive("dead_letter.retry", *wait))
    }
}

fn share(key: &str, share: f64) -> Result<(), String> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    Err(format!("{key} is {share}; allowed is a number above 0, 1 at most"))
}

fn positive(key: &str, duration: Duration) -> Result<(), String> {
    if duration.is_zero() {
        return Err(format!("{key} is 0; allowed is a duration longer than nothing"));
    }
    Ok(())
}

type EditionFile = humantime_serde::Serde<Duration>;

fn durations<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Duration>, D::Error> {
    Ok(Vec::<EditionFile>::deserialize(from)?.into_iter().map(EditionFile::into_inner).collect())
}

fn durations_by<'de, D, K>(from: D) -> Result<BTreeMap<K, Duration>, D::Error>
where
    D: serde::Deserializer<'de>,
    K: Deserialize<'de> + Ord,
{
    let written = BTreeMap::<K, EditionFile>::deserialize(from)?;
    Ok(written.into_iter().map(|(key, duration)| (key, duration.into_inner())).collect())
}
