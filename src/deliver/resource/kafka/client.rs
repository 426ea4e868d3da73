//! The Kafka producer: idempotent, over the connections of [`cluster`].
//!
//! - A request is repeated at most for [`RETRIES_MAX`] while it is known that the broker did not
//!   take it; then it fails, and the subscription decides. After a failure the connections are made
//!   anew.
//! - If the response is lost, the broker may have the records. The request is then repeated with
//!   the same sequence number until the time limit of the response, and the broker drops what it
//!   has already.
//! - So a partition has one request at a time. A request that ends without a response ends the
//!   session of the partition: the next one has a new producer id.
//! - The client does not authenticate again on an open connection (KIP-368), and a broker closes
//!   connections whose token has expired. So new connections are made with each new access token of
//!   the server's identity, which is fetched ahead of that time.

mod cluster;
mod protocol;
mod requests;
mod wire;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::future::{LocalBoxFuture, join_all};
use serde_json::Value;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, sleep_until},
};

use self::{
    cluster::{Cluster, Login, OpenTopic, Problem, new_session},
    protocol::BrokerError,
    requests::{Produce, Produced},
    wire::{RECORD_OVERHEAD, RecordBatch, RecordHeaders, Session},
};
use super::ContentMode;
use crate::{
    Batch, Sender, Sent,
    convert::delivered_bytes,
    error::{SenderError, UnreachableError},
    failure::failure_result,
    identity::{AccessToken, TokenFailure},
    request::RequestError,
    resource::{
        EventResults, ResourceTarget, SenderContext, content_type, credential_refused, result_of,
        send_within, unreached_result,
    },
};
use gridhook_event::{Schema, WallTime};
use gridhook_policy::{
    outcome::{Failure, RequestResult},
    property,
};

/// The delivery property that is the key of a record.
const PARTITION_KEY: &str = "PartitionKey";

/// How long a request is repeated that the broker did not take.
const RETRIES_MAX: Duration = Duration::from_secs(2);

/// The pause before the first repetition. It doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A producer for the topic.
pub(super) fn new_producer(
    at: &SenderContext<'_>,
    topic: &str,
    mode: ContentMode,
) -> Result<Rc<dyn Sender>, SenderError> {
    Ok(Rc::new(Producer {
        cluster: Rc::new(Cluster::from_settings(at)?),
        topic: topic.to_owned(),
        mode,
        target: at.target.clone(),
        open: Mutex::new(None),
        partitions: RefCell::default(),
        turn: Cell::new(0),
    }))
}

struct Producer {
    cluster: Rc<Cluster>,
    topic: String,
    mode: ContentMode,
    target: ResourceTarget,
    open: Mutex<Option<Rc<OpenTopic>>>,
    /// The state of each partition by its id. It outlives the connections.
    partitions: RefCell<BTreeMap<i32, Rc<Mutex<PartitionState>>>>,
    /// Counts the batches without a key.
    turn: Cell<usize>,
}

/// The state of a producer in a partition.
#[derive(Default)]
struct PartitionState {
    /// [`None`] if a new producer id is needed.
    session: Option<Session>,
    /// The broker has asked for no requests until this time.
    throttled_until: Option<Instant>,
}

/// The records of a request that go to one partition.
struct PartitionPart {
    records: RecordBatch,
    /// The indexes of the records' events.
    events: Vec<usize>,
}

fn mark_events(events: Vec<usize>, result: &Result<(), RequestResult>, results: &EventResults) {
    for event in events {
        match result {
            Ok(()) => results.mark_accepted(event),
            Err(failed) => results.mark_failed(event, failed),
        }
    }
}

/// The time of a request, and how long it may take.
#[derive(Clone, Copy)]
struct Limit {
    wall: WallTime,
    /// The end of the time limit.
    until: Instant,
}

/// The pauses between the repetitions of a request.
struct Pauses(Duration);

impl Pauses {
    /// Waits until the request is due again. False if that is after `limit`.
    async fn next_by(&mut self, limit: Instant) -> bool {
        let pause = self.0;
        if Instant::now() + pause >= limit {
            return false;
        }
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        sleep(pause).await;
        true
    }
}

