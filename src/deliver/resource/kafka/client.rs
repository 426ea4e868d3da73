//! The Kafka client: rskafka, which is pure Rust.
//!
//! It retries by itself for at most [`RETRIES_MAX`]; then the request fails, and the subscription decides. After a failure
//! the connections are made anew.
//!
//! It does not authenticate again on an open connection (KIP-368), and a broker closes connections whose token has expired.
//! So new connections are made with each new access token of the server's identity, which is fetched ahead of that time.

use std::{
    cell::Cell,
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::future::{LocalBoxFuture, join_all};
use rskafka::{
    BackoffConfig,
    client::{
        Client, ClientBuilder, Credentials, OauthBearerCredentials, SaslConfig,
        error::{Error, ProtocolError},
        partition::{Compression, PartitionClient, UnknownTopicHandling},
    },
    record::Record,
};
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};

use super::ContentMode;
use crate::{
    deliver::{
        Batch, Sender, Sent,
        convert::delivered_bytes,
        failure::failure,
        identity::{AccessToken, TokenSource},
        request::RequestError,
        resource::{Opening, ResourceTarget, content_type, result_of, unreached, within},
    },
    event::{Event, Schema, Timestamp},
    policy::{
        outcome::{Failure, RequestResult},
        property,
    },
};

/// The delivery property that is the key of a record.
const PARTITION_KEY: &str = "PartitionKey";

/// How long the client retries by itself.
const RETRIES_MAX: Duration = Duration::from_secs(2);

/// A producer for the topic.
pub(super) fn connect(at: &Opening<'_>, topic: &str, mode: ContentMode) -> Result<Rc<dyn Sender>, String> {
    let service = at.service();
    let (host, port) = (service.url.host_str().unwrap_or_default(), service.url.port().unwrap_or(9092));
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_millis(500),
        base: 2.0,
        deadline: Some(RETRIES_MAX),
    };
    Ok(Rc::new(Producer {
        broker: format!("{host}:{port}"),
        tls: (service.url.scheme() == "kafkas").then(|| at.options.trust.config()),
        login: login(at)?,
        backoff,
        topic: topic.to_owned(),
        mode,
        target: at.target.clone(),
        open: Mutex::new(None),
        turn: Cell::new(0),
    }))
}

/// How the client authenticates.
enum Login {
    /// Credentials of the settings; [`None`]: no authentication.
    Fixed(Option<SaslConfig>),
    /// With access tokens of the server's identity.
    Tokens(TokenSource),
}

fn login(at: &Opening<'_>) -> Result<Login, String> {
    let service = at.service();
    let credential = |name| service.credential(name).map(str::to_owned);
    match (at.tokens()?, credential("token"), credential("username"), credential("password")) {
        (Some(tokens), None, None, None) => Ok(Login::Tokens(tokens)),
        (None, Some(token), None, None) => Ok(Login::Fixed(Some(bearer(token)))),
        (None, None, Some(username), Some(password)) => {
            Ok(Login::Fixed(Some(SaslConfig::Plain(Credentials::new(username, password)))))
        }
        (None, None, None, None) => Ok(Login::Fixed(None)),
        _ => Err(format!(
            "delivery.resources.{} needs username and password, or token, or token_audience, or none of them",
            service.name
        )),
    }
}

/// OAUTHBEARER with this token.
fn bearer(token: String) -> SaslConfig {
    let callback = Arc::new(move || -> rskafka_token::Answer {
        let token = token.clone();
        Box::pin(async move { Ok(token) })
    });
    SaslConfig::Oauthbearer(OauthBearerCredentials { callback, authz_id: None, bearer_kvs: Vec::new() })
}

mod rskafka_token {
    use std::{error::Error, pin::Pin};

    /// What rskafka expects of a callback for tokens.
    pub(super) type Answer = Pin<Box<dyn Future<Output = Result<String, Box<dyn Error + Send + Sync>>> + Send>>;
}

struct Producer {
    broker: String,
    tls: Option<Arc<rustls::ClientConfig>>,
    login: Login,
    backoff: BackoffConfig,
    topic: String,
    mode: ContentMode,
    target: ResourceTarget,
    open: Mutex<Option<Rc<OpenTopic>>>,
    /// Counts the batches without a key.
    turn: Cell<usize>,
}

/// Connections to the brokers of a topic. Each is made when it is needed.
struct OpenTopic {
    client: Client,
    /// The access token that they were made with.
    token: Option<Arc<AccessToken>>,
    partitions: Vec<(i32, OnceCell<PartitionClient>)>,
}

