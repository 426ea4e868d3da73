//! Publishes to JetStream. All subscriptions of an arbiter share one connection to a server.

#[path = "wire.rs"]
mod wire;

use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::timeout};
use url::Url;

use self::wire::{Login, OutgoingMessage, Reply, Wire, WireError};
use crate::{
    Batch, Sender, Sent,
    error::{SenderError, UnreachableError},
    failure::failure_result,
    request::RequestError,
    resource::{
        Connection, EventResults, ResourceTarget, SenderContext, content_type, credential_refused,
        nats::credentials::Credentials, result_of, send_within, shared::Shared, unreached_result,
    },
};
use gridhook_event::{Event, WallTime};
use gridhook_policy::outcome::{Failure, RequestResult};

/// JetStream's error for a message that is larger than the stream takes.
const MESSAGE_TOO_LARGE: u64 = 10_054;

/// JetStream's error for a message that the stream cannot store.
const STORE_FAILED: u64 = 10_077;

/// Time limit of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit of the question for a subject's stream.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);

thread_local! {
    static LINKS: Shared<Link> = const { Shared::new() };
}

/// A publisher for the subject.
pub(super) fn new_publisher(
    at: &SenderContext<'_>,
    subject: &str,
) -> Result<Rc<dyn Sender>, SenderError> {
    let service = at.require_service();
    let link =
        LINKS.with(|links| links.get(service.name.clone(), || Link::new(at).map(Rc::new)))?;
    Ok(Rc::new(Publisher {
        link,
        subject: subject.to_owned(),
        target: at.target.clone(),
    }))
}

/// A connection to a server, made when it is needed. A lost one is made again with the next
/// request: the retry schedule decides when.
struct Link {
    /// The name of the server's table in the settings.
    service: String,
    url: Url,
    login: Login,
    tls: Arc<ClientConfig>,
    open: Mutex<Option<Rc<Wire>>>,
}

impl Link {
    fn new(at: &SenderContext<'_>) -> Result<Self, SenderError> {
        let service = at.require_service();
        let mut tls = ClientConfig::clone(&at.options.trust.config());
        // The ALPN protocols in these options are those of HTTP.
        tls.alpn_protocols.clear();
        Ok(Self {
            service: service.name.clone(),
            url: service.url.clone(),
            login: new_login(service)?,
            tls: Arc::new(tls),
            open: Mutex::new(None),
        })
    }

    /// The connection. It is made if there is none.
    async fn connected_wire(&self) -> Result<Rc<Wire>, RequestResult> {
        let mut open = self.open.lock().await;
        if let Some(wire) = open.as_ref().filter(|wire| !wire.is_lost()) {
            return Ok(Rc::clone(wire));
        }
        let connecting = Wire::connect_and_log_in(&self.url, &self.login, Arc::clone(&self.tls));
        let Ok(connected) = timeout(CONNECT_TIMEOUT, connecting).await else {
            let text = format!(
                "{}: no connection within {} s",
                self.url,
                CONNECT_TIMEOUT.as_secs()
            );
            return Err(unreached_result(Failure::TimedOut, text));
        };
        let wire = connected.map_err(|error| {
            let text = format!("{}: {error}", self.url);
            match error {
                WireError::Refused(_) => credential_refused(&self.service, &text),
                WireError::UnknownName(_) => unreached_result(Failure::ResolutionError, text),
                _ => unreached_result(Failure::SocketError, text),
            }
        })?;
        Ok(Rc::clone(open.insert(Rc::new(wire))))
    }
}

/// The way in which the client authenticates: with a credentials file, with a token, with a user
/// name and a password, or not at all.
fn new_login(service: &Connection) -> Result<Login, SenderError> {
    let credential = |name| service.find_credential(name).map(str::to_owned);
    match (
        credential("credentials"),
        credential("token"),
        credential("username"),
        credential("password"),
    ) {
        (Some(file), None, None, None) => {
            let credentials = Credentials::parse(&file);
            let credentials =
                credentials.map(|credentials| Login::Credentials(Rc::new(credentials)));
            credentials.ok_or_else(|| SenderError::CredentialsFile(service.name.clone()))
        }
        (None, Some(token), None, None) => Ok(Login::Token(token)),
        (None, None, Some(user), Some(password)) => Ok(Login::Password { user, password }),
        (None, None, None, None) => Ok(Login::None),
        _ => Err(SenderError::Credentials {
            service: service.name.clone(),
            needed: "credentials, or a token, or username and password, or none of them",
        }),
    }
}

struct Publisher {
    link: Rc<Link>,
    subject: String,
    target: ResourceTarget,
}

