//! The connections to a Kafka cluster: rskafka's messenger over TCP or TLS, with a login.
//!
//! rskafka's own client is not used, because it neither shows its connections nor sends other requests than its own.

use std::{collections::BTreeMap, io, rc::Rc, sync::Arc};

use rskafka::{
    client::{Credentials, OauthBearerCredentials, SaslConfig},
    messenger::{Messenger, RequestError, SaslError},
    protocol::{
        error::Error as BrokerError,
        messages::{MetadataRequest, MetadataRequestTopic, MetadataResponse},
        primitives::{Boolean, String_},
    },
};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, BufStream},
    net::TcpStream,
    sync::OnceCell,
};
use tokio_rustls::TlsConnector;

use super::wire::{InitProducerId, InitProducerIdResponse, Session};
use crate::{
    identity::{AccessToken, TokenFailure, TokenSource},
    resource::Opening,
};

/// The largest response: 16 MiB. The description of a topic has some hundred bytes a partition.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The port of a URL without one.
const DEFAULT_PORT: u16 = 9092;

/// Why a request has failed.
#[derive(Debug)]
pub(super) enum Problem {
    /// There is no connection, or it broke.
    Connection(String),
    /// The broker does not take the credentials.
    Login(String),
    /// The broker refused the request.
    Broker(BrokerError),
    /// The broker has no version of the request that this client has.
    Version(String),
    /// There is no access token.
    Token(TokenFailure),
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NoVersionMatch { .. } => Self::Version(error.to_string()),
            _ => Self::Connection(error.to_string()),
        }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Connection(error.to_string())
    }
}

impl From<SaslError> for Problem {
    fn from(error: SaslError) -> Self {
        match error {
            SaslError::RequestError(error) => error.into(),
            _ => Self::Login(error.to_string()),
        }
    }
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection to a broker.
pub(super) type Link = Messenger<BufStream<Box<dyn Stream>>>;

/// How the client authenticates.
pub(super) enum Login {
    /// Credentials of the settings; [`None`]: no authentication.
    Fixed(Option<SaslConfig>),
    /// With access tokens of the server's identity.
    Tokens(TokenSource),
}

impl Login {
    fn of(at: &Opening<'_>) -> Result<Self, String> {
        let service = at.service();
        let credential = |name| service.credential(name).map(str::to_owned);
        match (at.tokens()?, credential("token"), credential("username"), credential("password")) {
            (Some(tokens), None, None, None) => Ok(Self::Tokens(tokens)),
            (None, Some(token), None, None) => Ok(Self::Fixed(Some(bearer(token)))),
            (None, None, Some(username), Some(password)) => {
                Ok(Self::Fixed(Some(SaslConfig::Plain(Credentials::new(username, password)))))
            }
            (None, None, None, None) => Ok(Self::Fixed(None)),
            _ => Err(format!(
                "delivery.resources.{} needs username and password, or token, or token_audience, or none of them",
                service.name
            )),
        }
    }
}

/// OAUTHBEARER with this token.
fn bearer(token: String) -> SaslConfig {
    let callback = Arc::new(move || -> callback::Answer {
        let token = token.clone();
        Box::pin(async move { Ok(token) })
    });
    SaslConfig::Oauthbearer(OauthBearerCredentials { callback, authz_id: None, bearer_kvs: Vec::new() })
}

mod callback {
    use std::{error::Error, pin::Pin};

    /// What rskafka expects of a callback for tokens.
    pub(super) type Answer = Pin<Box<dyn Future<Output = Result<String, Box<dyn Error + Send + Sync>>> + Send>>;
}

/// A cluster, and how to connect to it.
pub(super) struct Cluster {
    /// The name of its table in the settings.
    pub(super) service: String,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    pub(super) login: Login,
}

impl Cluster {
    /// The cluster that the operator configured.
    pub(super) fn of(at: &Opening<'_>) -> Result<Self, String> {
        let url = &at.service().url;
        Ok(Self {
            service: at.service().name.clone(),
            host: url.host_str().unwrap_or_default().to_owned(),
            port: url.port().unwrap_or(DEFAULT_PORT),
            tls: (url.scheme() == "kafkas").then(|| at.options.trust.config().into()),
            login: Login::of(at)?,
        })
    }

