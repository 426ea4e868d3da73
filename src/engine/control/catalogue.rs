//! The compiled event types of a topic, which publishing checks events with.
//!
//! Schemas are compiled without files or network: a reference leads into the schema itself. The
//! work for an event is bounded before it is done: a schema cannot refer to itself, its size with
//! all references resolved is limited, and its cost for data of a given length follows from it
//! (`cost`). Compiling and checking belong on the threads of `compute`.

mod cost;

use std::{
    cmp::Reverse,
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use self::cost::CheckCost;
use gridhook_compute::{ComputeError, Meter};
use gridhook_record::{
    azure_properties::{EventTypeInfo, EventTypeVersion, InlineEventType},
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

/// 64 million steps of a check of one event, each of 5 to 35 ns. More are refused.
const STEPS_MAX: f64 = 64_000_000.0;

/// A schema that could take too many steps for data of 64 KiB is refused.
const USUAL_DATA_BYTES: usize = 64 * 1024;

/// The `$schema` that a schema may have.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Why event types are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} {problem}")]
pub struct InvalidCatalogue {
    /// The key below `inlineEventTypes`; empty for all.
    pub at: String,
    /// What is wrong with the event types, and what is allowed.
    pub problem: String,
}

/// An invalid schema, or example of one: the text says what is wrong, and what is allowed.
#[derive(Debug, thiserror::Error)]
enum InvalidSchema {
    #[error("could take more than {STEPS_MAX} steps to check")]
    ExampleSteps,
    #[error("does not match the schema {0}")]
    Example(String),
    #[error("is not a JSON Schema of draft 2020-12 at \"{at}\": {problem}")]
    Draft { at: String, problem: String },
    #[error(
        "could take {steps:.0} steps to check {USUAL_DATA_BYTES} bytes of data, most of them for \
         {keyword}; expected at most {STEPS_MAX}"
    )]
    Steps { steps: f64, keyword: String },
    #[error("has {0}; expected $ref with a JSON pointer, such as \"#/$defs/name\"")]
    Keyword(String),
    #[error("has the $id \"{0}\" inside; expected $id at the top")]
    InnerId(String),
    #[error("has the $schema \"{0}\"; expected \"{DIALECT}\"")]
    Dialect(String),
    #[error(
        "refers to \"{0}\", and nothing is fetched; expected references into the schema \
         itself, such as \"#/$defs/name\""
    )]
    RemoteReference(String),
    #[error("refers to \"{0}\", which does not exist")]
    UnknownReference(String),
    #[error("refers to itself by \"{0}\"; expected schemas without recursion")]
    Recursion(String),
    #[error("is nested deeper than {DEPTH_MAX} levels with its references resolved")]
    Depth,
    #[error(
        "is too large: expected at most {VALUES_MAX} values in all schemas of the topic, with \
         references resolved"
    )]
    Values,
    #[error("has too many patterns: expected at most {PATTERNS_MAX} in all schemas of the topic")]
    Patterns,
    #[error(
        "has the pattern \"{pattern}\" with {positions} positions, its repetitions written out; \
         expected at most {max}",
        max = cost::POSITIONS_MAX
    )]
    Pattern { pattern: String, positions: usize },
}

/// The event types of a topic that validates events.
#[derive(Debug)]
pub struct Catalogue {
    /// Whether an event that does not match is refused.
    pub refuses: bool,
    /// Versions by event type, the newest first.
    types: HashMap<String, Vec<Arc<DeclaredSchema>>>,
}

/// The schema of a version of an event type.
#[derive(Debug)]
pub struct DeclaredSchema {
    event_type: String,
    version: String,
    schema: Value,
    /// The cost of a check; [`None`] if it has no bound, for a schema that was stored before such
    /// schemas were refused.
    cost: Option<CheckCost>,
    /// The compiled schema, from its first use on.
    validator: OnceLock<Option<Validator>>,
}

impl Catalogue {
    /// Compiles the event types of a topic; [`None`] if the topic validates no event.
    pub fn from_topic(topic: &TopicRecord) -> Option<Self> {
        let refuses = match topic.ingress.schema_validation {
            SchemaValidation::Off => return None,
            SchemaValidation::Warn => false,
            SchemaValidation::Refuse => true,
        };
        let declarations = topic
            .azure_properties
            .event_type_info
            .as_ref()?
            .inline_event_types
            .as_ref()?;
        let mut types = HashMap::new();
        for (name, declarations) in declarations {
            let mut versions = Vec::new();
            for (version, declared) in &declarations.versions {
                if let Some(schema) = &declared.schema {
                    versions.push(Arc::new(DeclaredSchema::new(name, version, schema)));
                }
            }
            versions.sort_by_cached_key(|declared| Reverse(version_order(&declared.version)));
            if !versions.is_empty() {
                types.insert(name.clone(), versions);
            }
        }
        (!types.is_empty()).then_some(Self { refuses, types })
    }

