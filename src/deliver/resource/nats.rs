//! `Nats`: a subject of a NATS server whose messages a JetStream stream keeps.
//!
//! An event is one message; delivery properties are its headers. A request has succeeded when the
//! stream has acknowledged all its messages. `Nats-Msg-Id` is the same at every attempt: within its
//! duplicate window the stream drops repeats.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{InvalidProperty, Kind, SenderContext, check_text, not_allowed};
use crate::{Sender, error::SenderError};

/// A subject of NATS JetStream
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NatsDestinationProperties)]
pub struct Nats {
    /// Name of a table of `delivery.resources`, or a resource id that it stands for
    #[schema(example = "cluster")]
    pub resource_id: String,
    /// Subject that a stream takes
    #[schema(example = "orders.created")]
    pub subject: String,
}

impl Kind for Nats {
    const SCHEMES: &'static [&'static str] = &["nats", "tls"];
    const HAS_PROPERTIES: bool = true;
    const TAKES_PARTS: bool = true;

    fn entity_name(&self) -> Option<&str> {
        Some(&self.subject)
    }

    fn check_properties(&self) -> Result<(), InvalidProperty> {
        let is_allowed = |c: char| c.is_ascii_graphic() && !matches!(c, '*' | '>');
        let expectation = "ASCII characters without spaces, * and >, in parts that are not empty";
        let lengths = 1..=255;
        check_text(
            "subject",
            &self.subject,
            lengths.clone(),
            is_allowed,
            expectation,
        )?;
        if self.subject.split('.').any(str::is_empty) {
            return Err(not_allowed("subject", &self.subject, &lengths, expectation));
        }
        Ok(())
    }

    fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
        new_publisher(at, &self.subject)
    }
}

#[cfg(feature = "nats")]
use client::new_publisher;

#[cfg(not(feature = "nats"))]
fn new_publisher(_: &SenderContext<'_>, _: &str) -> Result<Rc<dyn Sender>, SenderError> {
    Err(SenderError::NoClient(
        "is a NATS server, and this build of gridhook has no NATS client (feature nats)",
    ))
}

#[cfg(feature = "nats")]
#[path = "nats/client.rs"]
mod client;
#[cfg(feature = "nats")]
#[path = "nats/credentials.rs"]
pub mod credentials;