impl Problem {
    /// Whether the same request may succeed a moment later.
    fn is_temporary(&self) -> bool {
        match self {
            Self::Connection(_) => true,
            Self::Login(_) | Self::Version(_) | Self::Token(_) => false,
            Self::Broker(error) => {
                matches!(
                    error,
                    BrokerError::BrokerNotAvailable
                    | BrokerError::CoordinatorLoadInProgress
                    | BrokerError::CoordinatorNotAvailable
                    | BrokerError::FencedLeaderEpoch
                    | BrokerError::KafkaStorageError
                    | BrokerError::LeaderNotAvailable
                    | BrokerError::NetworkException
                    | BrokerError::NotCoordinator
                    | BrokerError::NotEnoughReplicas
                    | BrokerError::NotEnoughReplicasAfterAppend
                    | BrokerError::NotLeaderOrFollower
                    | BrokerError::OffsetNotAvailable
                    | BrokerError::ReplicaNotAvailable
                    | BrokerError::RequestTimedOut
                    | BrokerError::UnknownLeaderEpoch
                    // A broker that starts may not know its topics yet.
                    | BrokerError::UnknownTopicOrPartition
                ) || self.ends_session()
            }
        }
    }

    /// Whether the broker no longer knows the producer id, or expects another sequence number.
    fn ends_session(&self) -> bool {
        matches!(
            self,
            Self::Broker(
                BrokerError::InvalidProducerEpoch
                    | BrokerError::InvalidProducerIdMapping
                    | BrokerError::OutOfOrderSequenceNumber
                    | BrokerError::UnknownProducerId
            )
        )
    }

    /// Whether the broker may have the records of a request that was sent.
    fn is_in_doubt(&self) -> bool {
        matches!(
            self,
            Self::Connection(_)
                | Self::Broker(
                    BrokerError::NetworkException
                        | BrokerError::NotEnoughReplicasAfterAppend
                        | BrokerError::RequestTimedOut
                        | BrokerError::UnknownServerError
                )
        )
    }
}

impl Producer {
    /// The connections. They are made if there are none, or if there is a new access token.
    async fn open_topic(&self, wall: WallTime) -> Result<Rc<OpenTopic>, Problem> {
        let mut open = self.open.lock().await;
        let token = match &self.cluster.login {
            Login::Fixed(_) => None,
            Login::Tokens(tokens) => Some(
                tokens
                    .get_token(None, wall)
                    .await
                    .map_err(Problem::Token)?
                    .0,
            ),
        };
        let address = token.as_ref().map(Arc::as_ptr);
        let has_token = |open: &&Rc<OpenTopic>| open.token.as_ref().map(Arc::as_ptr) == address;
        if let Some(open) = open.as_ref().filter(has_token) {
            return Ok(Rc::clone(open));
        }
        let topic = match self.cluster.open(&self.topic, token.clone()).await {
            Ok(opened) => opened,
            Err(problem) => {
                self.forget_refused(&problem, token.as_ref(), wall).await;
                return Err(problem);
            }
        };
        Ok(Rc::clone(open.insert(Rc::new(topic))))
    }

    /// Drops the access token that the broker refused.
    async fn forget_refused(
        &self,
        problem: &Problem,
        token: Option<&Arc<AccessToken>>,
        wall: WallTime,
    ) {
        if let (Login::Tokens(tokens), Some(token), Some(401)) = (
            &self.cluster.login,
            token,
            self.result_for_problem(problem).status,
        ) {
            tokens.discard_token(token, wall).await;
        }
    }

    /// The connections to a topic with partitions. Tries again for a while.
    async fn wait_for_topic(&self, wall: WallTime) -> Result<Rc<OpenTopic>, RequestResult> {
        let limit = Instant::now() + RETRIES_MAX;
        let mut pauses = Pauses(PAUSE);
        loop {
            let problem = match self.open_topic(wall).await {
                Ok(open) if open.partition_count() > 0 => return Ok(open),
                Ok(open) => {
                    self.discard_connections(&open).await;
                    Problem::Broker(BrokerError::UnknownTopicOrPartition)
                }
                Err(problem) => problem,
            };
            if !problem.is_temporary() || !pauses.next_by(limit).await {
                return Err(self.result_for_problem(&problem));
            }
        }
    }

