//! The NATS client: async-nats, NATS' own. All subscriptions of an arbiter share one connection to a server.

use std::{error::Error as _, rc::Rc, sync::Arc, time::Duration};

use async_nats::{
    ConnectErrorKind, ConnectOptions, Event as ClientEvent,
    connection::State,
    jetstream::{
        self,
        context::{Context, GetStreamByNameErrorKind, PublishError, PublishErrorKind},
        message::PublishMessage,
    },
};
use futures_util::future::{LocalBoxFuture, join_all};
use tokio::sync::{Mutex, watch};

use crate::{
    deliver::{
        Batch, Sender, Sent,
        failure::failure,
        request::RequestError,
        resource::{
            Connection, EventResults, Opening, ResourceTarget, content_type, credential_refused, result_of,
            shared::Shared, unreached, within,
        },
    },
    event::WallTime,
    policy::outcome::{Failure, RequestResult},
};

thread_local! {
    static LINKS: Shared<Link> = const { Shared::new() };
}

/// A publisher for the subject.
pub(super) fn connect(at: &Opening<'_>, subject: &str) -> Result<Rc<dyn Sender>, String> {
    let service = at.service();
    let link = LINKS.with(|links| links.get(service.name.clone(), || Link::new(at).map(Rc::new)))?;
    Ok(Rc::new(Publisher { link, subject: subject.to_owned(), target: at.target.clone() }))
}

/// A connection to a server, made when it is needed.
struct Link {
    /// The name of its table in the settings.
    service: String,
    address: String,
    options: ConnectOptions,
    open: Mutex<Option<Context>>,
    /// Changes when a connection is lost: a message that waits for its acknowledgement then waits in vain.
    lost: Arc<watch::Sender<()>>,
}

impl Link {
    fn new(at: &Opening<'_>) -> Result<Self, String> {
        let service = at.service();
        let lost = Arc::new(watch::Sender::new(()));
        let on_event = Arc::clone(&lost);
        let mut tls = rustls::ClientConfig::clone(&at.options.trust.config());
        // They are those of HTTP.
        tls.alpn_protocols.clear();
        // A lost connection is not opened again behind our back: the retry schedule decides when.
        let options = ConnectOptions::new()
            .name("gridhook")
            .max_reconnects(1)
            .require_tls(service.url.scheme() == "tls")
            .tls_client_config(tls)
            .event_callback(move |event| {
                if matches!(event, ClientEvent::Disconnected | ClientEvent::Closed) {
                    on_event.send_replace(());
                }
                async {}
            });
        Ok(Self {
            service: service.name.clone(),
            address: service.url.to_string(),
            options: log_in(options, service)?,
            open: Mutex::new(None),
            lost,
        })
    }

    /// The connection, made if there is none.
    async fn context(&self) -> Result<Context, RequestResult> {
        let mut open = self.open.lock().await;
        if let Some(context) = open.as_ref().filter(|open| open.client().connection_state() == State::Connected) {
            return Ok(context.clone());
        }
        let opened = self.options.clone().connect(&self.address).await.map_err(|error| {
            let text = format!("{}: {error}", self.address);
            match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    credential_refused(&self.service, &text)
                }
                ConnectErrorKind::Dns => unreached(Failure::ResolutionError, text),
                ConnectErrorKind::TimedOut => unreached(Failure::TimedOut, text),
                _ => unreached(Failure::SocketError, text),
            }
        })?;
        Ok(open.insert(jetstream::new(opened)).clone())
    }
}

/// How the client authenticates: with a credentials file, with a token, with a user name and a password, or not at all.
fn log_in(options: ConnectOptions, service: &Connection) -> Result<ConnectOptions, String> {
    let credential = |name| service.credential(name).map(str::to_owned);
    match (credential("credentials"), credential("token"), credential("username"), credential("password")) {
        (Some(file), None, None, None) => {
            let wrong = |_| format!("delivery.resources.{}.credentials is no credentials file of NATS", service.name);
            options.credentials(&file).map_err(wrong)
        }
        (None, Some(token), None, None) => Ok(options.token(token)),
        (None, None, Some(username), Some(password)) => Ok(options.user_and_password(username, password)),
        (None, None, None, None) => Ok(options),
        _ => Err(format!(
            "delivery.resources.{} needs credentials, or a token, or username and password, or none of them",
            service.name
        )),
    }
}