    /// The schema for data of a type: of its version if that is declared, else of the newest.
    /// [`None`] if it has none.
    pub fn find_schema(&self, event_type: &str, version: &str) -> Option<&Arc<DeclaredSchema>> {
        let versions = self.types.get(event_type)?;
        versions
            .iter()
            .find(|declared| declared.version == version)
            .or(versions.first())
    }
}

impl DeclaredSchema {
    fn new(event_type: &str, version: &str, schema: &Value) -> Self {
        let mut total = SchemaSize::default();
        let cost = BoundedSchema {
            root: schema,
            open: Vec::new(),
            total: &mut total,
        }
        .schema_cost(schema, 0)
        .ok();
        Self {
            event_type: event_type.to_owned(),
            version: version.to_owned(),
            schema: schema.clone(),
            cost,
            validator: OnceLock::new(),
        }
    }

    /// The most steps that a check of data of this length takes, if it is compiled.
    pub fn check_steps_max(&self, bytes: usize) -> f64 {
        let cost = self.cost.filter(|_| self.validator.get().is_some());
        cost.map_or(f64::INFINITY, |cost| cost.steps_for(bytes))
    }

    /// Why `data` does not match; [`None`] if it matches.
    pub fn find_violation(&self, data: Option<&str>) -> Option<String> {
        let data = data.unwrap_or("null");
        let Self {
            event_type,
            version,
            ..
        } = self;
        let steps = self
            .cost
            .map_or(f64::INFINITY, |cost| cost.steps_for(data.len()));
        if steps > STEPS_MAX {
            return Some(format!(
                "the data cannot be checked: version '{version}' of the schema of '{event_type}' \
                 could take {steps:.0} steps for {} bytes; expected at most {STEPS_MAX}",
                data.len()
            ));
        }
        // A stored schema was checked when it was put.
        let validator = self
            .validator
            .get_or_init(|| compile_schema(&self.schema).ok())
            .as_ref()?;
        let why = match serde_json::from_str::<Value>(data) {
            // The reason is found after the verdict: it costs more.
            Ok(data) if validator.is_valid(&data) => return None,
            Ok(data) => describe_mismatch(&validator.validate(&data).err()?),
            Err(error) => format!("it cannot be read: {error}"),
        };
        Some(format!(
            "the data does not match version '{version}' of the schema of '{event_type}': {why}"
        ))
    }
}

/// JSON pointer, rule and reason, without values of the event.
fn describe_mismatch(error: &ValidationError<'_>) -> String {
    format!(
        "at \"{}\", rule \"{}\": {}",
        error.instance_path(),
        error.schema_path(),
        describe_error(&error.masked())
    )
}

/// The text of an error, up to the maximum length.
fn describe_error(error: &impl fmt::Display) -> String {
    error.to_string().chars().take(REASON_CHARS_MAX).collect()
}

/// The key by which versions are sorted: their parts as numbers, then as text.
fn version_order(version: &str) -> Vec<(u64, String)> {
    version
        .split('.')
        .map(|part| (part.parse().unwrap_or(u64::MAX), part.to_owned()))
        .collect()
}

/// Checks the event types of a topic: their number and size, and that each schema is bounded and
/// matches its examples.
///
/// # Errors
/// The first that is not allowed.
pub fn validate_event_types(info: &EventTypeInfo) -> Result<(), InvalidCatalogue> {
    let mut total = check_size(info)?;
    all_versions(info).try_for_each(|declared| declared.validate(&mut total))
}

/// Checks like [`validate_event_types`], in slices of processor time.
///
/// # Errors
/// The time is used up.
pub async fn check_in_slices(
    info: &EventTypeInfo,
    meter: &Meter,
) -> Result<Result<(), InvalidCatalogue>, ComputeError> {
    let mut total = match check_size(info) {
        Ok(total) => total,
        Err(invalid) => return Ok(Err(invalid)),
    };
    for declared in all_versions(info) {
        meter.pause_if_used_up().await?;
        if let Err(invalid) = declared.validate(&mut total) {
            return Ok(Err(invalid));
        }
    }
    Ok(Ok(()))
}

