//! `Amqp`: an exchange of RabbitMQ or of another broker of AMQP 0-9-1; without an exchange, a
//! queue.
//!
//! An event is one persistent message; delivery properties are its headers. A request has succeeded
//! when the broker has confirmed all its messages. A message that no queue takes is a failure that
//! is tried again.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{InvalidProperty, Kind, SenderContext, check_text};
use crate::{Sender, error::SenderError};

/// An exchange or a queue of RabbitMQ or of another broker of AMQP 0-9-1
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = AmqpDestinationProperties)]
pub struct Amqp {
    /// Name of a table of `delivery.resources`, or a resource id that it stands for
    #[schema(example = "broker")]
    pub resource_id: String,
    /// Name of the exchange; without it the default exchange, whose routing keys are names of
    /// queues
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(example = "events")]
    pub exchange: String,
    /// Routing key of the messages; without an exchange, the name of a queue
    #[schema(example = "orders")]
    pub routing_key: String,
}

impl Kind for Amqp {
    const SCHEMES: &'static [&'static str] = &["amqp", "amqps"];
    const HAS_PROPERTIES: bool = true;
    const TAKES_PARTS: bool = true;

    fn entity_name(&self) -> Option<&str> {
        Some(if self.exchange.is_empty() {
            &self.routing_key
        } else {
            &self.exchange
        })
    }

    fn check_properties(&self) -> Result<(), InvalidProperty> {
        let is_allowed = |c: char| c.is_ascii_graphic() || c == ' ';
        check_text(
            "exchange",
            &self.exchange,
            0..=255,
            is_allowed,
            "printable ASCII characters",
        )?;
        let min = usize::from(self.exchange.is_empty());
        check_text(
            "routingKey",
            &self.routing_key,
            min..=255,
            is_allowed,
            "printable ASCII characters",
        )
    }

    fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
        new_publisher(at, &self.exchange, &self.routing_key)
    }
}

#[cfg(feature = "amqp")]
use client::new_publisher;

#[cfg(not(feature = "amqp"))]
fn new_publisher(_: &SenderContext<'_>, _: &str, _: &str) -> Result<Rc<dyn Sender>, SenderError> {
    Err(SenderError::NoClient(
        "is an AMQP broker, and this build of gridhook has no AMQP client (feature amqp)",
    ))
}

#[cfg(feature = "amqp")]
#[path = "amqp/client.rs"]
mod client;
