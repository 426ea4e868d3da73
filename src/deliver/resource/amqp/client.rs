//! The AMQP client: lapin. All subscriptions of an arbiter share one connection to a broker.
//!
//! Invariant: a channel has one request at a time. A broker closes the channel of a message that it
//! refuses, and with it everything that was sent there.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Error, ErrorKind,
    ExchangeKind,
    options::{
        BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueDeclareOptions,
    },
    tcp::{AMQPUriTcpExt, RustlsConnector},
    types::{AMQPValue, FieldTable, ShortString},
    uri::{AMQPAuthority, AMQPUri, AMQPUserInfo},
};
use percent_encoding::percent_decode_str;
use tokio::sync::Mutex;

use crate::{
    Batch, Sender, Sent,
    error::{SenderError, UnreachableError},
    failure::failure_result,
    request::RequestError,
    resource::{
        EventResults, ResourceTarget, SenderContext, content_type, credential_refused, result_of,
        send_within, shared::Shared, unreached_result,
    },
};
use gridhook_event::{Event, WallTime};
use gridhook_policy::outcome::{Failure, RequestResult};

const CONTENT_TOO_LARGE: u16 = 311;
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const NOT_ALLOWED: u16 = 530;
const PRECONDITION_FAILED: u16 = 406;

/// The status of a message that no queue takes. Not 404, which means a deleted destination and is
/// not tried again: a broker responds in this way, too, while the node of a queue restarts and
/// until a consumer declares its queue again.
const NO_ROUTE_STATUS: u16 = 503;

/// `delivery-mode` of a persistent message.
const PERSISTENT: u8 = 2;

thread_local! {
    static LINKS: Shared<Link> = const { Shared::new() };
}

/// A publisher for the exchange.
pub(super) fn new_publisher(
    at: &SenderContext<'_>,
    exchange: &str,
    routing_key: &str,
) -> Result<Rc<dyn Sender>, SenderError> {
    let link = LINKS.with(|links| {
        links.get(at.require_service().name.clone(), || {
            Link::new(at).map(Rc::new)
        })
    })?;
    let short = |text: &str| {
        ShortString::try_new(text).map_err(|error| SenderError::Name(error.to_string()))
    };
    Ok(Rc::new(Publisher {
        link,
        exchange: short(exchange)?,
        routing_key: short(routing_key)?,
        target: at.target.clone(),
        idle: RefCell::default(),
    }))
}

/// A connection to a broker, made when it is needed.
struct Link {
    /// The name of the broker's table in the settings.
    service: String,
    uri: AMQPUri,
    address: String,
    tls: RustlsConnector,
    is_tls: bool,
    open: Mutex<Option<Connection>>,
}

impl Link {
    fn new(at: &SenderContext<'_>) -> Result<Self, SenderError> {
        let service = at.require_service();
        let url = &service.url;
        let is_tls = url.scheme() == "amqps";
        let login = match (
            service.find_credential("username"),
            service.find_credential("password"),
        ) {
            (Some(username), Some(password)) => (username, password),
            (None, None) => ("guest", "guest"),
            _ => {
                return Err(SenderError::Credentials {
                    service: service.name.clone(),
                    needed: "username and password, or neither",
                });
            }
        };
        let host = url.host_str().unwrap_or_default();
        let port = url.port().unwrap_or(if is_tls { 5671 } else { 5672 });
        let vhost = percent_decode_str(url.path().trim_start_matches('/'))
            .decode_utf8_lossy()
            .into_owned();
        let mut tls = rustls::ClientConfig::clone(&at.options.trust.config());
        // The ALPN protocols in these options are those of HTTP.
        tls.alpn_protocols.clear();
        let uri = AMQPUri {
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: login.0.to_owned(),
                    password: login.1.to_owned(),
                },
                host: host.to_owned(),
                port,
            },
            vhost: if vhost.is_empty() {
                "/".to_owned()
            } else {
                vhost
            },
            ..AMQPUri::default()
        };
        let address = format!("{}://{host}:{port}", url.scheme());
        let service = service.name.clone();
        Ok(Self {
            service,
            uri,
            address,
            tls: Arc::new(tls).into(),
            is_tls,
            open: Mutex::new(None),
        })
    }

    /// A new channel with confirms, on a new connection if there is none.
    async fn open_channel(&self) -> Result<Channel, Error> {
        let mut open = self.open.lock().await;
        let connection = match open.take().filter(|open| open.status().connected()) {
            Some(connection) => open.insert(connection),
            None => open.insert(self.open_connection().await?),
        };
        let channel = connection.create_channel().await?;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await?;
        Ok(channel)
    }

    async fn open_connection(&self) -> Result<Connection, Error> {
        let tls = self.tls.clone();
        let is_tls = self.is_tls;
        let properties = ConnectionProperties::default().with_connection_name("gridhook".into());
        let runtime = lapin::runtime::default_runtime()?;
        Connection::connector(
            self.uri.clone(),
            runtime,
            async move |uri, runtime| {
                let stream = uri.connect_async(&runtime).await?;
                if is_tls {
                    Ok(stream.into_rustls(&tls, &uri.authority.host).await?)
                } else {
                    Ok(stream)
                }
            },
            properties,
        )
        .await
    }

    /// The result for an error of the client, with the HTTP status that means the same.
    fn result_for_error(&self, error: &Error) -> RequestResult {
        let text = format!("{}: {error}", self.address);
        match error.kind() {
            ErrorKind::ProtocolError(error) => match error.get_id() {
                NOT_FOUND => result_of(404, text),
                // The response to a wrong password, and to an exchange or a virtual host that the
                // user may not write to.
                ACCESS_REFUSED | NOT_ALLOWED => credential_refused(&self.service, &text),
                CONTENT_TOO_LARGE => result_of(413, text),
                PRECONDITION_FAILED if error.get_message().as_str().contains("size") => {
                    result_of(413, text)
                }
                PRECONDITION_FAILED => result_of(400, text),
                _ => failure_result(Failure::GenericError, text),
            },
            ErrorKind::IOError(_) => unreached_result(Failure::SocketError, text),
            ErrorKind::InvalidChannelState(..)
            | ErrorKind::InvalidConnectionState(_)
            | ErrorKind::MissingHeartbeatError => failure_result(Failure::SocketError, text),
            _ => failure_result(Failure::GenericError, text),
        }
    }
}

