//! The properties of a topic for publishers: `disableLocalAuth`, `publicNetworkAccess`,
//! `inboundIpRules`, `inputSchemaMapping` and `duplicateDetectionHistoryTimeWindow`.

use std::ops::RangeInclusive;

use crate::model::{CheckResult, InvalidRequest, refuse_value};
use gridhook_api::{
    duration::{InvalidDuration, parse_seconds},
    topic::TopicProperties,
};
use gridhook_event::Schema;
use gridhook_record::{
    ingress::{IngressSettings, InputSchemaMapping, MappedField, MappedFieldOrDefault},
    topic::TopicKind,
};

/// Maximum number of IP rules, as in Azure.
const RULES_MAX: usize = 128;

/// Maximum length of a name or default of a mapping. Azure documents none.
const TEXT_MAX: usize = 512;

/// The bounds of `duplicateDetectionHistoryTimeWindow` in seconds, as in Service Bus: 20 seconds to
/// 7 days.
const DUPLICATE_WINDOW: RangeInclusive<i64> = 20..=7 * 24 * 60 * 60;

/// Reads `duplicateDetectionHistoryTimeWindow`, in seconds.
pub(crate) fn duplicate_window(given: &str) -> CheckResult<u32> {
    let at = "properties.duplicateDetectionHistoryTimeWindow";
    let examples = "PT10M, PT12H or P1D";
    let invalid = |InvalidDuration(problem)| InvalidRequest::new(at, problem);
    let window = parse_seconds(given, examples).map_err(invalid)?;
    u32::try_from(window)
        .ok()
        .filter(|_| DUPLICATE_WINDOW.contains(&window))
        .ok_or_else(|| invalid(InvalidDuration::new(given, "from PT20S to P7D", examples)))
}

/// The settings of a topic with this schema; `existing` is its mapping. As in ARM, an omitted
/// property gets its default, except for the mapping, which is kept with the schema.
pub(crate) fn settle_ingress(
    body: TopicProperties,
    kind: TopicKind,
    schema: Schema,
    existing: Option<&InputSchemaMapping>,
) -> CheckResult<IngressSettings> {
    let rules = body.inbound_ip_rules.unwrap_or_default();
    if rules.len() > RULES_MAX {
        let count = rules.len();
        let problem = format!("has {count} entries; expected at most {RULES_MAX}");
        return refuse_value("properties.inboundIpRules", problem);
    }
    let requested = body.input_schema_mapping.map(|body| body.properties);
    let mapping = match (schema, requested) {
        (Schema::Custom, requested) => Some(check_mapping(
            kind,
            requested.or_else(|| existing.cloned()).unwrap_or_default(),
        )?),
        (Schema::EventGrid | Schema::CloudEvents, None) => None,
        (Schema::EventGrid | Schema::CloudEvents, Some(_)) => {
            let problem = "is for topics whose inputSchema is CustomEventSchema; leave it out";
            return refuse_value("properties.inputSchemaMapping", problem);
        }
    };
    Ok(IngressSettings {
        disable_local_auth: body.disable_local_auth.unwrap_or_default(),
        public_network_access: body.public_network_access.unwrap_or_default(),
        inbound_ip_rules: rules,
        mapping,
        duplicate_window_s: body
            .duplicate_detection_history_time_window
            .map(|given| duplicate_window(&given))
            .transpose()?,
        schema_validation: body.schema_validation.unwrap_or_default(),
    })
}

fn check_mapping(kind: TopicKind, mapping: InputSchemaMapping) -> CheckResult<InputSchemaMapping> {
    let InputSchemaMapping {
        id,
        topic,
        event_time,
        event_type,
        subject,
        data_version,
    } = &mapping;
    for (name, source) in [("id", id), ("topic", topic), ("eventTime", event_time)] {
        if let Some(MappedField {
            source_field: Some(field),
        }) = source
        {
            check_text(name, "sourceField", field)?;
        }
    }
    for (name, source) in [
        ("eventType", event_type),
        ("subject", subject),
        ("dataVersion", data_version),
    ] {
        let Some(MappedFieldOrDefault {
            source_field,
            default_value,
        }) = source
        else {
            continue;
        };
        if let Some(field) = source_field {
            check_text(name, "sourceField", field)?;
        }
        if let Some(value) = default_value {
            check_text(name, "defaultValue", value)?;
        }
    }
    let says_a_topic = |source: &MappedField| source.source_field.is_some();
    if kind == TopicKind::Domain && !topic.as_ref().is_some_and(says_a_topic) {
        return refuse_value(
            "properties.inputSchemaMapping.properties.topic",
            "is missing; a domain with CustomEventSchema needs its sourceField, the field with the \
             topic of an event",
        );
    }
    let says_a_type = |source: &MappedFieldOrDefault| {
        source.source_field.is_some() || source.default_value.is_some()
    };
    if event_type.as_ref().is_some_and(says_a_type) {
        return Ok(mapping);
    }
    refuse_value(
        "properties.inputSchemaMapping.properties.eventType",
        "is missing; a topic with CustomEventSchema needs its sourceField, its defaultValue or \
         both",
    )
}

fn check_text(property: &str, part: &str, given: &str) -> CheckResult {
    let at = format!("properties.inputSchemaMapping.properties.{property}.{part}");
    match given.chars().count() {
        // Azure's clients send an empty default instead of none.
        0 if part == "defaultValue" => Ok(()),
        0 => refuse_value(at, "is empty; leave it out or give a name"),
        length if length > TEXT_MAX => refuse_value(
            at,
            format!("has {length} characters; expected at most {TEXT_MAX}"),
        ),
        _ => Ok(()),
    }
}