fn check_size(info: &EventTypeInfo) -> Result<SchemaSize, InvalidCatalogue> {
    let Some(declared) = &info.inline_event_types else {
        return Ok(SchemaSize::default());
    };
    if declared.len() > TYPES_MAX {
        return Err(whole_catalogue_error(format!(
            "has {} entries; expected at most {TYPES_MAX}",
            declared.len()
        )));
    }
    let bytes = serde_json::to_vec(declared).map_or(0, |json| json.len());
    if bytes > CATALOGUE_BYTES_MAX {
        return Err(whole_catalogue_error(format!(
            "has {bytes} bytes; expected at most {CATALOGUE_BYTES_MAX}"
        )));
    }
    Ok(SchemaSize::default())
}

fn whole_catalogue_error(problem: String) -> InvalidCatalogue {
    InvalidCatalogue {
        at: String::new(),
        problem,
    }
}

/// A version of an event type, with its names.
struct DeclaredVersion<'a> {
    event_type: &'a str,
    version: &'a str,
    declared: &'a EventTypeVersion,
}

fn all_versions(info: &EventTypeInfo) -> impl Iterator<Item = DeclaredVersion<'_>> {
    info.inline_event_types.iter().flatten().flat_map(
        |(event_type, InlineEventType { versions, .. })| {
            versions
                .iter()
                .map(move |(version, declared)| DeclaredVersion {
                    event_type,
                    version,
                    declared,
                })
        },
    )
}

impl DeclaredVersion<'_> {
    fn validate(&self, total: &mut SchemaSize) -> Result<(), InvalidCatalogue> {
        let Self {
            event_type,
            version,
            declared: EventTypeVersion {
                schema, examples, ..
            },
        } = self;
        let Some(schema) = schema else { return Ok(()) };
        let problem_in = |key: &str, error: InvalidSchema| InvalidCatalogue {
            at: format!("{event_type}.versions.{version}.{key}"),
            problem: error.to_string(),
        };
        let schema_cost = BoundedSchema {
            root: schema,
            open: Vec::new(),
            total,
        }
        .schema_cost(schema, 0);
        let cost = schema_cost.map_err(|error| problem_in("schema", error))?;
        let validator = compile_schema(schema).map_err(|error| problem_in("schema", error))?;
        for (index, example) in examples.iter().enumerate() {
            let at = format!("examples[{index}]");
            if cost.steps_for(example.to_string().len()) > STEPS_MAX {
                return Err(problem_in(&at, InvalidSchema::ExampleSteps));
            }
            validator.validate(example).map_err(|error| {
                problem_in(&at, InvalidSchema::Example(describe_mismatch(&error)))
            })?;
        }
        Ok(())
    }
}

