//! Keys of `meta`: a kind and a name. Names are text, except those of floors and losses.

use std::ops::Range;

use super::{Field, KeyKind, prefix_range, range_of, start};
use gridhook_event::{
    Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, codec::RecordReader,
};

/// Prefix of the names of jobs that remove the records of a deleted subscription.
const REAP: &str = "reap";

/// Prefix of the names of jobs that have ended.
const ENDED: &str = "ended";

/// The second byte of a key of `meta`. A byte is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MetaKind {
    /// The version of the store's format.
    Format = 1,
    /// A topic; named by its name.
    Topic = 2,
    /// An event subscription; named by the names of its topic and its own.
    Subscription = 3,
    /// The counters from which ids are assigned.
    Numbers = 4,
    /// The writer's state of a partition; named by its number.
    Floor = 5,
    /// The dead-letter actor's totals and the file that it is writing.
    DeadLetters = 6,
    /// A replay or redrive that has ended, or the job that removes the records of a deleted
    /// subscription. Running replays and redrives are in their subscription's cursor.
    Job = 7,
    /// A subscription whose endpoint is not validated yet; named by the names of its topic and its
    /// own.
    Proposal = 8,
    /// A topic of a domain; named by the names of both.
    DomainTopic = 9,
    /// A version of a subscription's filter; named by partition, subscription and version.
    Filter = 10,
    /// The progress of a redrive; named by its subscription and its lane.
    Redrive = 11,
    /// A namespace; named by its name.
    Namespace = 12,
    /// A secret of the server; named by its purpose.
    Secret = 13,
    /// A named token; named by its name in lower case.
    Token = 14,
    /// A record of the audit trail; named by its number.
    Audit = 15,
    /// A resource group that was created by itself; named by the Azure subscription and its own
    /// name.
    ResourceGroup = 16,
    /// A deployment of a template; named by its resource group's key and its own name.
    Deployment = 17,
    /// The template of a deployment; named like the deployment.
    DeploymentTemplate = 18,
    /// A session of a signed-in browser; named by the digest of its secret.
    Session = 19,
    /// Events that an operator accepted as lost; named by partition and first sequence.
    Loss = 20,
    /// The position up to which the store has applied its changelog.
    Applied = 30,
    /// The position up to which a shard has followed the control plane of its cluster, in its
    /// changelog.
    Followed = 31,
}

impl MetaKind {
    pub const ALL: [Self; 22] = [
        Self::Format,
        Self::Topic,
        Self::Subscription,
        Self::Numbers,
        Self::Floor,
        Self::DeadLetters,
        Self::Job,
        Self::Proposal,
        Self::DomainTopic,
        Self::Filter,
        Self::Redrive,
        Self::Namespace,
        Self::Secret,
        Self::Token,
        Self::Audit,
        Self::ResourceGroup,
        Self::Deployment,
        Self::DeploymentTemplate,
        Self::Session,
        Self::Loss,
        Self::Applied,
        Self::Followed,
    ];
}

/// The key of a record in `meta`.
pub fn meta_key(kind: MetaKind, name: &[u8]) -> Vec<u8> {
    let mut key = start(KeyKind::Meta, kind as u8);
    key.extend_from_slice(name);
    key
}

pub fn parse_meta(key: &[u8]) -> Option<(MetaKind, &[u8])> {
    let (kind, name) = key.strip_prefix(&[KeyKind::Meta as u8])?.split_first()?;
    let kind = MetaKind::ALL
        .into_iter()
        .find(|known| *known as u8 == *kind)?;
    Some((kind, name))
}

pub fn meta_of(kind: MetaKind) -> Range<Vec<u8>> {
    prefix_range(KeyKind::Meta, kind as u8)
}

/// The key of the writer's state of a partition, in `meta`.
pub fn floor_key(partition: PartitionId) -> Vec<u8> {
    meta_key(MetaKind::Floor, &partition.0.to_be_bytes())
}

pub fn parse_floor(key: &[u8]) -> Option<PartitionId> {
    let (kind, name) = parse_meta(key)?;
    let name = name.try_into().ok()?;
    (kind == MetaKind::Floor).then_some(PartitionId(u32::from_be_bytes(name)))
}

/// The key of a range of events that an operator accepted as lost, in `meta`.
pub fn loss_key(partition: PartitionId, first: Seq) -> Vec<u8> {
    let mut name = Vec::new();
    (partition, first).append_to_key(&mut name);
    meta_key(MetaKind::Loss, &name)
}

/// The value of [`loss_key`]: the sequence after the last lost event.
pub fn loss_value(end: Seq) -> Vec<u8> {
    end.0.to_be_bytes().to_vec()
}

