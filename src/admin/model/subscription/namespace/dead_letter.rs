//! `deadLetterDestinationWithResourceIdentity` in two forms: with `StorageBlob` as in the
//! documentation, or with a whole `deadLetterDestination` as in the SDKs. Views have the form of
//! the SDKs.

use serde::Deserialize;
use serde_json::Value;

use super::super::{blob, check};
use crate::model::{EditionRanges, InvalidRequest, read};
use gridhook_api::subscription::{BlobBody, DeadLetterBody, namespace::SdkDeadLetterBody};
use gridhook_record::subscription::{ResourceIdentity, StorageBlobDestination};

/// The key.
pub(super) const KEY: &str = "deadLetterDestinationWithResourceIdentity";

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
pub(super) fn destination(
    given: Value,
    ranges: &EditionRanges,
) -> Result<DeadLetterContainer, InvalidRequest> {
    // `null` is the same as an omitted key.
    let is_documented = given
        .get("deadLetterDestination")
        .is_none_or(Value::is_null);
    let (identity, letters) = if is_documented {
        let DocumentedDeadLetterBody {
            identity,
            delivery_retry_period_in_days,
            endpoint_type,
            storage_blob: properties,
        } = read(given)?;
        (
            identity,
            DeadLetterBody {
                endpoint_type,
                delivery_retry_period_in_days,
                properties,
            },
        )
    } else {
        let SdkDeadLetterBody {
            identity,
            delivery_retry_period_in_days: days,
            dead_letter_destination: letters,
        } = read(given)?;
        let days = days.or(letters.delivery_retry_period_in_days);
        (
            identity,
            DeadLetterBody {
                delivery_retry_period_in_days: days,
                ..letters
            },
        )
    };
    let renamed = |invalid: InvalidRequest| {
        if is_documented {
            documented(invalid)
        } else {
            invalid
        }
    };
    if letters.endpoint_type != "StorageBlob" {
        let problem = format!(
            "is \"{}\"; allowed is StorageBlob, others are not supported yet",
            letters.endpoint_type.escape_debug()
        );
        return Err(renamed(InvalidRequest::new(
            "deadLetterDestination.endpointType",
            problem,
        )));
    }
    Ok((
        check::dead_letter(letters, ranges).map_err(renamed)?,
        identity,
    ))
}

/// Renames the target of an error to the keys of the documentation.
fn documented(invalid: InvalidRequest) -> InvalidRequest {
    let target = invalid
        .target
        .replace("deadLetterDestination.properties", "StorageBlob");
    InvalidRequest {
        target: target.replace("deadLetterDestination.", ""),
        ..invalid
    }
}

/// The view, which a client can send back.
pub(super) fn view(
    destination: &StorageBlobDestination,
    identity: Option<&ResourceIdentity>,
) -> SdkDeadLetterBody {
    SdkDeadLetterBody {
        identity: identity.cloned(),
        delivery_retry_period_in_days: destination.retry_period_days.map(i64::from),
        dead_letter_destination: blob(destination),
    }
}