    /// Writes the events, each partition's in one request.
    async fn produce_events(
        &self,
        batch: Batch,
        limit: Limit,
        results: &EventResults,
    ) -> Result<(), RequestResult> {
        let open = self.wait_for_topic(limit.wall).await?;
        let batches = self.encode_records(&batch, open.partition_count());
        let batches =
            batches.map_err(|error| failure_result(Failure::GenericError, error.to_string()))?;
        // The records have the events now.
        drop(batch);
        let writes = batches.into_iter().map(async |(index, part)| {
            let written = self.write(open.partition_id(index), part.records, limit);
            mark_events(part.events, &written.await, results);
        });
        // To the end, although one of them fails: records that arrive after the request was
        // repeated would be out of order.
        join_all(writes).await;
        Ok(())
    }

    /// Writes records to a partition, once even if the response is lost.
    async fn write(
        &self,
        partition: i32,
        mut records: RecordBatch,
        limit: Limit,
    ) -> Result<(), RequestResult> {
        let state = Rc::clone(self.partitions.borrow_mut().entry(partition).or_default());
        let mut state = state.lock().await;
        if let Some(until) = state.throttled_until.take() {
            sleep_until(until).await;
        }
        // If the caller drops this future, the session is dropped with it.
        let mut session = state.session.take();
        let began = Instant::now();
        let mut pauses = Pauses(PAUSE);
        let mut is_in_doubt = false;
        loop {
            let problem = match self
                .send_once(
                    partition,
                    &mut records,
                    &mut session,
                    limit.wall,
                    &mut is_in_doubt,
                )
                .await
            {
                Ok(throttle) => {
                    state.session =
                        session.map(|session| session.advance_by(records.record_count()));
                    state.throttled_until = throttle.map(|throttle| Instant::now() + throttle);
                    return Ok(());
                }
                Err(problem) => problem,
            };
            if problem.ends_session() {
                session = None;
            }
            let is_repeatable = is_in_doubt && session.is_some_and(Session::is_idempotent);
            let end = if is_repeatable {
                limit.until
            } else {
                limit.until.min(began + RETRIES_MAX)
            };
            if !problem.is_temporary() || !pauses.next_by(end).await {
                state.session = session.filter(|_| !is_in_doubt);
                return Err(self.result_for_problem(&problem));
            }
        }
    }

    /// Sends a request once. Returns how long the broker wants no other. `is_in_doubt` becomes true
    /// if the broker may have the records although the request has failed.
    async fn send_once(
        &self,
        partition: i32,
        records: &mut RecordBatch,
        session: &mut Option<Session>,
        wall: WallTime,
        is_in_doubt: &mut bool,
    ) -> Result<Option<Duration>, Problem> {
        let open = self.open_topic(wall).await?;
        let sending = async {
            let link = open.leader_connection(partition).await?;
            let session = match *session {
                Some(session) => session,
                None => *session.insert(new_session(link).await?),
            };
            let request = Produce {
                topic: &self.topic,
                partition,
                batch: records.seal_at(session),
            };
            let response = link
                .send_request(request)
                .await
                .map_err(Problem::from)
                .and_then(check_produced);
            *is_in_doubt |= response.as_ref().is_err_and(Problem::is_in_doubt);
            response
        };
        let result = sending.await;
        match &result {
            Ok(_) => {}
            // The connection can be used again.
            Err(Problem::Broker(
                BrokerError::MessageTooLarge | BrokerError::RecordListTooLarge,
            )) => {}
            Err(problem) => {
                self.discard_connections(&open).await;
                self.forget_refused(problem, open.token.as_ref(), wall)
                    .await;
            }
        }
        result
    }

