//! Operations on event subscriptions.
//!
//! A name from a path is the key of the record: for a domain topic it is prefixed with the topic's
//! name.

use std::sync::Arc;

use actix_web::{HttpResponse, http::StatusCode};
use serde_json::Value;
use tracing::info;

use super::{Call, TopicPath, add_warnings, list::PageRequest, not_found, topics::is_in};
use crate::{
    AdminResult, Control,
    model::{
        difference::difference_between,
        domain_topic, provider, refuse_value,
        subscription::{
            self, PathForm, longer_waits_warning, namespace::check_mode, plan::PropertyNames,
            provisioned_subscription_view, subscription_view,
        },
        value_of,
    },
    respond_json, respond_nothing, shares, uses,
};
use gridhook_api::{
    resource::Page,
    subscription::FullUrl,
    what_if::{Difference, ValueChange},
};
use gridhook_engine::control::registry::{ChangeBasis, TopicHandle};
use gridhook_event::Name;
use gridhook_record::{
    proposal::{Provisioned, ProvisioningState},
    subscription::SubscriptionRecord,
    topic::TopicRecord,
};

pub(super) async fn list(call: Call<'_>) -> AdminResult {
    let Call {
        control,
        permissions,
        ..
    } = call;
    let path = call.path.topic()?;
    let page = PageRequest::from_call(call)?;
    let topic = call.find_visible_topic()?;
    let domain_topic = own_domain_topic(&topic, &path);
    if domain_topic
        .as_ref()
        .is_some_and(|name| topic.domain_topic(name.as_str()).is_none())
    {
        return Err(not_found(&path));
    }
    let record = topic.record();
    let all = control
        .registry
        .provisioned_of(&topic, domain_topic.as_ref().map(Name::as_str));
    let mut subscriptions = Vec::new();
    for subscription in all {
        if permissions.sees_subscription(control, &record, &subscription.record) {
            subscriptions.push((subscription.record.key(), subscription));
        }
    }
    let form = call.path.route.form;
    Ok(page.into_response(
        subscriptions,
        |subscription| subscription.record.name.as_str(),
        |subscription| value_of(&provisioned_subscription_view(subscription, &record, form)),
    ))
}

/// All event subscriptions of a scope. In Azure this list also has subscriptions to events of Azure
/// itself, of which there are none here.
pub(super) async fn list_all(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let scope = call.path.azure_scope()?;
    let location = call.path.optional_name("location");
    let topic_type = call.path.optional_name("topicTypeName");
    let page = PageRequest::from_call(call)?;
    let mut subscriptions = Vec::new();
    let permissions = call.permissions;
    for topic in control.registry.list_topics() {
        let record = topic.record();
        // Event subscriptions of namespace topics are another resource type in Azure.
        let in_scope = record.namespace.is_none()
            && is_in(&record.scope, &scope)
            && location.is_none_or(|location| is_same_location(location, &record.location))
            && topic_type.is_none_or(|topic_type| {
                topic_type.eq_ignore_ascii_case(provider::type_name(record.kind()))
            });
        if !in_scope {
            continue;
        }
        for subscription in control.registry.all_provisioned(&topic) {
            if permissions.sees_subscription(control, &record, &subscription.record) {
                let key = format!("{}/{}", record.key(), subscription.record.key());
                subscriptions.push((key, (Arc::clone(&record), subscription)));
            }
        }
    }
    let view = |(topic, subscription): &(Arc<TopicRecord>, Provisioned)| {
        let form = PathForm::Scoped;
        value_of(&provisioned_subscription_view(subscription, topic, form))
    };
    Ok(page.into_response(
        subscriptions,
        |(_, subscription)| subscription.record.name.as_str(),
        view,
    ))
}

/// Compares locations: `westus2` is `West US 2`.
fn is_same_location(a: &str, b: &str) -> bool {
    let plain = |text: &str| text.to_lowercase().replace(' ', "");
    plain(a) == plain(b)
}

pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let topic = call.find_topic()?;
    let subscription = call.find_provisioned(&topic)?;
    respond_json(&provisioned_subscription_view(
        &subscription,
        &topic.record(),
        call.path.route.form,
    ))
}

pub(super) async fn put(call: Call<'_>) -> AdminResult {
    let topic = call.find_topic()?;
    let (existing, mut requested) = read_put_change(call, &topic)?;
    let before = existing
        .as_ref()
        .map(|existing| &existing.record.system_data);
    requested.system_data = call.stamp_change(before);
    let basis = match existing {
        _ if !call.is_conditional => ChangeBasis::Any,
        Some(existing) => ChangeBasis::Record(existing.record),
        None => ChangeBasis::Missing,
    };
    let names = PropertyNames::for_put(&topic.record(), &requested);
    save_and_view(call, &topic.record(), requested, basis, &names).await
}