impl Producer {
    /// The connections, made if there are none, or if there is a new access token.
    async fn opened(&self, now: Timestamp) -> Result<Rc<OpenTopic>, RequestResult> {
        let mut open = self.open.lock().await;
        let token = match &self.login {
            Login::Fixed(_) => None,
            Login::Tokens(tokens) => {
                let token = tokens.token(None, now).await;
                Some(token.map_err(|problem| failure(Failure::GenericError, problem))?.0)
            }
        };
        let is_same = |open: &&Rc<OpenTopic>| match (&open.token, &token) {
            (Some(there), Some(token)) => Arc::ptr_eq(there, token),
            (there, token) => there.is_none() && token.is_none(),
        };
        if let Some(open) = open.as_ref().filter(is_same) {
            return Ok(Rc::clone(open));
        }
        match self.connect(token.clone()).await {
            Ok(opened) => {
                let opened = Rc::new(opened);
                *open = Some(Rc::clone(&opened));
                Ok(opened)
            }
            Err(error) => Err(self.failed(&error, token.as_ref(), now).await),
        }
    }

    /// The result for an error of connections that were made with `token`. A token that the broker refused is discarded.
    async fn failed(&self, error: &Error, token: Option<&Arc<AccessToken>>, now: Timestamp) -> RequestResult {
        let result = self.result(error);
        if let (Login::Tokens(tokens), Some(token), Some(401)) = (&self.login, token, result.status) {
            tokens.discard(token, now).await;
        }
        result
    }

    async fn connect(&self, token: Option<Arc<AccessToken>>) -> Result<OpenTopic, Error> {
        let builder = ClientBuilder::new(vec![self.broker.clone()]).client_id("gridhook");
        let builder = builder.backoff_config(self.backoff.clone());
        let builder = match &self.tls {
            Some(tls) => builder.tls_config(Arc::clone(tls)),
            None => builder,
        };
        let sasl = match (&self.login, &token) {
            (Login::Fixed(sasl), _) => sasl.clone(),
            (Login::Tokens(_), token) => token.as_ref().map(|token| bearer(token.expose().to_owned())),
        };
        let builder = match sasl {
            Some(sasl) => builder.sasl_config(sasl),
            None => builder,
        };
        let client = builder.build().await?;
        let topics = client.list_topics().await?;
        let found = topics.into_iter().find(|known| known.name == self.topic);
        let mut partitions: Vec<i32> = found.map(|topic| topic.partitions.into_iter().collect()).unwrap_or_default();
        partitions.sort_unstable();
        let partitions = partitions.into_iter().map(|partition| (partition, OnceCell::new())).collect();
        Ok(OpenTopic { client, token, partitions })
    }

