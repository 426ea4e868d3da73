//! `AzureFunction`: a function of an Azure Functions app with an Event Grid trigger. It is called
//! like a webhook, at the address of the trigger and with the app's key.

use std::{rc::Rc, sync::Arc};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    BatchMaxima, InvalidProperty, Kind, SenderContext, last_segment, with_refused_credential,
};
use crate::{
    Batch, Destination, HttpSender, HttpTarget, OutgoingRequest, Sender, WebhookEncoding, clients,
    error::SenderError, request::RequestError, sender::RequestEncoder,
};
use gridhook_event::Seq;
use gridhook_policy::outcome::{Failure, RequestResult};

/// A function with an Event Grid trigger
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = AzureFunctionDestinationProperties)]
pub struct AzureFunction {
    /// Resource id of the function: `…/functions/NAME` below the id or the name of a table of
    /// `delivery.resources`
    #[schema(example = "app/functions/orders")]
    pub resource_id: String,
}

impl Kind for AzureFunction {
    const SCHEMES: &'static [&'static str] = &["http", "https"];
    const HAS_PROPERTIES: bool = true;
    const HAS_BATCHES: bool = true;

    fn check_properties(&self) -> Result<(), InvalidProperty> {
        let parts: Vec<&str> = self.resource_id.split('/').collect();
        match parts.as_slice() {
            [.., above, name] if above.eq_ignore_ascii_case("functions") && !name.is_empty() => {
                Ok(())
            }
            _ => Err(InvalidProperty {
                key: "resourceId",
                problem: format!(
                    "is \"{}\"; expected an id that ends with /functions/NAME",
                    self.resource_id.escape_debug()
                ),
            }),
        }
    }

    fn service_limits(&self) -> BatchMaxima {
        // The subscription sets them.
        BatchMaxima {
            events: u32::MAX,
            bytes: u64::MAX,
        }
    }

    fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
        let service = at.require_service();
        let base = service.url.as_str().trim_end_matches('/');
        let name = utf8_percent_encode(last_segment(&self.resource_id), NON_ALPHANUMERIC);
        let destination = at.new_destination(&format!(
            "{base}/runtime/webhooks/eventgrid?functionName={name}"
        ))?;
        let key = service.find_credential("function_key").map(str::to_owned);
        let encoding = Box::new(Invocation {
            service: service.name.clone(),
            webhook: WebhookEncoding::default(),
            key,
        });
        let target = Arc::new(HttpTarget {
            destination,
            encoding,
        });
        let tokens = at.token_source()?;
        Ok(Rc::new(HttpSender {
            client: clients::operators_client(at.options),
            target,
            tokens,
        }))
    }
}

/// The requests of a webhook, with the app's key.
struct Invocation {
    /// The name of the app's table in the settings.
    service: String,
    webhook: WebhookEncoding,
    key: Option<String>,
}

impl RequestEncoder for Invocation {
    fn encode_batch(
        &self,
        destination: &Destination,
        batch: &Batch,
    ) -> Result<OutgoingRequest, RequestError> {
        let mut outgoing = self.webhook.encode_batch(destination, batch)?;
        // Like a delivery property: sent as a sensitive header and never shown.
        outgoing.properties.extend(
            self.key
                .clone()
                .map(|key| ("x-functions-key".to_owned(), key)),
        );
        Ok(outgoing)
    }

    /// The app returns 404 where it has no such function, and 405 where its trigger is of another
    /// kind.
    fn correct_result(&self, result: RequestResult, _: &[Seq]) -> RequestResult {
        match result.status {
            Some(401) => with_refused_credential(result, &self.service),
            Some(405) => RequestResult {
                outcome: Failure::InvalidAzureFunctionDestination.into(),
                ..result
            },
            _ => result,
        }
    }
}
