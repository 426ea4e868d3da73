//! One edition of the delivery policy as data: the retry schedule, the meaning of statuses, the
//! durations of probation.
//!
//! The numbers and their sources are in `config/editions/*.toml`. `config` reads a file, adds its
//! base and calls [`Edition::validate`] once; the policy relies on what it checks.
//!
//! What it does not do: it computes nothing, has no defaults (a file and its base contain
//! everything), and does not know the name of an edition, so that no branch can depend on it.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use crate::outcome::{Failure, Outcome};

/// Why an edition, or the own schedule of an event subscription, is refused: the key, its value,
/// and what is allowed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum InvalidEdition {
    #[error(
        "retryPolicy.schedule[{index}] is \"{text}\"; expected a wait from 1s to 7d, such as 30s"
    )]
    Wait { index: usize, text: String },
    #[error(
        "retryPolicy.schedule has {0} waits; expected 1 to {max}",
        max = RetrySchedule::WAITS_MAX
    )]
    WaitCount(usize),
    #[error("{key} is empty; expected one {unit} or more")]
    Empty {
        key: &'static str,
        unit: &'static str,
    },
    #[error("retry.schedule does not ascend; expected ascending offsets from the first attempt")]
    Descending,
    #[error("{key} is {value}; expected {allowed}")]
    Value {
        key: String,
        value: String,
        allowed: String,
    },
    #[error(
        "{key} has min {}, default {}, max {}; expected 1 <= min <= default <= max",
        .range.min,
        .range.default,
        .range.max
    )]
    Range { key: String, range: SettingRange },
    #[error("{key} names status {status}; expected 100 to 599 without 200 to 204")]
    Status { key: String, status: u16 },
    #[error("{key} has a wait for status {status} and never retries it; expected one of the two")]
    WaitForFinalStatus { key: String, status: u16 },
    #[error(
        "{key} has status {status} in both lists of what is never retried; expected one of them"
    )]
    StatusTwice { key: String, status: u16 },
    #[error(
        "{key}.never_retried_without_status names {failure}; expected one of {}",
        FailureRules::WITHOUT_STATUS.map(|failure| failure.to_string()).join(", ")
    )]
    FailureWithStatus { key: String, failure: Failure },
}

impl InvalidEdition {
    fn value(
        key: impl Into<String>,
        value: impl ToString,
        allowed: impl Into<String>,
    ) -> Result<(), Self> {
        Err(Self::Value {
            key: key.into(),
            value: value.to_string(),
            allowed: allowed.into(),
        })
    }
}

/// An edition of the delivery policy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edition {
    /// When a failed event is tried again.
    pub retry: RetrySchedule,
    /// The range of `maxDeliveryAttempts`, which includes the first attempt.
    pub attempts: SettingRange,
    /// The range of `eventTimeToLiveInMinutes`, which counts from the publish.
    pub time_to_live_minutes: SettingRange,
    /// Webhooks: the meaning of a status.
    pub webhook: FailureRules,
    /// All other kinds of destination: the meaning of a status.
    pub resource: FailureRules,
    /// When an endpoint is suspended, and for how long.
    pub probation: ProbationRules,
    /// The rate for an endpoint that failed recently.
    pub pace: PaceRules,
    /// When dead letters are written, and how long that is tried.
    pub dead_letter: DeadLetterRules,
}

/// When a failed event is due again: a list of steps, and what follows the last.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrySchedule {
    /// The steps after the first, second, third failure: never empty, never zero, ascending if they
    /// are offsets.
    #[serde(deserialize_with = "parse_durations")]
    pub schedule: Vec<Duration>,
    /// The origin of a step.
    pub steps: StepOrigin,
    /// The wait between attempts after the last step; never zero.
    #[serde(with = "humantime_serde")]
    pub repeat: Duration,
    /// Maximum share of a wait that jitter adds, from 0 to 1.
    pub jitter_share: f64,
    /// Maximum time that jitter adds.
    #[serde(with = "humantime_serde")]
    pub jitter_max: Duration,
    /// Maximum wait that an endpoint can request with `Retry-After`.
    #[serde(with = "humantime_serde")]
    pub retry_after_max: Duration,
}

/// The origin of the steps of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepOrigin {
    /// The previous failure: a step is the wait after it.
    Delays,
    /// The first attempt: a step is the time since it.
    Offsets,
}

/// The range of a setting and its default: `1 <= min <= default <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingRange {
    /// The smallest value that is accepted.
    pub min: u32,
    /// The largest value that is accepted.
    pub max: u32,
    /// The value of a subscription that does not set it.
    pub default: u32,
}