/// Compiles a schema of draft 2020-12.
fn compile_schema(schema: &Value) -> Result<Validator, InvalidSchema> {
    let patterns = PatternOptions::regex()
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
    let options = jsonschema::options()
        .offline()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(patterns);
    options.build(schema).map_err(|error| InvalidSchema::Draft {
        at: error.instance_path().to_string(),
        problem: describe_error(&error),
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
    /// The cost of a schema, or why it is refused.
    fn schema_cost(&mut self, schema: &'a Value, depth: usize) -> Result<CheckCost, InvalidSchema> {
        self.count_schema(depth)?;
        let members = match schema {
            Value::Object(members) => members,
            Value::Array(items) => return self.sum_costs(items, depth),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Ok(CheckCost::STEP);
            }
        };
        let mut cost = CheckCost::STEP;
        let mut most = ("", 0.0);
        let mut repeats = false;
        for (key, value) in members {
            let own = self.keyword_cost(key, value, depth)?;
            repeats |= matches!(key.as_str(), "unevaluatedItems" | "unevaluatedProperties");
            let steps = own.steps_for(USUAL_DATA_BYTES);
            if steps > most.1 {
                most = (key, steps);
            }
            cost = cost.plus(own);
        }
        if repeats {
            // To find what is unevaluated, the schemas beside the keyword are evaluated again.
            cost = cost.scale(cost::UNEVALUATED);
            most.0 = "unevaluatedProperties or unevaluatedItems";
        }
        let steps = cost.steps_for(USUAL_DATA_BYTES);
        if steps > STEPS_MAX {
            return Err(InvalidSchema::Steps {
                steps,
                keyword: most.0.to_owned(),
            });
        }
        Ok(cost)
    }

    fn keyword_cost(
        &mut self,
        key: &str,
        value: &'a Value,
        depth: usize,
    ) -> Result<CheckCost, InvalidSchema> {
        Ok(match (key, value) {
            ("$ref", Value::String(target)) => self.reference_cost(target, depth)?,
            (
                "$dynamicRef" | "$dynamicAnchor" | "$recursiveRef" | "$recursiveAnchor" | "$anchor",
                _,
            ) => {
                return Err(InvalidSchema::Keyword(key.to_owned()));
            }
            ("$id", Value::String(id)) if depth > 0 => {
                return Err(InvalidSchema::InnerId(id.clone()));
            }
            ("$schema", Value::String(dialect)) if dialect.trim_end_matches('#') != DIALECT => {
                return Err(InvalidSchema::Dialect(dialect.clone()));
            }
            ("default" | "examples", _) => {
                self.count_schema(depth)?;
                CheckCost::STEP
            }
            ("const" | "enum", _) => {
                self.count_schema(depth)?;
                CheckCost::from_values(value)
            }
            ("$defs" | "definitions", Value::Object(named)) => {
                self.named_costs(named, depth)?;
                CheckCost::STEP
            }
            // Each name is of one member at most.
            ("properties", Value::Object(named)) => self
                .named_costs(named, depth)?
                .into_iter()
                .fold(CheckCost::STEP, CheckCost::plus_disjoint),
            ("dependentSchemas", Value::Object(named)) => self
                .named_costs(named, depth)?
                .into_iter()
                .fold(CheckCost::STEP, CheckCost::plus),
            // A name may match several patterns.
            ("patternProperties", Value::Object(named)) => {
                self.count_patterns(named.len())?;
                let patterns = named
                    .keys()
                    .map(|pattern| cost::pattern_cost(pattern))
                    .collect::<Result<Vec<_>, _>>()?;
                let values = self
                    .named_costs(named, depth)?
                    .into_iter()
                    .map(CheckCost::for_each_part);
                patterns
                    .into_iter()
                    .chain(values)
                    .fold(CheckCost::STEP, CheckCost::plus)
            }
            ("pattern", _) => {
                self.count_patterns(1)?;
                value
                    .as_str()
                    .map_or(Ok(CheckCost::STEP), cost::pattern_cost)?
            }
            ("prefixItems", Value::Array(items)) => {
                let mut all = CheckCost::STEP;
                for item in items {
                    all = all.plus_disjoint(self.schema_cost(item, depth + 1)?);
                }
                all
            }
            ("items" | "contains" | "additionalProperties" | "propertyNames", _)
            | ("unevaluatedItems" | "unevaluatedProperties", _) => {
                self.schema_cost(value, depth + 1)?.for_each_part()
            }
            ("anyOf" | "oneOf" | "if" | "then" | "else", _) => {
                // Each is evaluated twice: for the verdict, and for the annotations of its parent.
                self.schema_cost(value, depth + 1)?.scale(2.0)
            }
            ("uniqueItems", _) => CheckCost::UNIQUE,
            (_, value) => self.schema_cost(value, depth + 1)?,
        })
    }

    fn sum_costs(
        &mut self,
        schemas: &'a [Value],
        depth: usize,
    ) -> Result<CheckCost, InvalidSchema> {
        schemas.iter().try_fold(CheckCost::STEP, |all, schema| {
            Ok(all.plus(self.schema_cost(schema, depth + 1)?))
        })
    }

    /// The costs of schemas by name: a name is no keyword.
    fn named_costs(
        &mut self,
        schemas: &'a Map<String, Value>,
        depth: usize,
    ) -> Result<Vec<CheckCost>, InvalidSchema> {
        schemas
            .values()
            .map(|schema| self.schema_cost(schema, depth + 1))
            .collect()
    }

    fn reference_cost(&mut self, target: &str, depth: usize) -> Result<CheckCost, InvalidSchema> {
        let pointer = target
            .strip_prefix('#')
            .filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let Some(pointer) = pointer else {
            return Err(InvalidSchema::RemoteReference(target.to_owned()));
        };
        let target_schema = percent_decode_str(pointer)
            .decode_utf8()
            .ok()
            .and_then(|pointer| self.root.pointer(&pointer));
        let target_schema =
            target_schema.ok_or_else(|| InvalidSchema::UnknownReference(target.to_owned()))?;
        if self
            .open
            .iter()
            .any(|open| std::ptr::eq(*open, target_schema))
        {
            return Err(InvalidSchema::Recursion(target.to_owned()));
        }
        self.open.push(target_schema);
        let cost = self.schema_cost(target_schema, depth + 1)?;
        self.open.pop();
        Ok(cost)
    }

    fn count_schema(&mut self, depth: usize) -> Result<(), InvalidSchema> {
        self.total.values += 1;
        if depth > DEPTH_MAX {
            return Err(InvalidSchema::Depth);
        }
        if self.total.values > VALUES_MAX {
            return Err(InvalidSchema::Values);
        }
        Ok(())
    }

    fn count_patterns(&mut self, more: usize) -> Result<(), InvalidSchema> {
        self.total.patterns += more;
        if self.total.patterns > PATTERNS_MAX {
            return Err(InvalidSchema::Patterns);
        }
        Ok(())
    }
}