/// The changes that a PUT would make. No endpoint is validated.
pub(super) async fn difference(call: Call<'_>) -> AdminResult<Difference> {
    let topic = call.find_topic()?;
    let (existing, requested) = read_put_change(call, &topic)?;
    let record = existing.as_ref().map(|existing| &*existing.record);
    let names = PropertyNames::for_put(&topic.record(), &requested);
    let mut difference =
        describe_change(call.control, &topic.record(), record, &requested, &names)?;
    if existing.is_some_and(|existing| matches!(existing.state, ProvisioningState::Failed)) {
        // Validation of its endpoint failed: a PUT validates it again.
        let at = "provisioningState".to_owned();
        let [before, after] = ["Failed", "Succeeded"].map(Value::from);
        difference.changes.push(ValueChange { at, before, after });
    }
    Ok(difference)
}

/// The changes that a PATCH would make. No endpoint is validated.
pub(super) async fn patch_difference(call: Call<'_>) -> AdminResult<Difference> {
    let topic = call.find_topic()?;
    let (existing, requested) = read_patch_change(call, &topic)?;
    let names = PropertyNames::for_patch(&topic.record(), &requested);
    describe_change(
        call.control,
        &topic.record(),
        Some(&existing),
        &requested,
        &names,
    )
}

/// The difference of two records, once the new one is checked as a change of it would be.
fn describe_change(
    control: &Control,
    topic: &TopicRecord,
    existing: Option<&SubscriptionRecord>,
    requested: &SubscriptionRecord,
    names: &PropertyNames,
) -> AdminResult<Difference> {
    let key = topic.key();
    let check = control.registry.check_subscription(&key, requested);
    check.map_err(|error| names.name_error(error))?;
    let before = existing.map(|existing| subscription::settable_json(existing, topic));
    let after = subscription::settable_json(requested, topic);
    let mut difference = difference_between(before.as_ref(), &after);
    let longer_waits = control.registry.longer_waits(topic, requested)?;
    difference
        .warnings
        .extend(longer_waits_warning(&longer_waits));
    difference.needs_validation = control.registry.needs_validation(&key, requested);
    Ok(difference)
}

/// Checks the body of a PUT of an event subscription whose topic or domain does not exist yet.
pub(super) fn check_planned(call: Call<'_>, topic: &TopicRecord) -> AdminResult<()> {
    let control = call.control;
    let name = Name::new(call.path.name("eventSubscriptionName")?);
    let ranges = control.editions.edition_ranges(&topic.edition)?;
    let requested = subscription::read_put(&name, topic, None, ranges, call.body)?;
    uses::check_uses(call, topic, None, &requested)?;
    check_expiration(control, &requested, "properties.expirationTimeUtc")
}

/// Reads a PUT: the existing record, and the record after it.
fn read_put_change(
    call: Call<'_>,
    topic: &TopicHandle,
) -> AdminResult<(Option<Provisioned>, SubscriptionRecord)> {
    let control = call.control;
    let record = topic.record();
    let registry = &control.registry;
    let existing = registry.find_provisioned(topic, &call.path.subscription()?);
    // An existing event subscription keeps the spelling of its name.
    let name = match &existing {
        Some(existing) => existing.record.name.clone(),
        None => Name::new(call.path.name("eventSubscriptionName")?),
    };
    let domain_topic = own_domain_topic(topic, &call.path.topic()?);
    domain_topic
        .as_ref()
        .map(domain_topic::check_its_name)
        .transpose()?;
    if existing.is_none() {
        shares::check_new_subscription(call, topic)?;
    }
    if domain_topic
        .as_ref()
        .is_some_and(|name| topic.domain_topic(name.as_str()).is_none())
    {
        shares::check_new_domain_topic(call, topic)?;
    }
    let ranges = control.editions.edition_ranges(&record.edition)?;
    let mut requested = subscription::read_put(
        &name,
        &record,
        existing.as_ref().map(|existing| &*existing.record),
        ranges,
        call.body,
    )?;
    requested.filter.domain_topic = domain_topic.map(|name| name.to_string());
    if let Some(existing) = &existing {
        check_mode(&existing.record, &requested)?;
    }
    uses::check_uses(
        call,
        &record,
        existing.as_ref().map(|existing| &*existing.record),
        &requested,
    )?;
    check_expiration(control, &requested, "properties.expirationTimeUtc")?;
    settle_start(control, topic, &mut requested, "properties.startsFrom")?;
    Ok((existing, requested))
}

pub(super) async fn patch(call: Call<'_>) -> AdminResult {
    let topic = call.find_topic()?;
    let record = topic.record();
    let (existing, mut requested) = read_patch_change(call, &topic)?;
    let before = Some(&existing.system_data);
    requested.system_data = call.stamp_change(before);
    let basis = ChangeBasis::Record(existing);
    let names = PropertyNames::for_patch(&record, &requested);
    let mut response = save_and_view(call, &record, requested, basis, &names).await?;
    if record.namespace.is_some() {
        *response.status_mut() = StatusCode::OK;
    }
    Ok(response)
}