/// The kinds of destination that editions distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// A URL of the subscriber.
    Webhook,
    /// All others: queues, hubs, functions.
    Resource,
}

/// The meaning of a failure for one kind of destination. The lists do not contradict each other,
/// and name failures only.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureRules {
    /// Statuses after which an event is given up at once.
    pub never_retried: Vec<u16>,
    /// Statuses after which an event is given up at once if it becomes a dead letter. Without a
    /// dead-letter destination it is tried again, after the wait of the status.
    pub never_retried_with_dead_letter: Vec<u16>,
    /// Failures without a status after which an event is given up at once.
    pub never_retried_without_status: Vec<Failure>,
    /// The minimum wait after a status.
    #[serde(deserialize_with = "durations_by")]
    pub waits: BTreeMap<u16, Duration>,
    /// The minimum wait after any other failure.
    #[serde(with = "humantime_serde")]
    pub otherwise: Duration,
}

/// When an endpoint is suspended, and for how long.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbationRules {
    /// Consecutive failed requests that suspend it: at least one.
    pub after_failures: u32,
    /// The share of failed requests that suspends it too: above 0, at most 1.
    pub failure_share: f64,
    /// The time over which the share of failures and the rate of successes are measured: at least one
    /// second.
    #[serde(with = "humantime_serde")]
    pub window: Duration,
    /// The fewest requests in the window of which the share counts: at least one.
    pub requests_min: u32,
    /// The duration by the failure that caused it; never zero.
    #[serde(deserialize_with = "durations_by")]
    pub durations: BTreeMap<Failure, Duration>,
    /// The duration for any other failure; never zero.
    #[serde(with = "humantime_serde")]
    pub otherwise: Duration,
    /// The maximum that failed probes double it to: at least the longest duration above.
    #[serde(with = "humantime_serde")]
    pub longest: Duration,
}

/// The rate of requests for an endpoint that failed recently. Its last healthy rate is the mean
/// rate of successes in the last window without probation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceRules {
    /// The share of the last healthy rate that the backlog and retries have at the end of
    /// probation: above 0, at most 1.
    pub start_share: f64,
    /// The time in which the rate grows to the last healthy rate while requests succeed.
    #[serde(with = "humantime_serde")]
    pub climb: Duration,
    /// The share by which the rate then grows in each second without failure.
    pub growth_share: f64,
    /// The rate never exceeds this multiple of the larger of the last healthy rate and the present
    /// rate of successes: at least 1.
    pub over_share: f64,
    /// A failure reduces the rate to this share of the accepted rate: above 0, at most 1.
    pub after_failure_share: f64,
    /// The share of failed requests that does not count as overload. Busy (429, 503) always does.
    pub tolerated_share: f64,
    /// The minimum rate in requests per second: above 0.
    pub least: f64,
    /// The time without failures after which the pace ends; never zero.
    #[serde(with = "humantime_serde")]
    pub forgotten_after: Duration,
}

/// When dead letters are written, and how long that is tried.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterRules {
    /// The wait between giving up and writing the file.
    #[serde(with = "humantime_serde")]
    pub delay: Duration,
    /// The layout of the file.
    pub layout: FileLayout,
    /// The waits after the first, second, third failed write to a store; the last one repeats.
    /// Never empty, none zero.
    #[serde(deserialize_with = "parse_durations")]
    pub retry: Vec<Duration>,
    /// How long a store may be unreachable before an event is dropped.
    #[serde(with = "humantime_serde")]
    pub outage_window: Duration,
    /// Maximum days that a subscription may set instead; 0 if it may not.
    pub retry_period_days_max: u32,
    /// Whether an event is dropped at once if the store reports that the container does not exist.
    pub drop_where_not_found: bool,
}

/// The layouts of dead-letter files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileLayout {
    /// Topics: each event with the dead-letter properties among its own.
    Basic,
    /// Namespaces: each event next to its dead-letter properties.
    Namespace,
}

impl Edition {
    /// The rules for this kind of destination.
    pub fn rules_for(&self, kind: EndpointKind) -> &FailureRules {
        match kind {
            EndpointKind::Webhook => &self.webhook,
            EndpointKind::Resource => &self.resource,
        }
    }

    /// Checks the edition. The error names the key, its value and what is allowed.
    pub fn validate(&self) -> Result<(), InvalidEdition> {
        self.retry.validate()?;
        self.attempts.validate("attempts")?;
        self.time_to_live_minutes.validate("time_to_live_minutes")?;
        self.webhook.validate("webhook")?;
        self.resource.validate("resource")?;
        self.probation.validate()?;
        self.pace.validate()?;
        self.dead_letter.validate()
    }
}

