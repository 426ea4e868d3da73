//! `deadLetterDestinationWithResourceIdentity` in two forms: with `StorageBlob` as in the documentation, or with a whole
//! `deadLetterDestination` as in the SDKs. Views have the form of the SDKs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::super::{BlobBody, DeadLetterBody, check};
use crate::{
    admin::model::{EditionRanges, InvalidRequest, read, value_of},
    control::record::subscription::{ResourceIdentity, StorageBlobDestination},
};

/// The key.
pub(super) const KEY: &str = "deadLetterDestinationWithResourceIdentity";

/// Destination of dead letters with an identity, in the form of the SDKs.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterWithResourceIdentity)]
pub(super) struct SdkDeadLetterBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<ResourceIdentity>,
    /// Days for which writing to an unreachable store is retried
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2)]
    delivery_retry_period_in_days: Option<i64>,
    dead_letter_destination: DeadLetterBody,
}

/// The form of the documentation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DocumentedDeadLetterBody {
    identity: Option<ResourceIdentity>,
    delivery_retry_period_in_days: Option<i64>,
    endpoint_type: String,
    #[serde(rename = "StorageBlob", alias = "storageBlob")]
    storage_blob: BlobBody,
}

/// A dead-letter destination and its identity.
pub(super) type DeadLetterContainer = (StorageBlobDestination, Option<ResourceIdentity>);

/// Reads the value of the key.
pub(super) fn destination(given: Value, ranges: &EditionRanges) -> Result<DeadLetterContainer, InvalidRequest> {
    // `null` is the same as an omitted key.
    let is_documented = given.get("deadLetterDestination").is_none_or(Value::is_null);
    let (identity, letters) = if is_documented {
        let DocumentedDeadLetterBody {
            identity,
            delivery_retry_period_in_days,
            endpoint_type,
            storage_blob: properties,
        } = read(given)?;
        (identity, DeadLetterBody { endpoint_type, delivery_retry_period_in_days, properties })
    } else {
        let SdkDeadLetterBody { identity, delivery_retry_period_in_days: days, dead_letter_destination: letters } =
            read(given)?;
        let days = days.or(letters.delivery_retry_period_in_days);
        (identity, DeadLetterBody { delivery_retry_period_in_days: days, ..letters })
    };
    let renamed = |invalid: InvalidRequest| if is_documented { documented(invalid) } else { invalid };
    if letters.endpoint_type != "StorageBlob" {
        let problem = format!(
            "is \"{}\"; allowed is StorageBlob, others are not supported yet",
            letters.endpoint_type.escape_debug()
        );
        return Err(renamed(InvalidRequest::new("deadLetterDestination.endpointType", problem)));
    }
    Ok((check::dead_letter(letters, ranges).map_err(renamed)?, identity))
}

/// Renames the target of an error to the keys of the documentation.
fn documented(invalid: InvalidRequest) -> InvalidRequest {
    let target = invalid.target.replace("deadLetterDestination.properties", "StorageBlob");
    InvalidRequest { target: target.replace("deadLetterDestination.", ""), ..invalid }
}

/// The view, which a client can send back.
pub(super) fn to_json(destination: &StorageBlobDestination, identity: Option<&ResourceIdentity>) -> Value {
    value_of(&SdkDeadLetterBody {
        identity: identity.cloned(),
        delivery_retry_period_in_days: destination.retry_period_days.map(i64::from),
        dead_letter_destination: DeadLetterBody {
            endpoint_type: "StorageBlob".to_owned(),
            delivery_retry_period_in_days: None,
            properties: BlobBody {
                resource_id: destination.resource_id.clone(),
                blob_container_name: Some(destination.container.clone()).filter(|container| !container.is_empty()),
            },
        },
    })
}
