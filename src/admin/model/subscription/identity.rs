//! A destination with the identity that it is called with: `deliveryWithResourceIdentity` and
//! `deadLetterWithResourceIdentity` of Azure.
//!
//! Checks and records know the destination alone; the identity is kept beside it. A system-assigned
//! identity is that of the server (`delivery.identity_…`).

use serde_json::Value;

use crate::model::{CheckResult, read, refuse_value, take_value};
use gridhook_deliver::resource::Resource;
use gridhook_record::subscription::{
    ManagedIdentities, ResourceIdentity, ResourceIdentityKind, SubscriptionRecord, Webhook,
};

/// A property, and the same with an identity.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) plain: &'static str,
    pub(super) identified: &'static str,
}

pub(super) const DELIVERY: Pair = Pair {
    plain: "destination",
    identified: "deliveryWithResourceIdentity",
};

const DEAD_LETTER: Pair = Pair {
    plain: "deadLetterDestination",
    identified: "deadLetterWithResourceIdentity",
};

impl Pair {
    /// Moves the destination out of `value`'s property with an identity, and returns the identity:
    /// that of `existing`, if `value` has neither that property nor another destination.
    pub(super) fn unwrap_destination(
        self,
        value: &mut Value,
        existing: Option<&ResourceIdentity>,
    ) -> CheckResult<Option<ResourceIdentity>> {
        let Self { plain, identified } = self;
        let is_given = value.get(plain).is_some_and(|given| !given.is_null());
        let Some(mut given) = take_value(value, identified) else {
            let is_replaced = |given: &Value| given.is_null() || given["endpointType"].is_string();
            return Ok(existing
                .filter(|_| !value.get(plain).is_some_and(is_replaced))
                .cloned());
        };
        if given.is_null() {
            if existing.is_some() && !is_given {
                value[plain] = Value::Null;
            }
            return Ok(None);
        }
        if !given.is_object() {
            let problem = format!("is not an object; expected an object with identity and {plain}");
            return refuse_value(identified, problem);
        }
        if is_given {
            let problem = format!("and {plain} are both given; leave one of them out");
            return refuse_value(identified, problem);
        }
        let destination = take_value(&mut given, plain);
        let identity = take_value(&mut given, "identity");
        if let Some(other) = given.as_object().and_then(|rest| rest.keys().next()) {
            let problem = format!("is not known; expected identity and {plain}");
            return refuse_value(format!("{identified}.{other}"), problem);
        }
        match destination {
            Some(destination) if !destination.is_null() => value[plain] = destination,
            None if existing.is_some() => {}
            Some(_) | None => {
                let problem = "is missing; an identity is allowed only with a destination";
                return refuse_value(format!("{identified}.{plain}"), problem);
            }
        }
        let Some(identity) = identity else {
            return Ok(existing.cloned());
        };
        read(identity).map_err(|invalid| invalid.prefixed_with(&format!("{identified}.identity")))
    }
}

/// Unwraps the destinations of events and of dead letters.
pub(super) fn unwrap_destinations(
    value: &mut Value,
    existing: Option<&SubscriptionRecord>,
) -> CheckResult<ManagedIdentities> {
    Ok(ManagedIdentities {
        delivery: DELIVERY.unwrap_destination(
            value,
            existing.and_then(SubscriptionRecord::delivery_identity),
        )?,
        dead_letter: DEAD_LETTER.unwrap_destination(
            value,
            existing.and_then(SubscriptionRecord::dead_letter_identity),
        )?,
    })
}

/// Checks that events can be delivered in the name of `identity`.
pub(super) fn check_identity(
    identity: Option<&ResourceIdentity>,
    webhook: &Webhook,
    resource: Option<&Resource>,
) -> CheckResult {
    let at = |below: &str| format!("{}.{below}", DELIVERY.identified);
    match identity.map(|identity| identity.kind) {
        Some(ResourceIdentityKind::UserAssigned) => refuse_value(
            at("identity.type"),
            "is \"UserAssigned\", which is not supported: the server has one identity; expected \
             SystemAssigned",
        ),
        Some(ResourceIdentityKind::SystemAssigned)
            if resource.is_none() && webhook.token_audience.is_none() =>
        {
            refuse_value(
                at("destination.properties.azureActiveDirectoryApplicationIdOrUri"),
                "is missing; it is the application that the access tokens of the identity are for",
            )
        }
        _ => Ok(()),
    }
}