struct Publisher {
    link: Rc<Link>,
    subject: String,
    target: ResourceTarget,
}

impl Publisher {
    fn messages(&self, batch: &Batch) -> Result<Vec<PublishMessage>, RequestError> {
        let message = |event| {
            let mut message = PublishMessage::build()
                .payload(self.target.delivered(event)?)
                .message_id(self.target.message_id(event, batch))
                .header("content-type", content_type(self.target.schema));
            for (name, value) in self.target.headers(event, batch) {
                message = message.header(name, value);
            }
            Ok(message)
        };
        batch.events.iter().map(message).collect()
    }

    async fn publish(
        &self,
        messages: Vec<PublishMessage>,
        wait: Duration,
        results: &EventResults,
    ) -> Result<(), RequestResult> {
        let mut context = self.link.context().await?;
        context.set_timeout(wait);
        let mut lost = self.link.lost.subscribe();
        let publish = async |message| {
            let acknowledged = context.send_publish(self.subject.clone(), message).await?;
            acknowledged.await
        };
        let publish_and_note = async |(index, message)| match publish(message).await {
            Ok(_) => results.deliver(index),
            Err(error) => results.fail(index, &self.result(&error)),
        };
        tokio::select! {
            _ = join_all(messages.into_iter().enumerate().map(publish_and_note)) => Ok(()),
            _ = lost.changed() => {
                let text = format!("the connection to {} was lost before the acknowledgement", self.link.address);
                Err(failure(Failure::SocketError, text))
            }
        }
    }

    /// The result for an error of the client, with the HTTP status that means the same.
    fn result(&self, error: &PublishError) -> RequestResult {
        let text = format!("{}: {error}", self.link.address);
        match error.kind() {
            // NATS' own status. Not 404, which is not tried again: a stream takes nothing while it elects its leader.
            PublishErrorKind::StreamNotFound => result_of(503, no_stream(&self.subject)),
            PublishErrorKind::MaxPayloadExceeded => result_of(413, text),
            PublishErrorKind::TimedOut => failure(Failure::TimedOut, text),
            PublishErrorKind::BrokenPipe => failure(Failure::SocketError, text),
            PublishErrorKind::MaxAckPending => result_of(503, text),
            PublishErrorKind::WrongLastMessageId | PublishErrorKind::WrongLastSequence | PublishErrorKind::Other => {
                let cause = error.source().and_then(|cause| cause.downcast_ref::<jetstream::Error>());
                match cause.map(|cause| (cause.error_code(), u16::try_from(cause.code()))) {
                    Some((jetstream::ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, _)) => result_of(413, text),
                    Some((jetstream::ErrorCode::STREAM_STORE_FAILED, _)) => failure(Failure::Full, text),
                    Some((_, Ok(status @ 400..=599))) => result_of(status, text),
                    _ => failure(Failure::GenericError, text),
                }
            }
        }
    }
}

fn no_stream(subject: &str) -> String {
    format!("no stream takes the subject {subject}")
}

impl Sender for Publisher {
    fn send(&self, batch: Batch) -> LocalBoxFuture<'_, Sent<'_>> {
        let (messages, wait) = (self.messages(&batch), batch.wait);
        let results = EventResults::new(&batch);
        drop(batch);
        Box::pin(async move {
            let publish = async |messages, results: &EventResults| self.publish(messages, wait, results).await;
            (within(wait, &self.link.address, results, messages, publish).await, None)
        })
    }

    fn reach(&self, _: WallTime) -> LocalBoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let context = self.link.context().await.map_err(|result| result.detail)?;
            match context.stream_by_subject(&*self.subject).await {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => Err(no_stream(&self.subject)),
                Err(error) => Err(format!("{}: {error}", self.link.address)),
            }
        })
    }
}