pub fn parse_loss(key: &[u8], value: &[u8]) -> Option<(PartitionId, Seq, Seq)> {
    let (kind, name) = parse_meta(key)?;
    let mut name = RecordReader::new(name);
    let mut value = RecordReader::new(value);
    let lost = (
        PartitionId::take_from_key(&mut name)?,
        Seq::take_from_key(&mut name)?,
        Seq::take_from_key(&mut value)?,
    );
    (kind == MetaKind::Loss && name.is_empty() && value.is_empty()).then_some(lost)
}

/// The key of the job that removes the records of a deleted subscription.
pub fn reap_key(subscription_key: SubscriptionKey) -> Vec<u8> {
    meta_key(
        MetaKind::Job,
        format!(
            "{REAP}/{}/{}",
            subscription_key.partition.0, subscription_key.subscription.0
        )
        .as_bytes(),
    )
}

pub fn parse_reap(key: &[u8]) -> Option<SubscriptionKey> {
    let (_, name) = parse_meta(key)?;
    let mut parts = std::str::from_utf8(name).ok()?.split('/');
    if parts.next() != Some(REAP) {
        return None;
    }
    let mut number = || parts.next()?.parse().ok();
    Some(SubscriptionKey {
        partition: PartitionId(number()?),
        subscription: SubscriptionId(number()?),
    })
}

/// The range of the jobs that remove the records of deleted subscriptions.
pub fn reaps_range() -> Range<Vec<u8>> {
    range_of(meta_key(MetaKind::Job, format!("{REAP}/").as_bytes()))
}

/// The name of the totals of a subscription's dead letters.
pub fn dead_letters_name(subscription_key: SubscriptionKey) -> String {
    format!(
        "{}/{}",
        subscription_key.partition.0, subscription_key.subscription.0
    )
}

/// The key of the totals of a subscription's dead letters.
pub fn dead_letters(subscription_key: SubscriptionKey) -> Vec<u8> {
    meta_key(
        MetaKind::DeadLetters,
        dead_letters_name(subscription_key).as_bytes(),
    )
}

/// The name of the progress record of a redrive.
pub fn redrive_name(subscription_key: SubscriptionKey, lane: Lane) -> String {
    format!(
        "{}/{}/{}",
        subscription_key.partition.0, subscription_key.subscription.0, lane.0
    )
}

pub fn parse_redrive_name(name: &str) -> Option<(SubscriptionKey, Lane)> {
    let (partition, rest) = name.split_once('/')?;
    let (subscription, lane) = rest.split_once('/')?;
    let partition = PartitionId(partition.parse().ok()?);
    let subscription_key = SubscriptionKey {
        partition,
        subscription: SubscriptionId(subscription.parse().ok()?),
    };
    Some((subscription_key, Lane(lane.parse().ok()?)))
}

/// The key of the progress record of a redrive.
pub fn redrive_key(subscription_key: SubscriptionKey, lane: Lane) -> Vec<u8> {
    meta_key(
        MetaKind::Redrive,
        redrive_name(subscription_key, lane).as_bytes(),
    )
}

pub fn ended_job(subscription_key: SubscriptionKey, lane: Lane) -> Vec<u8> {
    // Zero-padded, so that names sort like lanes.
    let mut key = ended_jobs_of(subscription_key).start;
    key.extend_from_slice(format!("{:05}", lane.0).as_bytes());
    key
}

/// The range of a subscription's jobs that have ended.
pub fn ended_jobs_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    let name = format!(
        "{ENDED}/{}/{}/",
        subscription_key.partition.0, subscription_key.subscription.0
    );
    range_of(meta_key(MetaKind::Job, name.as_bytes()))
}

/// The name of a version of a subscription's filter in `meta`. Names sort like versions.
pub fn filter_name(
    SubscriptionKey {
        partition,
        subscription,
    }: SubscriptionKey,
    version: u32,
) -> String {
    format!("{:08x}/{:08x}/{version:08x}", partition.0, subscription.0)
}

/// The prefix of the names of all filter versions of a subscription.
pub fn filters_of(
    SubscriptionKey {
        partition,
        subscription,
    }: SubscriptionKey,
) -> String {
    format!("{:08x}/{:08x}/", partition.0, subscription.0)
}

/// The prefix of the names of all filter versions in a partition.
pub fn filters_of_partition(partition: PartitionId) -> String {
    format!("{:08x}/", partition.0)
}

pub fn parse_filter_name(name: &str) -> Option<(SubscriptionKey, u32)> {
    let mut parts = name
        .split('/')
        .map(|part| u32::from_str_radix(part, 16).ok());
    let mut number = || parts.next().flatten();
    let subscription_key = SubscriptionKey {
        partition: PartitionId(number()?),
        subscription: SubscriptionId(number()?),
    };
    let filter_name = (subscription_key, number()?);
    parts.next().is_none().then_some(filter_name)
}