/// Reads a PATCH: the existing record, and the record after it.
fn read_patch_change(
    call: Call<'_>,
    topic: &TopicHandle,
) -> AdminResult<(Arc<SubscriptionRecord>, SubscriptionRecord)> {
    let control = call.control;
    let record = topic.record();
    let existing = call.find_provisioned(topic)?.record;
    let ranges = control.editions.edition_ranges(&record.edition)?;
    let mut requested = subscription::read_patch(&existing, &record, ranges, call.body)?;
    requested
        .filter
        .domain_topic
        .clone_from(&existing.filter.domain_topic);
    check_mode(&existing, &requested)?;
    uses::check_uses(call, &record, Some(&existing), &requested)?;
    check_expiration(control, &requested, "expirationTimeUtc")?;
    settle_start(control, topic, &mut requested, "startsFrom")?;
    Ok((existing, requested))
}

/// Checks that `startsFrom` is in the past and only of a new event subscription, and sets when it
/// was made. A change keeps the stored time (`ChangeBasis`).
fn settle_start(
    control: &Control,
    topic: &TopicHandle,
    requested: &mut SubscriptionRecord,
    target: &str,
) -> AdminResult<()> {
    let now = control.clock.now();
    let existing = topic.find_subscription(&requested.key());
    let existing_start = existing
        .as_ref()
        .and_then(|existing| existing.starts_from.as_deref());
    let Some(starts) = &mut requested.starts_from else {
        return Ok(());
    };
    if existing.is_some() && existing_start.is_none_or(|start| start.at != starts.at) {
        let problem = format!(
            "is {}, and the event subscription is there already; leave it out, and POST …/replays \
             for what was published before",
            starts.at
        );
        return refuse_value(target, problem);
    }
    if starts.at > now {
        let problem = format!(
            "is {}, which is in the future (it is {now}); expected a time in the past",
            starts.at
        );
        return refuse_value(target, problem);
    }
    starts.made = now;
    Ok(())
}

fn check_expiration(
    control: &Control,
    requested: &SubscriptionRecord,
    target: &str,
) -> AdminResult<()> {
    let now = control.clock.now();
    match requested.expires {
        Some(expires) if expires <= now => {
            let problem = format!(
                "is {expires}, which is not in the future (it is {now}). Invalid expiration time"
            );
            refuse_value(target, problem)
        }
        Some(_) | None => Ok(()),
    }
}

/// The domain topic of the path, in the spelling of its creation.
fn own_domain_topic(domain: &TopicHandle, path: &TopicPath) -> Option<Name> {
    let name = path.domain_topic.as_ref()?;
    match domain.domain_topic(name.as_str()) {
        Some(existing) => Some(existing.name),
        None => Some(name.clone()),
    }
}

/// Validates the endpoint without the lock, because that may take long. The change is stored only
/// if the record is still `basis` afterwards.
async fn save_and_view(
    call: Call<'_>,
    topic: &TopicRecord,
    requested: SubscriptionRecord,
    basis: ChangeBasis,
    names: &PropertyNames,
) -> AdminResult {
    let key = topic.key();
    let registry = &call.control.registry;
    let form = call.path.route.form;
    call.plan_audit(&subscription_view(&requested, topic, form));
    let mut response = HttpResponse::Created();
    let longer_waits = registry.longer_waits(topic, &requested)?;
    add_warnings(&mut response, longer_waits_warning(&longer_waits));
    if registry.needs_validation(&key, &requested) {
        call.lock.release_lock();
        let validation = registry.validate_endpoint(&key, requested, basis).await;
        let provisioned = validation.map_err(|error| names.name_error(error))?;
        return Ok(response.json(provisioned_subscription_view(&provisioned, topic, form)));
    }
    let change = registry.put_subscription(&key, requested, basis).await;
    let record = change.map_err(|error| names.name_error(error))?;
    info!(
        topic = key,
        subscription = record.key(),
        version = record.version,
        "event subscription saved"
    );
    Ok(response.json(subscription_view(&record, topic, form)))
}

pub(super) async fn delete(call: Call<'_>) -> AdminResult {
    let topic = call.find_topic()?.record().key();
    let subscription = call.path.subscription()?;
    let registry = &call.control.registry;
    if registry.delete_subscription(&topic, &subscription).await? {
        info!(topic, subscription, "event subscription deleted");
    }
    respond_nothing()
}

pub(super) async fn full_url(call: Call<'_>) -> AdminResult {
    let topic = call.find_topic()?;
    let subscription = call.find_provisioned(&topic)?;
    respond_json(&FullUrl {
        endpoint_url: subscription.record.webhook.endpoint_url.clone(),
    })
}

/// The only operation that returns the secrets of delivery properties.
pub(super) async fn delivery_attributes(call: Call<'_>) -> AdminResult {
    let topic = call.find_topic()?;
    let subscription = call.find_provisioned(&topic)?;
    respond_json(&Page::whole(
        subscription
            .record
            .webhook
            .delivery_properties
            .iter()
            .collect(),
    ))
}
