//! The compiled event types of a topic, which publishing checks events with.
//!
//! Schemas are compiled when the topic's event types change, without files or network: a reference leads into the schema
//! itself. The work for an event is bounded: a schema cannot refer to itself, its size with all references resolved is
//! limited, and patterns run in linear time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fmt,
};

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use gridhook_record::{
    azure_properties::{EventTypeInfo, EventTypeVersion},
    ingress::SchemaValidation,
    topic::TopicRecord,
};

/// Maximum number of event types of a topic.
const TYPES_MAX: usize = 256;

/// Maximum size of the event types of a topic as JSON, as much as the body of a request.
const CATALOGUE_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of JSON values in the schemas of a topic, with their references resolved.
const VALUES_MAX: usize = 20_000;

/// Maximum depth of a schema, with its references resolved.
const DEPTH_MAX: usize = 64;

/// Maximum number of patterns in the schemas of a topic.
const PATTERNS_MAX: usize = 200;

/// Maximum size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Maximum length of the reason why an event does not match.
const REASON_CHARS_MAX: usize = 256;

/// The `$schema` that a schema may have.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Why event types are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} {problem}")]
pub struct InvalidCatalogue {
    /// The key below `inlineEventTypes`; empty for all.
    pub at: String,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

/// The event types of a topic that validates events.
#[derive(Debug)]
pub struct Catalogue {
    /// Whether an event that does not match is refused.
    pub refuses: bool,
    /// Versions by event type, the newest first.
    types: HashMap<String, Vec<(String, Validator)>>,
}

impl Catalogue {
    /// That of a topic; [`None`] if it validates no event.
    pub fn of(topic: &TopicRecord) -> Option<Self> {
        let refuses = match topic.ingress.schema_validation {
            SchemaValidation::Off => return None,
            SchemaValidation::Warn => false,
            SchemaValidation::Refuse => true,
        };
        let declared = topic.azure_properties.event_type_info.as_ref()?.inline_event_types.as_ref()?;
        let mut types = HashMap::new();
        for (name, declared) in declared {
            // Each was checked when it was put.
            let compiled = |(version, EventTypeVersion { schema, .. }): (&String, &EventTypeVersion)| {
                Some((version.clone(), compile(schema.as_ref()?).ok()?))
            };
            let mut versions: Vec<_> = declared.versions.iter().filter_map(compiled).collect();
            versions.sort_by_cached_key(|(version, _)| Reverse(order(version)));
            if !versions.is_empty() {
                types.insert(name.clone(), versions);
            }
        }
        (!types.is_empty()).then_some(Self { refuses, types })
    }