impl Publisher {
    fn encode_messages(&self, batch: &Batch) -> Result<Vec<OutgoingMessage>, RequestError> {
        let events = batch.events.iter();
        events
            .map(|event| self.encode_message(event, batch))
            .collect()
    }

    fn encode_message(
        &self,
        event: &Event,
        batch: &Batch,
    ) -> Result<OutgoingMessage, RequestError> {
        let mut message = OutgoingMessage::new(self.target.delivered_bytes(event)?);
        message.add_header("Nats-Msg-Id", &self.target.message_id(event, batch));
        message.add_header("content-type", content_type(self.target.schema));
        for (name, value) in self.target.message_headers(event, batch) {
            message.add_header(&name, &value);
        }
        Ok(message)
    }

    async fn publish_messages(
        &self,
        messages: Vec<OutgoingMessage>,
        results: &EventResults,
    ) -> Result<(), RequestResult> {
        let wire = self.link.connected_wire().await?;
        wire.publish_and_wait(&self.subject, messages, |index, reply| {
            match self.check_reply(reply) {
                Ok(()) => results.mark_accepted(index),
                Err(result) => results.mark_failed(index, &result),
            }
        })
        .await
        .map_err(|error| self.failure_result(&error))
    }

    fn failure_result(&self, error: &WireError) -> RequestResult {
        let text = format!("{}: {error}", self.link.url);
        match error {
            WireError::TooLarge(_) => result_of(413, text),
            _ => failure_result(Failure::SocketError, text),
        }
    }

    /// Checks an acknowledgement. An error has the HTTP status that means the same.
    #[expect(
        clippy::result_large_err,
        reason = "an error ends the request, and is rare"
    )]
    fn check_reply(&self, reply: &Reply) -> Result<(), RequestResult> {
        // NATS' own status. Not 404, which is not tried again: a stream takes nothing while it
        // elects its leader.
        if reply.has_no_responders {
            return Err(result_of(503, no_stream(&self.subject)));
        }
        let acknowledgement: Value = serde_json::from_slice(&reply.payload).unwrap_or_default();
        let error = &acknowledgement["error"];
        if error.is_null() && acknowledgement["stream"].is_string() {
            return Ok(());
        }
        let reason = error["description"]
            .as_str()
            .unwrap_or("the response is not an acknowledgement of JetStream");
        let text = format!("{}: {reason}", self.link.url);
        let status = error["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok());
        Err(match (error["err_code"].as_u64(), status) {
            (Some(MESSAGE_TOO_LARGE), _) => result_of(413, text),
            (Some(STORE_FAILED), _) => failure_result(Failure::Full, text),
            (_, Some(status @ 400..=599)) => result_of(status, text),
            _ => failure_result(Failure::GenericError, text),
        })
    }

    /// Asks whether a stream takes the subject.
    async fn find_stream(&self) -> Result<(), UnreachableError> {
        let wire = self
            .link
            .connected_wire()
            .await
            .map_err(|result| UnreachableError::Service(result.detail))?;
        let question = Bytes::from(json!({ "subject": self.subject }).to_string());
        let mut has_no_responders = true;
        let mut streams = Value::Null;
        let note = |_, reply: &Reply| {
            has_no_responders = reply.has_no_responders;
            streams = serde_json::from_slice(&reply.payload).unwrap_or_default();
        };
        let replies = wire
            .publish_and_wait(
                "$JS.API.STREAM.NAMES",
                vec![OutgoingMessage::new(question)],
                note,
            )
            .await;
        replies
            .map_err(|error| UnreachableError::Service(format!("{}: {error}", self.link.url)))?;
        if has_no_responders {
            return Err(UnreachableError::Service(format!(
                "{}: the server has no JetStream",
                self.link.url
            )));
        }
        let is_taken = streams["streams"]
            .as_array()
            .is_some_and(|streams| !streams.is_empty());
        if is_taken {
            Ok(())
        } else {
            Err(UnreachableError::Service(no_stream(&self.subject)))
        }
    }
}

fn no_stream(subject: &str) -> String {
    format!("no stream takes the subject {subject}")
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
                send_within(wait, self.link.url.as_str(), results, messages, publish).await,
                None,
            )
        })
    }

    fn check_reachable(&self, _: WallTime) -> LocalBoxFuture<'_, Result<(), UnreachableError>> {
        Box::pin(async {
            let result = timeout(REACH_TIMEOUT, self.find_stream()).await;
            result.unwrap_or_else(|_| {
                Err(UnreachableError::Service(format!(
                    "{}: no response within {} s",
                    self.link.url,
                    REACH_TIMEOUT.as_secs()
                )))
            })
        })
    }
}