    /// Writes the records. `used` becomes the connections that they go through.
    async fn produce(
        &self,
        records: Vec<Record>,
        now: Timestamp,
        used: &mut Option<Rc<OpenTopic>>,
    ) -> Result<(), RequestResult> {
        let open = Rc::clone(used.insert(self.opened(now).await?));
        let count = open.partitions.len();
        if count == 0 {
            return Err(result_of(404, format!("the topic {} does not exist", self.topic)));
        }
        let turn = self.turn.replace(self.turn.get().wrapping_add(1)) % count;
        let mut by_partition: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
        if records.iter().all(|record| record.key.is_none()) {
            by_partition.insert(turn, records);
        } else {
            for record in records {
                let index = record.key.as_deref().map_or(turn, |key| partition_of(key, count));
                by_partition.entry(index).or_default().push(record);
            }
        }
        let writes = by_partition.into_iter().map(|(index, records)| {
            let ((partition, client), open) = (&open.partitions[index], &open);
            async move {
                let make = || open.client.partition_client(&self.topic, *partition, UnknownTopicHandling::Error);
                client.get_or_try_init(make).await?.produce(records, Compression::NoCompression).await
            }
        });
        // To the end, although one of them fails: records that arrive after the request was repeated would be out of order.
        let written: Result<Vec<_>, Error> = join_all(writes).await.into_iter().collect();
        match written {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failed(&error, open.token.as_ref(), now).await),
        }
    }

    /// Ends the use of these connections: the next request makes others, to the partitions as they are then.
    async fn discard(&self, used: &Rc<OpenTopic>) {
        let mut open = self.open.lock().await;
        // Another request may have made new ones meanwhile.
        if open.as_ref().is_some_and(|open| Rc::ptr_eq(open, used)) {
            open.take();
        }
    }

    fn records(&self, batch: &Batch) -> Result<Vec<Record>, RequestError> {
        let is_binary = self.mode == ContentMode::Binary && self.target.schema == Schema::CloudEvents;
        let of_batch = batch.headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
        let mut common: BTreeMap<String, Vec<u8>> = of_batch.collect();
        if !is_binary {
            common.insert("content-type".to_owned(), content_type(self.target.schema).into());
        }
        let timestamp = (SystemTime::UNIX_EPOCH + batch.now.since(Timestamp(0))).into();
        let record = |event: &Event| {
            let wire = delivered_bytes(event, self.target.schema)?;
            let (mut headers, mut key) = (common.clone(), None);
            for (name, value) in property::headers(&self.target.properties, Some(event)) {
                if name.eq_ignore_ascii_case(PARTITION_KEY) {
                    key = Some(value.into_bytes());
                } else {
                    headers.insert(name, value.into_bytes());
                }
            }
            let value = if is_binary { binary(&wire, &mut headers) } else { Some(wire.into_owned()) };
            Ok(Record { key, value, headers, timestamp })
        };
        batch.events.iter().map(record).collect()
    }

    /// The result for an error of the client, with the HTTP status that means the same.
    fn result(&self, error: &Error) -> RequestResult {
        let text = format!("{}: {error}", self.broker);
        match error {
            Error::ServerError { protocol_error, .. } => match protocol_error {
                ProtocolError::MessageTooLarge | ProtocolError::RecordListTooLarge => result_of(413, text),
                ProtocolError::UnknownTopicOrPartition => result_of(404, text),
                ProtocolError::InvalidTopicException | ProtocolError::CorruptMessage => result_of(400, text),
                ProtocolError::TopicAuthorizationFailed | ProtocolError::ClusterAuthorizationFailed => {
                    result_of(403, text)
                }
                ProtocolError::SaslAuthenticationFailed | ProtocolError::IllegalSaslState => result_of(401, text),
                _ => result_of(503, text),
            },
            Error::Timeout => failure(Failure::TimedOut, text),
            Error::Connection(_) | Error::Request(_) | Error::RetryFailed(_) => {
                if text.to_ascii_lowercase().contains("sasl") {
                    return result_of(401, text);
                }
                unreached(Failure::SocketError, text)
            }
            _ => failure(Failure::GenericError, text),
        }
    }
}

impl Sender for Producer {
    fn send(&self, batch: Batch) -> LocalBoxFuture<'_, Sent<'_>> {
        let (records, wait, now) = (self.records(&batch), batch.wait, batch.now);
        drop(batch);
        Box::pin(async move {
            let mut used = None;
            let produce = async |records| self.produce(records, now, &mut used).await;
            let result = within(wait, &self.broker, records, produce).await;
            if let Some(used) = used.filter(|_| result.status != Some(200) && result.status != Some(413)) {
                self.discard(&used).await;
            }
            (result, None)
        })
    }

    fn reach(&self, now: Timestamp) -> LocalBoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let open = self.opened(now).await.map_err(|result| result.detail)?;
            if open.partitions.is_empty() {
                self.discard(&open).await;
                return Err(format!("the topic {} does not exist", self.topic));
            }
            Ok(())
        })
    }
}

/// The data of a CloudEvent; its attributes become headers.
fn binary(wire: &[u8], headers: &mut BTreeMap<String, Vec<u8>>) -> Option<Vec<u8>> {
    let Ok(Value::Object(event)) = serde_json::from_slice(wire) else { return Some(wire.to_vec()) };
    let mut data = None;
    for (name, value) in event {
        match name.as_str() {
            "data" => {
                // JSON has its form, also if it is a string.
                data = Some(value.to_string().into_bytes());
            }
            "data_base64" => data = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).ok(),
            _ => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let name = if name == "datacontenttype" { "content-type".to_owned() } else { format!("ce_{name}") };
                headers.insert(name, text.into_bytes());
            }
        }
    }
    headers.entry("content-type".to_owned()).or_insert_with(|| b"application/json".to_vec());
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
        let tail = rest.iter().rev().fold(0, |tail: u32, byte| (tail << 8) | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^= hash >> 15;
    (hash & 0x7fff_ffff) as usize % count
}
