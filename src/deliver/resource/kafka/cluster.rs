//! The connections to a Kafka cluster: over TCP or TLS, with a login.

use std::{collections::BTreeMap, io, rc::Rc, sync::Arc};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::OnceCell,
};
use tokio_rustls::TlsConnector;

use super::{
    protocol::{BrokerError, Link, ProtocolError},
    requests::{
        ClusterMetadata, InitProducerId, Metadata, Partition, SaslAuthenticate, SaslHandshake,
    },
    wire::Session,
};
use crate::{
    error::SenderError,
    identity::{AccessToken, TokenFailure, TokenSource},
    resource::SenderContext,
};

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

impl From<ProtocolError> for Problem {
    fn from(error: ProtocolError) -> Self {
        match error {
            ProtocolError::NoVersion(_) => Self::Version(error.to_string()),
            _ => Self::Connection(error.to_string()),
        }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Connection(error.to_string())
    }
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// How a client authenticates with a broker, before any other request.
#[derive(Clone)]
pub(super) enum Credentials {
    /// SASL's PLAIN (RFC 4616).
    Plain { username: String, password: String },
    /// SASL's OAUTHBEARER (RFC 7628).
    Bearer { token: String },
}

impl Credentials {
    fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain { .. } => "PLAIN",
            Self::Bearer { .. } => "OAUTHBEARER",
        }
    }

    /// The client's first message, which is its only one.
    fn first_message(&self) -> Vec<u8> {
        match self {
            Self::Plain { username, password } => format!("\0{username}\0{password}").into_bytes(),
            Self::Bearer { token } => format!("n,,\x01auth=Bearer {token}\x01\x01").into_bytes(),
        }
    }

    async fn log_in(&self, link: &Link) -> Result<(), Problem> {
        let mechanism = self.mechanism();
        let handshake = link.send_request(SaslHandshake { mechanism }).await?;
        if let Some(error) = handshake.error {
            let names = handshake.names.join(", ");
            return Err(Problem::Login(format!(
                "{error:?}: {mechanism} is not among {names}"
            )));
        }
        let reply = link
            .send_request(SaslAuthenticate {
                message: self.first_message(),
            })
            .await?;
        if let Some(error) = reply.error {
            return Err(Problem::Login(format!(
                "{error:?}: {}",
                reply.error_message
            )));
        }
        // OAUTHBEARER returns the reason of a refusal as a message; an accepted token has none.
        if !reply.message.is_empty() {
            let problem = String::from_utf8_lossy(&reply.message)
                .escape_debug()
                .to_string();
            return Err(Problem::Login(format!("{mechanism}: {problem}")));
        }
        Ok(())
    }
}

pub(super) enum Login {
    /// Credentials of the settings; [`None`] for no authentication.
    Fixed(Option<Credentials>),
    /// Access tokens of the server's identity.
    Tokens(TokenSource),
}

impl Login {
    fn from_service(at: &SenderContext<'_>) -> Result<Self, SenderError> {
        let service = at.require_service();
        let credential = |name| service.find_credential(name).map(str::to_owned);
        match (
            at.token_source()?,
            credential("token"),
            credential("username"),
            credential("password"),
        ) {
            (Some(tokens), None, None, None) => Ok(Self::Tokens(tokens)),
            (None, Some(token), None, None) => Ok(Self::Fixed(Some(Credentials::Bearer { token }))),
            (None, None, Some(username), Some(password)) => {
                Ok(Self::Fixed(Some(Credentials::Plain { username, password })))
            }
            (None, None, None, None) => Ok(Self::Fixed(None)),
            _ => Err(SenderError::Credentials {
                service: service.name.clone(),
                needed: "username and password, or token, or token_audience, or none of them",
            }),
        }
    }
}

/// A cluster, and how to connect to it.
pub(super) struct Cluster {
    /// The name of the cluster's table in the settings.
    pub(super) service: String,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    pub(super) login: Login,
}

