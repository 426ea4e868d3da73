//! What Azure accepts in bodies besides the documented form, and templates and clients therefore
//! send: empty text for a property without a value, booleans as text, names of enumerations from
//! older API versions, and keys that other resources have.
//!
//! The reader of a body sees the documented form only. Paths are keys joined by dots, with `[]` for
//! the elements of an array.

use serde_json::Value;

use super::drop_read_only;

/// What the body of one kind of resource may have besides its documented form.
pub(super) struct Tolerance {
    /// Optional properties for which empty text means no value.
    pub(super) empty: &'static [&'static str],
    /// Properties whose boolean value may be text.
    pub(super) booleans: &'static [&'static str],
    /// Former values: path, former value and present value. Without a present value the default
    /// applies.
    pub(super) former: &'static [(&'static str, &'static str, Option<&'static str>)],
    /// Keys that Azure ignores in this kind of resource.
    pub(super) ignored: &'static [&'static str],
}

/// `identity.type` without the space, as bicep modules write it.
pub(super) const FORMER_IDENTITY: (&str, &str, Option<&str>) = (
    "identity.type",
    "SystemAssigned,UserAssigned",
    Some("SystemAssigned, UserAssigned"),
);

/// The input schema of the API versions before CloudEvents 1.0.
pub(super) const FORMER_CLOUD_EVENTS: &str = "CloudEventV01Schema";

impl Tolerance {
    /// Brings a body into the documented form.
    pub(super) fn apply_to(&self, value: &mut Value) {
        drop_read_only(value, self.ignored);
        for path in self.empty {
            visit_path(value, path, &mut |value| {
                if *value == "" {
                    *value = Value::Null;
                }
            });
        }
        for path in self.booleans {
            read_booleans(value, path);
        }
        for (path, former, present) in self.former {
            visit_path(value, path, &mut |value| {
                if value
                    .as_str()
                    .is_some_and(|given| given.eq_ignore_ascii_case(former))
                {
                    *value = present.map_or(Value::Null, Value::from);
                }
            });
        }
    }
}

/// Reads the text of booleans at `path`.
pub(super) fn read_booleans(value: &mut Value, path: &str) {
    visit_path(value, path, &mut read_boolean);
}

fn read_boolean(value: &mut Value) {
    let text = value.as_str().unwrap_or_default();
    if text.eq_ignore_ascii_case("true") {
        *value = true.into();
    } else if text.eq_ignore_ascii_case("false") {
        *value = false.into();
    }
}

/// Calls `change` with each value at `path`.
pub(super) fn visit_path(value: &mut Value, path: &str, change: &mut dyn FnMut(&mut Value)) {
    let (first, below) = path
        .split_once('.')
        .map_or((path, None), |(first, below)| (first, Some(below)));
    let all: &mut dyn Iterator<Item = &mut Value> = match first {
        "[]" => &mut value.as_array_mut().into_iter().flatten(),
        key => &mut value.get_mut(key).into_iter(),
    };
    for value in all {
        match below {
            Some(below) => visit_path(value, below, change),
            None => change(value),
        }
    }
}