    /// Ends the use of these connections: the next request makes others, to the partitions as they
    /// are then.
    async fn discard_connections(&self, used: &Rc<OpenTopic>) {
        let mut open = self.open.lock().await;
        // Another request may have made new ones meanwhile.
        if open.as_ref().is_some_and(|open| Rc::ptr_eq(open, used)) {
            open.take();
        }
    }

    /// The records of the events, by the index of their partition among `count`.
    fn encode_records(
        &self,
        batch: &Batch,
        count: usize,
    ) -> Result<BTreeMap<usize, PartitionPart>, RequestError> {
        let schema = self.target.schema;
        let is_binary = self.mode == ContentMode::Binary && schema == Schema::CloudEvents;
        let turn = self.turn.replace(self.turn.get().wrapping_add(1)) % count;
        let mut common = batch_headers(batch);
        if !is_binary {
            common.insert("content-type".to_owned(), content_type(schema).into());
        }
        if !is_binary && self.target.properties.is_empty() {
            let part = encode_uniform_records(batch, schema, &common.iter().collect())?;
            return Ok([(turn, part)].into());
        }
        let mut batches: BTreeMap<usize, PartitionPart> = BTreeMap::new();
        for (event_index, event) in batch.events.iter().enumerate() {
            let wire = delivered_bytes(event, schema)?;
            let mut headers = common.clone();
            let mut key = None;
            for (name, value) in property::request_headers(&self.target.properties, Some(event)) {
                if name.eq_ignore_ascii_case(PARTITION_KEY) {
                    key = Some(value.into_bytes());
                } else {
                    headers.insert(name, value.into_bytes());
                }
            }
            let data = is_binary.then(|| decode_binary(&wire, &mut headers));
            let value = data.as_ref().map_or(Some(&*wire), Option::as_deref);
            let index = key.as_deref().map_or(turn, |key| partition_of(key, count));
            let part = batches.entry(index).or_insert_with(|| PartitionPart {
                records: RecordBatch::new(record_timestamp(batch), 0),
                events: Vec::new(),
            });
            part.events.push(event_index);
            part.records
                .push(key.as_deref(), value, &headers.iter().collect());
        }
        Ok(batches)
    }

    /// The result for a problem, with the HTTP status that means the same.
    fn result_for_problem(&self, problem: &Problem) -> RequestResult {
        let at = self.cluster.configured_address();
        match problem {
            Problem::Connection(text) => {
                unreached_result(Failure::SocketError, format!("{at}: {text}"))
            }
            Problem::Login(text) => {
                credential_refused(&self.cluster.service, &format!("{at}: {text}"))
            }
            Problem::Token(problem @ TokenFailure::Refused(_)) => {
                credential_refused(&self.cluster.service, &format!("{at}: {problem}"))
            }
            Problem::Token(problem @ TokenFailure::Unavailable(_)) => {
                failure_result(Failure::GenericError, format!("{at}: {problem}"))
            }
            Problem::Version(text) => {
                failure_result(Failure::GenericError, format!("{at}: {text}"))
            }
            Problem::Broker(BrokerError::UnknownTopicOrPartition) => result_of(
                404,
                format!("{at}: the topic {} does not exist", self.topic),
            ),
            Problem::Broker(
                error @ (BrokerError::TopicAuthorizationFailed
                | BrokerError::ClusterAuthorizationFailed
                | BrokerError::SaslAuthenticationFailed
                | BrokerError::IllegalSaslState),
            ) => credential_refused(&self.cluster.service, &format!("{at}: {error:?}")),
            Problem::Broker(error) => {
                let status = match error {
                    BrokerError::MessageTooLarge | BrokerError::RecordListTooLarge => 413,
                    BrokerError::InvalidTopicException | BrokerError::CorruptMessage => 400,
                    _ => 503,
                };
                result_of(status, format!("{at}: {error:?}"))
            }
        }
    }
}

fn batch_headers(batch: &Batch) -> BTreeMap<String, Vec<u8>> {
    let headers = batch.headers.iter();
    headers
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .collect()
}

fn record_timestamp(batch: &Batch) -> u64 {
    batch.wall.since_epoch().as_millis() as u64
}