    /// The address in the settings.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Looks up the partitions of a topic. `token` is the access token to log in with.
    pub(super) async fn open(
        self: &Rc<Self>,
        topic: &str,
        token: Option<Arc<AccessToken>>,
    ) -> Result<OpenTopic, Problem> {
        let link = self.connect(&self.host, self.port, token.as_ref()).await?;
        let topics = Some(vec![MetadataRequestTopic { name: String_(topic.to_owned()) }]);
        let request = MetadataRequest { topics, allow_auto_topic_creation: Some(Boolean(false)) };
        let MetadataResponse { brokers, topics, .. } = link.request(request).await?;
        let brokers = brokers.into_iter().map(|broker| {
            let port = u16::try_from(broker.port.0).unwrap_or_default();
            (broker.node_id.0, Broker { host: broker.host.0, port, link: OnceCell::new() })
        });
        let brokers = brokers.collect();
        let mut partitions = Vec::new();
        for topic in topics {
            match topic.error {
                None => {}
                Some(BrokerError::UnknownTopicOrPartition) => continue,
                Some(error) => return Err(Problem::Broker(error)),
            }
            partitions.extend(
                topic
                    .partitions
                    .into_iter()
                    .map(|partition| Partition { id: partition.partition_index.0, leader: partition.leader_id.0 }),
            );
        }
        partitions.sort_unstable_by_key(|partition| partition.id);
        Ok(OpenTopic { cluster: Rc::clone(self), token, partitions, brokers })
    }

    async fn connect(&self, host: &str, port: u16, token: Option<&Arc<AccessToken>>) -> Result<Link, Problem> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let tcp = TcpStream::connect((host, port)).await?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned());
                let name = name.map_err(|error| Problem::Connection(format!("{host}: {error}")))?;
                Box::new(tls.connect(name, tcp).await?)
            }
            None => Box::new(tcp),
        };
        let mut link = Messenger::new(BufStream::new(stream), RESPONSE_BYTES_MAX, Arc::from("gridhook"));
        link.sync_versions().await.map_err(|error| Problem::Connection(error.to_string()))?;
        let sasl = match &self.login {
            Login::Fixed(sasl) => sasl.clone(),
            Login::Tokens(_) => token.map(|token| bearer(token.expose().to_owned())),
        };
        if let Some(sasl) = sasl {
            link.do_sasl(sasl).await?;
        }
        Ok(link)
    }
}

struct Broker {
    host: String,
    port: u16,
    /// Made when it is needed.
    link: OnceCell<Link>,
}

#[derive(Clone, Copy)]
struct Partition {
    id: i32,
    /// The broker that takes its records.
    leader: i32,
}

/// The partitions of a topic as they were when the connections were made.
pub(super) struct OpenTopic {
    cluster: Rc<Cluster>,
    /// The access token that the connections are made with.
    pub(super) token: Option<Arc<AccessToken>>,
    partitions: Vec<Partition>,
    brokers: BTreeMap<i32, Broker>,
}

impl OpenTopic {
    /// How many partitions the topic has. 0: it does not exist.
    pub(super) fn count(&self) -> usize {
        self.partitions.len()
    }

    /// The id of the partition with this index.
    pub(super) fn id(&self, index: usize) -> i32 {
        self.partitions[index].id
    }

    /// The connection to the leader of a partition.
    pub(super) async fn leader(&self, partition: i32) -> Result<&Link, Problem> {
        let found = self.partitions.iter().find(|known| known.id == partition);
        let found = found.ok_or(Problem::Broker(BrokerError::UnknownTopicOrPartition))?;
        // A partition without a leader waits for its election.
        let broker = self.brokers.get(&found.leader).ok_or(Problem::Broker(BrokerError::LeaderNotAvailable))?;
        let connect = || self.cluster.connect(&broker.host, broker.port, self.token.as_ref());
        broker.link.get_or_try_init(connect).await
    }
}

/// A new producer id. A cluster that gives none, because it is old or does not allow it, gets records without one.
pub(super) async fn new_session(link: &Link) -> Result<Session, Problem> {
    let refused = match link.request(InitProducerId).await.map_err(Problem::from) {
        Ok(InitProducerIdResponse(Ok(producer))) => return Ok(Session::new(producer)),
        Ok(InitProducerIdResponse(Err(error))) => Problem::Broker(error),
        Err(problem) => problem,
    };
    match refused {
        Problem::Version(_) | Problem::Broker(BrokerError::ClusterAuthorizationFailed) => {
            tracing::warn!(problem = ?refused, "the Kafka cluster gives no producer id; a repeated request may repeat records");
            Ok(Session::without_id())
        }
        problem => Err(problem),
    }
}