impl RetrySchedule {
    /// Maximum number of waits of a schedule of one subscription.
    const WAITS_MAX: usize = 50;

    /// This schedule with other waits, as text; the last one repeats.
    ///
    /// # Errors
    /// If there are too few or too many, or one is out of range.
    pub fn with_waits(&self, waits: &[String]) -> Result<Self, InvalidEdition> {
        let mut schedule = Vec::new();
        for (index, text) in waits.iter().enumerate() {
            schedule.push(parse_wait(text).ok_or_else(|| InvalidEdition::Wait {
                index,
                text: text.escape_debug().to_string(),
            })?);
        }
        match schedule.last() {
            Some(last) if schedule.len() <= Self::WAITS_MAX => Ok(Self {
                repeat: *last,
                steps: StepOrigin::Delays,
                schedule,
                ..self.clone()
            }),
            _ => Err(InvalidEdition::WaitCount(waits.len())),
        }
    }

    /// The waits between attempts. The last one repeats.
    pub fn waits(&self) -> Vec<Duration> {
        let mut waits = self.schedule.clone();
        if self.steps == StepOrigin::Offsets {
            let former = [Duration::ZERO].into_iter().chain(self.schedule.clone());
            for (wait, former) in waits.iter_mut().zip(former) {
                *wait = wait.saturating_sub(former);
            }
        }
        if waits.last() != Some(&self.repeat) {
            waits.push(self.repeat);
        }
        waits
    }

    fn validate(&self) -> Result<(), InvalidEdition> {
        let Self {
            schedule,
            steps,
            repeat,
            jitter_share,
            jitter_max: _,
            retry_after_max: _,
        } = self;
        if schedule.is_empty() {
            return Err(InvalidEdition::Empty {
                key: "retry.schedule",
                unit: "step",
            });
        }
        for step in schedule {
            check_positive("retry.schedule", *step)?;
        }
        match steps {
            StepOrigin::Delays => {}
            StepOrigin::Offsets if schedule.is_sorted_by(|a, b| a < b) => {}
            StepOrigin::Offsets => return Err(InvalidEdition::Descending),
        }
        check_positive("retry.repeat", *repeat)?;
        check_number("retry.jitter_share", *jitter_share, 0.0, 1.0)
    }
}

impl SettingRange {
    fn validate(self, key: &str) -> Result<(), InvalidEdition> {
        let Self { min, max, default } = self;
        if 1 <= min && min <= default && default <= max {
            return Ok(());
        }
        Err(InvalidEdition::Range {
            key: key.to_owned(),
            range: self,
        })
    }
}

/// The rules of an edition for one subscription.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionTerms<'a> {
    /// The rules of its kind of destination.
    pub rules: &'a FailureRules,
    /// Whether events it gives up become dead letters.
    pub dead_letter: bool,
}

impl FailureRules {
    /// Failures without an HTTP status: no response, or a destination without HTTP reports it.
    const WITHOUT_STATUS: [Failure; 9] = [
        Failure::TimedOut,
        Failure::SocketError,
        Failure::ResolutionError,
        Failure::GenericError,
        Failure::NotFound,
        Failure::Disabled,
        Failure::Full,
        Failure::SessionQueueNotSupported,
        Failure::InvalidAzureFunctionDestination,
    ];

    /// The rules for a subscription with or without a dead-letter destination.
    pub fn terms_for(&self, dead_letter: bool) -> SubscriptionTerms<'_> {
        SubscriptionTerms {
            rules: self,
            dead_letter,
        }
    }

    fn validate(&self, key: &str) -> Result<(), InvalidEdition> {
        let Self {
            never_retried,
            never_retried_with_dead_letter: with,
            never_retried_without_status,
            waits,
            otherwise: _,
        } = self;
        for status in never_retried.iter().chain(with).chain(waits.keys()) {
            let failure =
                (100..=599).contains(status) && Outcome::from_status(*status) != Outcome::Delivered;
            if !failure {
                return Err(InvalidEdition::Status {
                    key: key.to_owned(),
                    status: *status,
                });
            }
        }
        if let Some(both) = never_retried
            .iter()
            .find(|status| waits.contains_key(status))
        {
            return Err(InvalidEdition::WaitForFinalStatus {
                key: key.to_owned(),
                status: *both,
            });
        }
        if let Some(both) = never_retried.iter().find(|status| with.contains(status)) {
            return Err(InvalidEdition::StatusTwice {
                key: key.to_owned(),
                status: *both,
            });
        }
        if let Some(other) = never_retried_without_status
            .iter()
            .find(|failure| !Self::WITHOUT_STATUS.contains(failure))
        {
            return Err(InvalidEdition::FailureWithStatus {
                key: key.to_owned(),
                failure: *other,
            });
        }
        Ok(())
    }
}

