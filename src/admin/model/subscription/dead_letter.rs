//! Checks of the dead-letter destination of an event subscription.

use super::STORAGE_BLOB;
use crate::model::{CheckResult, EditionRanges, refuse_value};
use gridhook_api::subscription::{DeadLetterDestination, DeadLetterProperties};
use gridhook_record::subscription::StorageBlobDestination;

/// Checks the `endpointType` of a destination of dead letters.
pub(super) fn dead_letter_type(given: &str) -> CheckResult {
    if given.eq_ignore_ascii_case(STORAGE_BLOB) {
        return Ok(());
    }
    let given = given.escape_debug();
    refuse_value(
        "deadLetterDestination.endpointType",
        format!("is \"{given}\"; expected {STORAGE_BLOB}, others are not supported yet"),
    )
}

const RESOURCE_ID: &str = "deadLetterDestination.properties.resourceId";
const CONTAINER_NAME: &str = "deadLetterDestination.properties.blobContainerName";

/// The part of a container's resource id between the storage account and the container.
const CONTAINERS: &str = "/blobServices/default/containers/";

/// The storage account and the container of a container's resource id; [`None`] for another id.
pub(super) fn container_of(resource_id: &str) -> Option<(&str, &str)> {
    let at = resource_id
        .to_ascii_lowercase()
        .find(&CONTAINERS.to_ascii_lowercase())?;
    Some((&resource_id[..at], &resource_id[at + CONTAINERS.len()..]))
}

/// The container is in `blobContainerName` or, as Azure's CLI sends it, in the resource id. Views
/// have it in `blobContainerName`. An address of a store needs no container.
pub(super) fn read_dead_letter(
    given: DeadLetterDestination,
    ranges: &EditionRanges,
) -> CheckResult<StorageBlobDestination> {
    dead_letter_type(&given.endpoint_type)?;
    let retry_period_days = retry_period(given.delivery_retry_period_in_days, ranges)?;
    let DeadLetterProperties {
        resource_id,
        blob_container_name: named,
    } = given.properties;
    if StorageBlobDestination::is_address(&resource_id) {
        named
            .as_deref()
            .map_or(Ok(()), |named| check_container(CONTAINER_NAME, named))?;
        return Ok(StorageBlobDestination {
            resource_id,
            container: named.unwrap_or_default(),
            retry_period_days,
        });
    }
    let (account, (at, container)) = match (container_of(&resource_id), named.as_deref()) {
        (None, Some(named)) => (resource_id.as_str(), (CONTAINER_NAME, named)),
        (Some((account, container)), None) => (account, (RESOURCE_ID, container)),
        (Some((account, container)), Some(named)) if container == named => {
            (account, (CONTAINER_NAME, named))
        }
        (Some((_, container)), Some(named)) => {
            let named = named.escape_debug();
            let container = container.escape_debug();
            let problem = format!(
                "is \"{named}\", but resourceId ends with the container \"{container}\"; expected \
                 one"
            );
            return refuse_value(CONTAINER_NAME, problem);
        }
        (None, None) => {
            let problem = format!(
                "is missing; expected a name here, or a resourceId that ends with \
                 {CONTAINERS}NAME"
            );
            return refuse_value(CONTAINER_NAME, problem);
        }
    };
    if account.is_empty() {
        let problem = "is empty, or has no storage account before the container; expected a \
            resource id or an address of a store";
        return refuse_value(RESOURCE_ID, problem);
    }
    check_container(at, container)?;
    Ok(StorageBlobDestination {
        resource_id: account.to_owned(),
        container: container.to_owned(),
        retry_period_days,
    })
}

pub(super) fn retry_period(given: Option<i64>, ranges: &EditionRanges) -> CheckResult<Option<u32>> {
    let Some(days) = given else { return Ok(None) };
    let at = "deadLetterDestination.deliveryRetryPeriodInDays";
    match (u32::try_from(days), ranges.retry_period_days_max) {
        (_, 0) => refuse_value(
            at,
            "is not supported by the topic's edition; leave it out".to_owned(),
        ),
        (Ok(days), most) if (1..=most).contains(&days) => Ok(Some(days)),
        (_, most) => refuse_value(
            at,
            format!("is {days}; expected a whole number from 1 to {most}"),
        ),
    }
}

/// Checks the name of a container as Azure does. It can be a folder, so it must not be a path.
fn check_container(at: &str, name: &str) -> CheckResult {
    let legal = (3..=63).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    if legal {
        return Ok(());
    }
    let what = if at == RESOURCE_ID {
        "names the container"
    } else {
        "is"
    };
    let allowed = "expected 3 to 63 lower-case letters, digits and single hyphens between them";
    refuse_value(at, format!("{what} \"{}\"; {allowed}", name.escape_debug()))
}

/// `deadLetterInProbation` needs a destination: without one, events that only wait would be
/// dropped.
pub(super) fn in_probation(
    given: Option<bool>,
    destination: Option<&StorageBlobDestination>,
) -> CheckResult<bool> {
    match (given.unwrap_or_default(), destination) {
        (true, None) => refuse_value(
            "deadLetterInProbation",
            "is true without a deadLetterDestination; expected false, or true beside a \
             deadLetterDestination",
        ),
        (asked, Some(_) | None) => Ok(asked),
    }
}
