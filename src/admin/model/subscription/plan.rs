//! Refusals of the delivery plan, as errors of the body that has the property.

use gridhook_api::subscription::namespace::translate_path;
use gridhook_engine::control::registry;
use gridhook_record::{subscription::SubscriptionRecord, topic::TopicRecord};
use gridhook_subscription::PlanError;

use super::{identity, is_namespaced};
use crate::{AdminError, model::InvalidRequest};

/// How a body names the properties of its event subscription.
pub(crate) struct PropertyNames {
    /// Before each path: nothing in a PATCH, whose properties stand at the top.
    root: &'static str,
    is_namespaced: bool,
    has_identity: bool,
}

impl PropertyNames {
    pub(crate) fn for_put(topic: &TopicRecord, requested: &SubscriptionRecord) -> Self {
        Self {
            root: "properties.",
            is_namespaced: is_namespaced(topic),
            has_identity: requested.delivery_identity().is_some(),
        }
    }

    pub(crate) fn for_patch(topic: &TopicRecord, requested: &SubscriptionRecord) -> Self {
        let names = Self::for_put(topic, requested);
        let root = if names.is_namespaced { names.root } else { "" };
        Self { root, ..names }
    }

    /// The error for the registry's refusal of a change.
    pub(crate) fn name_error(&self, error: registry::Error) -> AdminError {
        match error {
            registry::Error::Plan(error) => self.name_plan_error(&error).into(),
            error => error.into(),
        }
    }

    fn name_plan_error(&self, error: &PlanError) -> InvalidRequest {
        let InvalidRequest {
            mut target,
            problem,
        } = invalid_plan(error);
        if self.has_identity && target.starts_with(identity::DELIVERY.plain) {
            target = format!("{}.{target}", identity::DELIVERY.identified);
        }
        if self.is_namespaced {
            target = translate_path(&target, false);
        }
        InvalidRequest::new(format!("{}{target}", self.root), problem)
    }
}

/// The error with the path of the property, which most messages begin with.
pub(crate) fn invalid_plan(error: &PlanError) -> InvalidRequest {
    let text = error.to_string();
    match text.split_once(' ') {
        Some((path, problem)) if path.starts_with(error.target()) => {
            InvalidRequest::new(path.trim_end_matches(':'), problem)
        }
        _ => InvalidRequest::new(error.target(), format!("is refused: {text}")),
    }
}