    /// Why `data` does not match the schema of its type: of its version if that is declared, else of the newest. [`None`] if
    /// it matches, or if its type has no schema.
    pub fn violation(&self, event_type: &str, version: &str, data: Option<&str>) -> Option<String> {
        let versions = self.types.get(event_type)?;
        let (version, validator) = versions.iter().find(|(name, _)| name == version).or(versions.first())?;
        let why = match serde_json::from_str::<Value>(data.unwrap_or("null")) {
            Ok(data) => validator.validate(&data).err().map(|error| mismatch(&error))?,
            Err(error) => format!("it cannot be read: {error}"),
        };
        Some(format!("the data does not match version '{version}' of the schema of '{event_type}': {why}"))
    }
}

/// JSON pointer, rule and reason, without values of the event.
fn mismatch(error: &ValidationError<'_>) -> String {
    format!("at \"{}\", rule \"{}\": {}", error.instance_path(), error.schema_path(), reason(&error.masked()))
}

/// The text of an error, up to the maximum length.
fn reason(error: &impl fmt::Display) -> String {
    error.to_string().chars().take(REASON_CHARS_MAX).collect()
}

/// The order of versions: their parts as numbers, then as text.
fn order(version: &str) -> Vec<(u64, String)> {
    version.split('.').map(|part| (part.parse().unwrap_or(u64::MAX), part.to_owned())).collect()
}

/// Checks the event types of a topic: their number and size, and that each schema is bounded and matches its examples.
///
/// # Errors
/// The first that is not allowed.
pub fn check(info: &EventTypeInfo) -> Result<(), InvalidCatalogue> {
    let refused = |at: String, problem: String| Err(InvalidCatalogue { at, problem });
    let Some(declared) = &info.inline_event_types else { return Ok(()) };
    if declared.len() > TYPES_MAX {
        return refused(String::new(), format!("has {} entries; allowed are {TYPES_MAX}", declared.len()));
    }
    let bytes = serde_json::to_vec(declared).map_or(0, |json| json.len());
    if bytes > CATALOGUE_BYTES_MAX {
        return refused(String::new(), format!("has {bytes} bytes; allowed are {CATALOGUE_BYTES_MAX}"));
    }
    let mut total = SchemaSize::default();
    for (name, declared) in declared {
        check_versions(&declared.versions, &mut total)
            .map_err(|invalid| InvalidCatalogue { at: format!("{name}.{}", invalid.at), ..invalid })?;
    }
    Ok(())
}

fn check_versions(
    versions: &BTreeMap<String, EventTypeVersion>,
    total: &mut SchemaSize,
) -> Result<(), InvalidCatalogue> {
    for (version, EventTypeVersion { schema, examples, .. }) in versions {
        let Some(schema) = schema else { continue };
        let refused =
            |key: &str, problem: String| InvalidCatalogue { at: format!("versions.{version}.{key}"), problem };
        let measured = BoundedSchema { root: schema, open: Vec::new(), total: &mut *total }.schema(schema, 0);
        let validator = measured.and_then(|()| compile(schema)).map_err(|problem| refused("schema", problem))?;
        for (index, example) in examples.iter().enumerate() {
            validator.validate(example).map_err(|error| {
                refused(&format!("examples[{index}]"), format!("does not match the schema {}", mismatch(&error)))
            })?;
        }
    }
    Ok(())
}

/// Compiles a schema of draft 2020-12.
fn compile(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    let options = jsonschema::options().offline().with_draft(Draft::Draft202012).with_pattern_options(patterns);
    options.build(schema).map_err(|error| {
        format!("is not a JSON Schema of draft 2020-12 at \"{}\": {}", error.instance_path(), reason(&error))
    })
}

/// The size of schemas with their references resolved.
#[derive(Debug, Default)]
struct SchemaSize {
    values: usize,
    patterns: usize,
}

/// Measures a schema, and refuses references that lead elsewhere or back.
struct BoundedSchema<'a, 'b> {
    root: &'a Value,
    /// The references that are being resolved.
    open: Vec<&'a Value>,
    total: &'b mut SchemaSize,
}

impl<'a> BoundedSchema<'a, '_> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<(), String> {
        self.count(depth)?;
        let members = match schema {
            Value::Object(members) => members,
            Value::Array(items) => return items.iter().try_for_each(|item| self.schema(item, depth + 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
        };
        for (key, value) in members {
            match (key.as_str(), value) {
                ("$ref", Value::String(target)) => self.reference(target, depth)?,
                ("$dynamicRef" | "$dynamicAnchor" | "$recursiveRef" | "$recursiveAnchor" | "$anchor", _) => {
                    return Err(format!("has {key}; allowed is $ref with a JSON pointer, such as \"#/$defs/name\""));
                }
                ("$id", Value::String(id)) if depth > 0 => {
                    return Err(format!("has the $id \"{id}\" inside; allowed is $id at the top"));
                }
                ("$schema", Value::String(dialect)) if dialect.trim_end_matches('#') != DIALECT => {
                    return Err(format!("has the $schema \"{dialect}\"; allowed is \"{DIALECT}\""));
                }
                ("const" | "enum" | "default" | "examples", _) => self.count(depth)?,
                ("properties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(named)) => {
                    self.named(named, depth)?;
                }
                ("patternProperties", Value::Object(named)) => {
                    self.patterns(named.len())?;
                    self.named(named, depth)?;
                }
                ("pattern", _) => self.patterns(1)?,
                (_, value) => self.schema(value, depth + 1)?,
            }
        }
        Ok(())
    }

    /// Schemas by name: a name is no keyword.
    fn named(&mut self, schemas: &'a Map<String, Value>, depth: usize) -> Result<(), String> {
        schemas.values().try_for_each(|schema| self.schema(schema, depth + 1))
    }

    fn reference(&mut self, target: &str, depth: usize) -> Result<(), String> {
        let pointer = target.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let Some(pointer) = pointer else {
            return Err(format!(
                "refers to \"{target}\", and nothing is fetched; allowed are references into the schema itself, such as \
                 \"#/$defs/name\""
            ));
        };
        let found = percent_decode_str(pointer).decode_utf8().ok().and_then(|pointer| self.root.pointer(&pointer));
        let found = found.ok_or_else(|| format!("refers to \"{target}\", which does not exist"))?;
        if self.open.iter().any(|open| std::ptr::eq(*open, found)) {
            return Err(format!("refers to itself by \"{target}\"; allowed are schemas without recursion"));
        }
        self.open.push(found);
        self.schema(found, depth + 1)?;
        self.open.pop();
        Ok(())
    }

    fn count(&mut self, depth: usize) -> Result<(), String> {
        self.total.values += 1;
        if depth > DEPTH_MAX {
            return Err(format!("is nested deeper than {DEPTH_MAX} levels with its references resolved"));
        }
        if self.total.values > VALUES_MAX {
            return Err(format!(
                "is too large: allowed are {VALUES_MAX} values in all schemas of the topic, with references resolved"
            ));
        }
        Ok(())
    }

    fn patterns(&mut self, more: usize) -> Result<(), String> {
        self.total.patterns += more;
        if self.total.patterns > PATTERNS_MAX {
            return Err(format!("has too many patterns: allowed are {PATTERNS_MAX} in all schemas of the topic"));
        }
        Ok(())
    }
}