impl ProbationRules {
    fn validate(&self) -> Result<(), InvalidEdition> {
        let Self {
            after_failures,
            failure_share,
            window,
            requests_min,
            durations,
            otherwise,
            longest,
        } = self;
        for (key, count) in [
            ("after_failures", after_failures),
            ("requests_min", requests_min),
        ] {
            if *count == 0 {
                return InvalidEdition::value(format!("probation.{key}"), 0, "1 or more");
            }
        }
        check_share("probation.failure_share", *failure_share)?;
        if *window < Duration::from_secs(1) {
            let window = humantime_serde::re::humantime::format_duration(*window);
            return InvalidEdition::value("probation.window", window, "1s or more");
        }
        for (failure, duration) in durations {
            check_positive(&format!("probation.durations.{failure}"), *duration)?;
        }
        check_positive("probation.otherwise", *otherwise)?;
        let most = durations
            .values()
            .chain([otherwise])
            .max()
            .copied()
            .unwrap_or_default();
        if *longest < most {
            let [longest, most] =
                [*longest, most].map(humantime_serde::re::humantime::format_duration);
            let allowed = format!("{most}, the longest duration, or more");
            return InvalidEdition::value("probation.longest", longest, allowed);
        }
        Ok(())
    }
}

impl PaceRules {
    fn validate(&self) -> Result<(), InvalidEdition> {
        let Self {
            start_share,
            climb,
            growth_share,
            over_share,
            ..
        } = self;
        let Self {
            after_failure_share,
            tolerated_share,
            least,
            forgotten_after,
            ..
        } = self;
        check_share("pace.start_share", *start_share)?;
        check_positive("pace.climb", *climb)?;
        check_share("pace.growth_share", *growth_share)?;
        check_number("pace.over_share", *over_share, 1.0, 10.0)?;
        check_share("pace.after_failure_share", *after_failure_share)?;
        check_number("pace.tolerated_share", *tolerated_share, 0.0, 1.0)?;
        if !(0.001..=1000.0).contains(least) {
            let allowed = "a number from 0.001 to 1000, requests in a second";
            return InvalidEdition::value("pace.least", least, allowed);
        }
        check_positive("pace.forgotten_after", *forgotten_after)
    }
}

impl DeadLetterRules {
    fn validate(&self) -> Result<(), InvalidEdition> {
        if self.retry.is_empty() {
            return Err(InvalidEdition::Empty {
                key: "dead_letter.retry",
                unit: "duration",
            });
        }
        self.retry
            .iter()
            .try_for_each(|wait| check_positive("dead_letter.retry", *wait))
    }
}

fn check_share(key: &str, share: f64) -> Result<(), InvalidEdition> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    InvalidEdition::value(key, share, "a number above 0, 1 at most")
}

fn check_number(key: &str, number: f64, min: f64, max: f64) -> Result<(), InvalidEdition> {
    if (min..=max).contains(&number) {
        return Ok(());
    }
    InvalidEdition::value(key, number, format!("a number from {min} to {max}"))
}

/// A wait from a second to a week.
fn parse_wait(text: &str) -> Option<Duration> {
    let wait = humantime_serde::re::humantime::parse_duration(text).ok()?;
    let range = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 60 * 60);
    range.contains(&wait).then_some(wait)
}

fn check_positive(key: &str, duration: Duration) -> Result<(), InvalidEdition> {
    if duration.is_zero() {
        return InvalidEdition::value(key, 0, "a duration longer than nothing");
    }
    Ok(())
}

type HumanDuration = humantime_serde::Serde<Duration>;

fn parse_durations<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Duration>, D::Error> {
    Ok(Vec::<HumanDuration>::deserialize(from)?
        .into_iter()
        .map(HumanDuration::into_inner)
        .collect())
}

fn durations_by<'de, D, K>(from: D) -> Result<BTreeMap<K, Duration>, D::Error>
where
    D: serde::Deserializer<'de>,
    K: Deserialize<'de> + Ord,
{
    let written = BTreeMap::<K, HumanDuration>::deserialize(from)?;
    Ok(written
        .into_iter()
        .map(|(key, duration)| (key, duration.into_inner()))
        .collect())
}