struct Publisher {
    link: Rc<Link>,
    exchange: ShortString,
    routing_key: ShortString,
    target: ResourceTarget,
    /// Channels that no request uses.
    idle: RefCell<Vec<Channel>>,
}

type Message = (BasicProperties, Bytes);

impl Publisher {
    fn encode_messages(&self, batch: &Batch) -> Result<Vec<Message>, RequestError> {
        let mut messages = Vec::with_capacity(batch.events.len());
        for event in &*batch.events {
            let properties = self.properties(event, batch);
            messages.push((properties, self.target.delivered_bytes(event)?));
        }
        Ok(messages)
    }

    fn properties(&self, event: &Event, batch: &Batch) -> BasicProperties {
        let mut headers = FieldTable::default();
        for (name, value) in self.target.message_headers(event, batch) {
            if let Ok(name) = ShortString::try_new(name) {
                headers.insert(name, AMQPValue::LongString(value.into()));
            }
        }
        let properties = BasicProperties::default()
            .with_content_type(content_type(self.target.schema).into())
            .with_delivery_mode(PERSISTENT)
            .with_message_id(self.target.message_id(event, batch).into())
            .with_timestamp(batch.wall.since_epoch().as_secs())
            .with_headers(headers);
        match ShortString::try_new(event.event_type()) {
            Ok(kind) => properties.with_type(kind),
            Err(_) => properties,
        }
    }

    async fn publish_messages(
        &self,
        messages: Vec<Message>,
        results: &EventResults,
    ) -> Result<(), RequestResult> {
        let failure = |error| self.link.result_for_error(&error);
        let mut idle = std::iter::from_fn(|| self.idle.borrow_mut().pop());
        let channel = match idle.find(|channel| channel.status().connected()) {
            Some(channel) => channel,
            None => self.link.open_channel().await.map_err(failure)?,
        };
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let mut confirms = Vec::with_capacity(messages.len());
        let mut problem = None;
        for (properties, body) in messages {
            let exchange = self.exchange.clone();
            let key = self.routing_key.clone();
            match channel
                .basic_publish(exchange, key, options, &body, properties)
                .await
            {
                Ok(confirm) => confirms.push(confirm),
                // Earlier messages may be confirmed nevertheless.
                Err(error) => {
                    problem = Some(error);
                    break;
                }
            }
        }
        for (index, confirm) in confirms.into_iter().enumerate() {
            match confirm.await.map_err(failure)? {
                Confirmation::Ack(None) => results.mark_accepted(index),
                Confirmation::Ack(Some(returned)) => {
                    let text = format!(
                        "no queue takes the routing key {}: {}",
                        self.routing_key, returned.reply_text
                    );
                    results.mark_failed(index, &result_of(NO_ROUTE_STATUS, text));
                }
                Confirmation::Nack(_) => {
                    results.mark_failed(
                        index,
                        &failure_result(Failure::Full, "the queue refused the message".to_owned()),
                    );
                }
                Confirmation::NotRequested => unreachable!("the channel has confirms"),
            }
        }
        match problem {
            Some(error) => Err(failure(error)),
            None => {
                self.idle.borrow_mut().push(channel);
                Ok(())
            }
        }
    }

    /// Asks for the exchange or the queue. A missing one closes the channel.
    async fn check_target_exists(&self) -> Result<(), Error> {
        let channel = self.link.open_channel().await?;
        let exchange = self.exchange.clone();
        let queue = self.routing_key.clone();
        if self.exchange.as_str().is_empty() {
            let options = QueueDeclareOptions {
                passive: true,
                ..QueueDeclareOptions::default()
            };
            channel
                .queue_declare(queue, options, FieldTable::default())
                .await
                .map(drop)
        } else {
            let options = ExchangeDeclareOptions {
                passive: true,
                ..ExchangeDeclareOptions::default()
            };
            channel
                .exchange_declare(
                    exchange,
                    ExchangeKind::Topic,
                    options,
                    FieldTable::default(),
                )
                .await
        }
    }
}

impl Sender for Publisher {
    fn send_batch(&self, batch: Batch) -> LocalBoxFuture<'_, Sent<'_>> {
        let messages = self.encode_messages(&batch);
        let wait = batch.wait;
        let results = EventResults::new(&batch);
        drop(batch);
        Box::pin(async move {
            let publish = async |messages, results: &EventResults| {
                self.publish_messages(messages, results).await
            };
            (
                send_within(wait, &self.link.address, results, messages, publish).await,
                None,
            )
        })
    }

    fn check_reachable(&self, _: WallTime) -> LocalBoxFuture<'_, Result<(), UnreachableError>> {
        Box::pin(async {
            self.check_target_exists().await.map_err(|error| {
                UnreachableError::Service(self.link.result_for_error(&error).detail)
            })
        })
    }
}
