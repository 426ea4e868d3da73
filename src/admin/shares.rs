//! Shares in what there is a limited number of: one caller cannot take all of it, and the last part
//! is for administrators.
//!
//! An administrator is a caller with the role `admin` for the whole server. Administrators have no
//! share of their own: together they can use everything.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{AdminError, arm::Call, permissions::Permissions};
use crate::AdminResult;
use gridhook_engine::control::registry::TopicHandle;
use gridhook_policy::record::job::JOBS_MAX;
use gridhook_record::subscription::SystemData;

/// A caller, as shares are counted.
pub(super) struct Holder {
    pub(super) key: String,
    pub(super) is_administrator: bool,
}

/// The number of `max` that only administrators can use.
const fn reserved_count(max: usize) -> usize {
    max / 8
}

/// Things that callers hold for some time, such as streams.
pub(super) struct CallerShares {
    max: usize,
    held: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl CallerShares {
    /// All callers together can hold `max` things.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            held: Arc::default(),
        }
    }

    /// Takes one share. A caller can hold a quarter of all.
    pub(super) fn take_share(&self, holder: &Holder) -> Option<Share> {
        let mut held = self.held.lock();
        let total: usize = held.values().sum();
        let own = held.get(&holder.key).copied().unwrap_or_default();
        let has_room = total < self.max - reserved_count(self.max) && own < self.max / 4;
        if total >= self.max || !(holder.is_administrator || has_room) {
            return None;
        }
        held.insert(holder.key.clone(), own + 1);
        Some(Share {
            held: Arc::clone(&self.held),
            key: holder.key.clone(),
        })
    }
}

/// One share, given back when it is dropped.
pub(super) struct Share {
    held: Arc<Mutex<BTreeMap<String, usize>>>,
    key: String,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        match held.get_mut(&self.key) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(held.remove(&self.key)),
        }
    }
}

/// Checks that the caller may create a topic, a domain or a topic of a namespace.
pub(super) fn check_new_topic(call: Call<'_>) -> AdminResult<()> {
    let registry = &call.control.registry;
    check_creation(
        call.permissions,
        "topics and domains",
        registry.rules().topics_max,
        || registry.list_topics(),
        |topic| topic.record().system_data.clone(),
    )
}

/// Checks that the caller may create a namespace.
pub(super) fn check_new_namespace(call: Call<'_>) -> AdminResult<()> {
    let registry = &call.control.registry;
    check_creation(
        call.permissions,
        "namespaces",
        registry.rules().topics_max,
        || registry.list_namespaces(),
        |record| record.system_data.clone(),
    )
}

/// Checks that the caller may create a topic of this domain.
pub(super) fn check_new_domain_topic(call: Call<'_>, domain: &TopicHandle) -> AdminResult<()> {
    check_creation(
        call.permissions,
        "topics of the domain",
        call.control.registry.rules().domain_topics_max,
        || domain.domain_topics(),
        |topic| topic.system_data.clone(),
    )
}

/// Checks that the caller may create an event subscription of this topic.
pub(super) fn check_new_subscription(call: Call<'_>, topic: &TopicHandle) -> AdminResult<()> {
    let registry = &call.control.registry;
    check_creation(
        call.permissions,
        "event subscriptions of the topic",
        registry.rules().subscriptions_max,
        || registry.all_provisioned(topic),
        |one| one.record.system_data.clone(),
    )
}

/// Checks that the caller may create one more of `max` resources: half of all are for one caller
/// who is no administrator.
fn check_creation<R>(
    permissions: &Permissions,
    what: &str,
    max: usize,
    list: impl FnOnce() -> Vec<R>,
    system_data: impl Fn(&R) -> Option<SystemData>,
) -> AdminResult<()> {
    if permissions.is_administrator() {
        return Ok(());
    }
    let existing = list();
    let all = existing.len();
    let reserved = reserved_count(max);
    if all >= max - reserved {
        return Err(AdminError::Conflict(format!(
            "There are {all} {what}, and the last {reserved} of {max} are for administrators of \
             the whole server."
        )));
    }
    let half = max.div_ceil(2);
    let is_own = |resource: &&R| permissions.has_created(system_data(resource).as_ref());
    let own = existing.iter().filter(is_own).count();
    if own >= half {
        return Err(AdminError::Conflict(format!(
            "The caller has created {own} {what}; one that is no administrator of the whole \
             server can create {half} of {max}."
        )));
    }
    Ok(())
}

/// Checks that the caller may start a job of an event subscription.
pub(super) async fn check_new_job(
    call: Call<'_>,
    topic: &str,
    subscription: &str,
) -> AdminResult<()> {
    if call.permissions.is_administrator() {
        return Ok(());
    }
    let jobs = call.control.registry.read_jobs(topic, subscription).await?;
    let active = jobs.iter().filter(|job| !job.state.has_ended()).count();
    let reserved = reserved_count(JOBS_MAX);
    if active >= JOBS_MAX - reserved {
        return Err(AdminError::Conflict(format!(
            "{active} jobs of this event subscription run or are paused, and {reserved} of \
             {JOBS_MAX} are reserved for administrators of the whole server; cancel one."
        )));
    }
    Ok(())
}
