//! `StorageQueue`: a queue of an Azure storage account. Each event is one message, base64-encoded,
//! as Event Grid's is.
//!
//! Requests are signed with the account's key, or carry a shared access signature or an access
//! token.

use std::{fmt::Write as _, rc::Rc, sync::Arc, time::SystemTime};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use ring::hmac;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    BatchMaxima, InvalidProperty, Kind, ResourceTarget, SenderContext, with_refused_credential,
};
use crate::{
    Batch, Destination, HttpSender, HttpTarget, OutgoingRequest, Sender, clients,
    error::SenderError, request::RequestError, sender::RequestEncoder,
};
use gridhook_event::{Seq, WallTime};
use gridhook_policy::outcome::RequestResult;

/// The version of the service's interface.
const VERSION: &str = "2021-08-06";

/// base64 makes 64 KiB, the maximum of a message, of 48 KiB.
const EVENT_BYTES_MAX: u64 = 48 * 1024;

/// A queue of a storage account
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = StorageQueueDestinationProperties)]
pub struct StorageQueue {
    /// Resource id of the storage account, or name of a table of `delivery.resources`
    #[schema(example = "archive")]
    pub resource_id: String,
    /// Name of the queue
    #[schema(example = "orders")]
    pub queue_name: String,
    /// Seconds for which the service keeps a message, or -1 for ever; without it 7 days
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_message_time_to_live_in_seconds: Option<i64>,
}

impl Kind for StorageQueue {
    const SCHEMES: &'static [&'static str] = &["http", "https"];
    const HAS_PROPERTIES: bool = false;

    fn entity_name(&self) -> Option<&str> {
        Some(&self.queue_name)
    }

    fn check_properties(&self) -> Result<(), InvalidProperty> {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let expectation = "lower-case letters, digits and hyphens";
        super::check_text(
            "queueName",
            &self.queue_name,
            3..=63,
            is_allowed,
            expectation,
        )?;
        match self.queue_message_time_to_live_in_seconds {
            None | Some(-1 | 1..) => Ok(()),
            Some(given) => Err(InvalidProperty {
                key: "queueMessageTimeToLiveInSeconds",
                problem: format!("is {given}; expected 1 or more, or -1 for ever"),
            }),
        }
    }

    fn service_limits(&self) -> BatchMaxima {
        BatchMaxima {
            events: 1,
            bytes: EVENT_BYTES_MAX,
        }
    }

    fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
        let service = at.require_service();
        let base = service.url.as_str().trim_end_matches('/');
        let mut url = format!("{base}/{}/messages", self.queue_name);
        let mut parameters = Vec::new();
        if let Some(seconds) = self.queue_message_time_to_live_in_seconds {
            parameters.push(format!("messagettl={seconds}"));
        }
        let tokens = at.token_source()?;
        let authorization = match (
            service.find_credential("access_key"),
            service.find_credential("sas_token"),
            &tokens,
        ) {
            (Some(key), None, None) => Some(SharedKey::from_account_url(&service.url, key)?),
            (None, Some(token), None) => {
                parameters.push(token.trim_start_matches('?').to_owned());
                None
            }
            (None, None, Some(_)) => None,
            _ => {
                return Err(SenderError::Credentials {
                    service: service.name.clone(),
                    needed: "one of access_key, sas_token and token_audience",
                });
            }
        };
        for (index, parameter) in parameters.iter().enumerate() {
            write!(url, "{}{parameter}", if index == 0 { '?' } else { '&' })
                .expect("a string takes everything");
        }
        let destination = at.new_destination(&url)?;
        let encoding = Box::new(Messages {
            service: service.name.clone(),
            target: at.target.clone(),
            authorization,
            queue: self.clone(),
        });
        let target = Arc::new(HttpTarget {
            destination,
            encoding,
        });
        Ok(Rc::new(HttpSender {
            client: clients::operators_client(at.options),
            target,
            tokens,
        }))
    }
}

/// Turns an event into a request that adds a message.
struct Messages {
    /// The name of the account's table in the settings.
    service: String,
    target: ResourceTarget,
    authorization: Option<SharedKey>,
    queue: StorageQueue,
}

impl RequestEncoder for Messages {
    fn encode_batch(
        &self,
        destination: &Destination,
        batch: &Batch,
    ) -> Result<OutgoingRequest, RequestError> {
        let [event] = batch.events.as_slice() else {
            unreachable!("the limit of a batch is one event")
        };
        let text = BASE64_STANDARD.encode(self.target.delivered_bytes(event)?);
        let body = Bytes::from(format!(
            "<QueueMessage><MessageText>{text}</MessageText></QueueMessage>"
        ));
        let mut headers = vec![
            ("content-type", "application/xml".into()),
            ("x-ms-version", VERSION.into()),
        ];
        if let Some(key) = &self.authorization {
            let date = http_date(batch.wall);
            let ttl = self.queue.queue_message_time_to_live_in_seconds;
            headers.push((
                "authorization",
                key.sign_message(destination.url().path(), &date, body.len(), ttl)
                    .into(),
            ));
            // Not `x-ms-date`: the HTTP client sends `date` in any case, and Azurite would expect
            // it to be signed.
            headers.push(("date", date.into()));
        }
        Ok(OutgoingRequest {
            headers,
            properties: Vec::new(),
            body,
            ..OutgoingRequest::default()
        })
    }

    /// An account refuses keys, signatures, networks and permissions with 403, and tokens with 401.
    fn correct_result(&self, result: RequestResult, _: &[Seq]) -> RequestResult {
        match result.status {
            Some(401 | 403) => with_refused_credential(result, &self.service),
            _ => result,
        }
    }
}

fn http_date(wall: WallTime) -> String {
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + wall.since_epoch())
}

/// The key of a storage account.
struct SharedKey {
    account: String,
    key: hmac::Key,
}

impl SharedKey {
    /// The account is the first label of the host, or the first part of the path where the host is
    /// an address, as in the emulator.
    fn from_account_url(url: &url::Url, key: &str) -> Result<Self, SenderError> {
        let host = url.host_str().unwrap_or_default();
        let account = match url.path().split('/').find(|part| !part.is_empty()) {
            Some(account) => account,
            None => host.split('.').next().unwrap_or_default(),
        };
        let key = BASE64_STANDARD
            .decode(key)
            .map_err(|_| SenderError::AccessKey)?;
        Ok(Self {
            account: account.to_owned(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
        })
    }

    /// The value of `authorization` for a request that adds a message.
    fn sign_message(&self, path: &str, date: &str, length: usize, ttl: Option<i64>) -> String {
        let Self { account, key } = self;
        let ttl = ttl.map_or(String::new(), |seconds| format!("\nmessagettl:{seconds}"));
        let text = format!(
            "POST\n\n\n{length}\n\napplication/xml\n{date}\n\n\n\n\n\nx-ms-version:{VERSION}\n/{account}{path}{ttl}"
        );
        let signature = BASE64_STANDARD.encode(hmac::sign(key, text.as_bytes()));
        format!("SharedKey {account}:{signature}")
    }
}