/// The records of events that have no keys and the same headers.
fn encode_uniform_records(
    batch: &Batch,
    schema: Schema,
    headers: &RecordHeaders,
) -> Result<PartitionPart, RequestError> {
    let bytes = batch
        .events
        .iter()
        .map(|event| event.wire_len() + headers.len() + RECORD_OVERHEAD)
        .sum();
    let mut records = RecordBatch::new(record_timestamp(batch), bytes);
    for event in &batch.events {
        records.push(None, Some(&delivered_bytes(event, schema)?), headers);
    }
    Ok(PartitionPart {
        records,
        events: (0..batch.events.len()).collect(),
    })
}

/// Whether the partition has the records, and how long the broker accepts no other request.
fn check_produced(response: Produced) -> Result<Option<Duration>, Problem> {
    let Some(error) = response.partition else {
        return Err(Problem::Connection("the response is empty".to_owned()));
    };
    match error {
        // The broker has had the records since an earlier request.
        None | Some(BrokerError::DuplicateSequenceNumber) => {
            Ok(Some(response.throttle).filter(|throttle| !throttle.is_zero()))
        }
        Some(error) => Err(Problem::Broker(error)),
    }
}

impl Sender for Producer {
    fn send_batch(&self, batch: Batch) -> LocalBoxFuture<'_, Sent<'_>> {
        Box::pin(async move {
            let wait = batch.wait;
            let limit = Limit {
                wall: batch.wall,
                until: Instant::now() + wait,
            };
            let results = EventResults::new(&batch);
            let produce = async |batch, results: &EventResults| {
                self.produce_events(batch, limit, results).await
            };
            (
                send_within(
                    wait,
                    &self.cluster.configured_address(),
                    results,
                    Ok(batch),
                    produce,
                )
                .await,
                None,
            )
        })
    }

    fn check_reachable(&self, wall: WallTime) -> LocalBoxFuture<'_, Result<(), UnreachableError>> {
        Box::pin(async move {
            let open = self.open_topic(wall).await.map_err(|problem| {
                UnreachableError::Service(self.result_for_problem(&problem).detail)
            })?;
            if open.partition_count() == 0 {
                self.discard_connections(&open).await;
                return Err(UnreachableError::Service(format!(
                    "the topic {} does not exist",
                    self.topic
                )));
            }
            Ok(())
        })
    }
}

/// The data of a CloudEvent; its attributes become headers.
fn decode_binary(wire: &[u8], headers: &mut BTreeMap<String, Vec<u8>>) -> Option<Vec<u8>> {
    let Ok(Value::Object(event)) = serde_json::from_slice(wire) else {
        return Some(wire.to_vec());
    };
    let mut data = None;
    for (name, value) in event {
        match name.as_str() {
            "data" => {
                // Data is JSON: a string keeps its quotes.
                data = Some(value.to_string().into_bytes());
            }
            "data_base64" => {
                data = BASE64_STANDARD
                    .decode(value.as_str().unwrap_or_default())
                    .ok()
            }
            _ => {
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                let name = if name == "datacontenttype" {
                    "content-type".to_owned()
                } else {
                    format!("ce_{name}")
                };
                headers.insert(name, text.into_bytes());
            }
        }
    }
    headers
        .entry("content-type".to_owned())
        .or_insert_with(|| b"application/json".to_vec());
    data
}

/// The partition of a key, as Kafka's own clients choose it: murmur2.
fn partition_of(key: &[u8], count: usize) -> usize {
    const M: u32 = 0x5bd1_e995;
    let mix = |k: u32| {
        let k = k.wrapping_mul(M);
        (k ^ (k >> 24)).wrapping_mul(M)
    };
    let mut hash = 0x9747_b28c ^ u32::try_from(key.len()).unwrap_or(u32::MAX);
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_mul(M) ^ mix(u32::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        let tail = rest
            .iter()
            .rev()
            .fold(0, |tail: u32, byte| (tail << 8) | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^= hash >> 15;
    (hash & 0x7fff_ffff) as usize % count
}