impl Cluster {
    /// The cluster that the operator configured.
    pub(super) fn from_settings(at: &SenderContext<'_>) -> Result<Self, SenderError> {
        let url = &at.require_service().url;
        Ok(Self {
            service: at.require_service().name.clone(),
            host: url.host_str().unwrap_or_default().to_owned(),
            port: url.port().unwrap_or(DEFAULT_PORT),
            tls: (url.scheme() == "kafkas").then(|| at.options.trust.config().into()),
            login: Login::from_service(at)?,
        })
    }

    /// The address in the settings.
    pub(super) fn configured_address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Looks up the partitions of a topic. `token` is the access token to log in with.
    pub(super) async fn open(
        self: &Rc<Self>,
        topic: &str,
        token: Option<Arc<AccessToken>>,
    ) -> Result<OpenTopic, Problem> {
        let link = self
            .connect_to(&self.host, self.port, token.as_ref())
            .await?;
        let ClusterMetadata { brokers, topics } = link.send_request(Metadata { topic }).await?;
        let brokers = brokers.into_iter().map(|broker| {
            let port = u16::try_from(broker.port).unwrap_or_default();
            (
                broker.id,
                Broker {
                    host: broker.host,
                    port,
                    link: OnceCell::new(),
                },
            )
        });
        let brokers = brokers.collect();
        let mut partitions = Vec::new();
        for topic in topics {
            match topic.error {
                None => partitions.extend(topic.partitions),
                Some(BrokerError::UnknownTopicOrPartition) => {}
                Some(error) => return Err(Problem::Broker(error)),
            }
        }
        partitions.sort_unstable_by_key(|partition| partition.id);
        Ok(OpenTopic {
            cluster: Rc::clone(self),
            token,
            partitions,
            brokers,
        })
    }

    async fn connect_to(
        &self,
        host: &str,
        port: u16,
        token: Option<&Arc<AccessToken>>,
    ) -> Result<Link, Problem> {
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
        let link = Link::open(stream).await?;
        let credentials = match &self.login {
            Login::Fixed(credentials) => credentials.clone(),
            Login::Tokens(_) => token.map(|token| Credentials::Bearer {
                token: token.expose().to_owned(),
            }),
        };
        if let Some(credentials) = credentials {
            credentials.log_in(&link).await?;
        }
        Ok(link)
    }
}

struct Broker {
    host: String,
    port: u16,
    /// The link to the broker, made when it is needed.
    link: OnceCell<Link>,
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
    /// Number of partitions of the topic; 0 if it does not exist.
    pub(super) fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    pub(super) fn partition_id(&self, index: usize) -> i32 {
        self.partitions[index].id
    }

    pub(super) async fn leader_connection(&self, partition: i32) -> Result<&Link, Problem> {
        let partition_metadata = self.partitions.iter().find(|known| known.id == partition);
        let partition_metadata =
            partition_metadata.ok_or(Problem::Broker(BrokerError::UnknownTopicOrPartition))?;
        // A partition without a leader waits for its election.
        let broker = self
            .brokers
            .get(&partition_metadata.leader)
            .ok_or(Problem::Broker(BrokerError::LeaderNotAvailable))?;
        let connect = || {
            self.cluster
                .connect_to(&broker.host, broker.port, self.token.as_ref())
        };
        broker.link.get_or_try_init(connect).await
    }
}

/// A new producer id. A cluster that gives none, because it is old or does not allow it, gets
/// records without one.
pub(super) async fn new_session(link: &Link) -> Result<Session, Problem> {
    let session_problem = match link
        .send_request(InitProducerId)
        .await
        .map_err(Problem::from)
    {
        Ok(Ok(producer)) => return Ok(Session::new(producer)),
        Ok(Err(error)) => Problem::Broker(error),
        Err(problem) => problem,
    };
    match session_problem {
        Problem::Version(_) | Problem::Broker(BrokerError::ClusterAuthorizationFailed) => {
            tracing::warn!(problem = ?session_problem, "the Kafka cluster gives no producer id; a repeated \
                request may repeat records");
            Ok(Session::without_id())
        }
        problem => Err(problem),
    }
}
