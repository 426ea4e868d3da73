//! Names of resources: unrolls loops, evaluates conditions, and finds types, names and ids, before
//! any body is evaluated.

use gridhook_escape::count_with_noun;
use serde_json::{Map, Value};

use super::{
    EvaluationError,
    evaluate::EvaluationScope,
    kind_of,
    resources::{
        DEPLOYMENTS, Expander, Item, LEVELS_MAX, Place, RESOURCES_MAX, is_of_extension,
        require_object, shorten_name,
    },
};

impl Expander<'_> {
    /// Finds the names and ids of resources, below a parent if there is one.
    pub(crate) fn name_all<'a>(
        &mut self,
        scope: &EvaluationScope<'_>,
        resources: Option<&'a Value>,
        place: &Place,
        parent: Option<&Item<'_>>,
        items: &mut Vec<Item<'a>>,
    ) -> Result<(), EvaluationError> {
        let all: Vec<(String, &Value)> = match resources {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => list.iter().map(|one| (String::new(), one)).collect(),
            Some(Value::Object(named)) => named
                .iter()
                .map(|(symbol, one)| (symbol.clone(), one))
                .collect(),
            Some(other) => {
                let problem = format!(
                    "resources is {}; expected a list or an object",
                    kind_of(other)
                );
                return Err(EvaluationError::invalid(problem));
            }
        };
        for (index, (symbol, value)) in all.into_iter().enumerate() {
            let number = format!("resource {}", index + 1);
            let title = match value["name"].as_str() {
                Some(name) => name,
                None if symbol.is_empty() => &number,
                None => &symbol,
            };
            let resource = require_object(&number, value)?;
            self.name_one(scope, &symbol, resource, place, parent, items)
                .map_err(|error| error.with_location(shorten_name(title)))?;
        }
        Ok(())
    }

    fn name_one<'a>(
        &mut self,
        scope: &EvaluationScope<'_>,
        symbol: &str,
        resource: &'a Map<String, Value>,
        place: &Place,
        parent: Option<&Item<'_>>,
        items: &mut Vec<Item<'a>>,
    ) -> Result<(), EvaluationError> {
        let Some(copy) = resource.get("copy") else {
            return self.name_instance(scope, symbol, resource, place, parent, items);
        };
        let name = copy["name"].as_str().unwrap_or(symbol);
        let count = scope.evaluate_count(&copy["count"])?;
        if !symbol.is_empty() {
            scope.frame.add_loop(symbol);
        }
        for index in 0..count {
            let local = scope.local.in_copy(name, index);
            let scope = EvaluationScope {
                local: &local,
                ..*scope
            };
            self.name_instance(&scope, symbol, resource, place, parent, items)?;
        }
        Ok(())
    }

    fn name_instance<'a>(
        &mut self,
        scope: &EvaluationScope<'_>,
        symbol: &str,
        resource: &'a Map<String, Value>,
        place: &Place,
        parent: Option<&Item<'_>>,
        items: &mut Vec<Item<'a>>,
    ) -> Result<(), EvaluationError> {
        let is_wanted = match resource
            .get("condition")
            .map(|condition| scope.evaluate_value(condition))
            .transpose()?
        {
            None | Some(Value::Bool(true)) => true,
            Some(Value::Bool(false)) => false,
            Some(other) => {
                return Err(EvaluationError::invalid(format!(
                    "condition is {}; expected a boolean",
                    kind_of(&other)
                )));
            }
        };
        // What an unwanted resource has may not be evaluable.
        if !is_wanted {
            return Ok(());
        }
        self.count += 1;
        if self.count > RESOURCES_MAX {
            return Err(EvaluationError::invalid(format!(
                "there are more than {RESOURCES_MAX} resources"
            )));
        }
        let text = |key| evaluate_text(scope, resource, key);
        let kind = text("type")?.ok_or_else(|| EvaluationError::invalid("it has no type"))?;
        if is_of_extension(scope, resource) {
            scope.frame.add_symbol(symbol, symbol);
            if resource.get("existing") != Some(&Value::Bool(true)) {
                self.add_of_extension(symbol, kind, place);
            }
            return Ok(());
        }
        let name = text("name")?.ok_or_else(|| EvaluationError::invalid("it has no name"))?;
        let mut item = Item {
            resource,
            local: scope.local.clone(),
            kind,
            name,
            id: String::new(),
            scope: text("scope")?,
        };
        if let Some(parent) = parent {
            item.name_below(parent);
        }
        let place = self.place_of(scope, resource, place)?;
        item.separate_extension(&place)?;
        item.id = item.resource_id(&place)?;
        scope.frame.add_name(&item.name, &item.id);
        if !symbol.is_empty() {
            scope.frame.add_symbol(symbol, &item.id);
            // `reference('topics[0]')`
            if resource.contains_key("copy")
                && let Some((_, index)) = scope.local.copies.last()
            {
                let element = format!("{symbol}[{index}]");
                scope.frame.add_symbol(&element, &item.id);
            }
        }
        if resource.get("existing") == Some(&Value::Bool(true)) {
            return Ok(());
        }
        let children = resource.get("resources");
        if !item.kind.eq_ignore_ascii_case(DEPLOYMENTS) && children.is_some() {
            if item.name.split('/').count() >= LEVELS_MAX {
                return Err(EvaluationError::invalid(format!(
                    "resources are nested deeper than {LEVELS_MAX} levels"
                )));
            }
            let mut below = Vec::new();
            self.name_all(scope, children, &place, Some(&item), &mut below)?;
            items.push(item);
            items.extend(below);
            return Ok(());
        }
        items.push(item);
        Ok(())
    }

    /// The place of a nested deployment, which may name another resource group.
    pub(crate) fn place_of(
        &self,
        scope: &EvaluationScope<'_>,
        resource: &Map<String, Value>,
        place: &Place,
    ) -> Result<Place, EvaluationError> {
        let mut place = place.clone();
        for (key, target) in [
            ("subscriptionId", &mut place.subscription),
            ("resourceGroup", &mut place.resource_group),
        ] {
            if let Some(Value::String(name)) = resource
                .get(key)
                .map(|value| scope.evaluate_value(value))
                .transpose()?
            {
                *target = name;
            }
        }
        Ok(place)
    }
}

/// A property of a resource that is a string; [`None`] if it is missing or null.
fn evaluate_text(
    scope: &EvaluationScope<'_>,
    resource: &Map<String, Value>,
    key: &str,
) -> Result<Option<String>, EvaluationError> {
    let value = resource.get(key).map(|value| scope.evaluate_value(value));
    match value.transpose()? {
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Null) | None => Ok(None),
        Some(other) => Err(EvaluationError::invalid(format!(
            "{key} is {}; expected a string",
            kind_of(&other)
        ))),
    }
}

impl Item<'_> {
    /// Adds the type and name of the parent in front, unless the child has them.
    fn name_below(&mut self, parent: &Item<'_>) {
        if self.scope.is_some() {
            return;
        }
        let is_extension = self
            .kind
            .split('/')
            .next()
            .is_some_and(|first| first.contains('.'));
        if is_extension && self.kind.split('/').count() == self.name.split('/').count() + 1 {
            let is_below = self
                .kind
                .to_ascii_lowercase()
                .starts_with(&format!("{}/", parent.kind.to_ascii_lowercase()));
            if !is_below {
                self.scope = Some(parent.id.clone());
            }
            return;
        }
        self.kind = format!("{}/{}", parent.kind, self.kind);
        self.name = format!("{}/{}", parent.name, self.name);
    }

    /// Reads `Microsoft.EventGrid/topics/providers/locks` with the name
    /// `orders/Microsoft.Authorization/keep` as what it means: a lock with the topic as its scope.
    fn separate_extension(&mut self, place: &Place) -> Result<(), EvaluationError> {
        let types: Vec<&str> = self.kind.split('/').skip(1).collect();
        let names: Vec<&str> = self.name.split('/').collect();
        let position = types
            .iter()
            .rposition(|word| word.eq_ignore_ascii_case("providers"))
            .filter(|position| *position > 0 && types.len() == names.len());
        let Some(position) = position else {
            return Ok(());
        };
        let provider = self.kind.split('/').next().unwrap_or_default();
        let mut base = Self {
            kind: format!("{provider}/{}", types[..position].join("/")),
            name: names[..position].join("/"),
            ..self.clone()
        };
        base.separate_extension(place)?;
        let kind = format!("{}/{}", names[position], types[position + 1..].join("/"));
        let name = names[position + 1..].join("/");
        self.scope = Some(base.resource_id(place)?);
        self.kind = kind;
        self.name = name;
        Ok(())
    }

    /// The id: that of what it extends or of its resource group, and its types and names.
    fn resource_id(&self, place: &Place) -> Result<String, EvaluationError> {
        let mut words: Vec<&str> = self.kind.split('/').collect();
        let names: Vec<&str> = self.name.split('/').collect();
        let provider = words.remove(0);
        if words.len() != names.len() || words.is_empty() {
            let problem = format!(
                "its type {} has {} and its name {}",
                self.kind,
                count_with_noun(words.len(), "level"),
                names.len()
            );
            return Err(EvaluationError::invalid(problem));
        }
        let pairs: String = words
            .iter()
            .zip(names)
            .map(|(word, name)| format!("/{word}/{name}"))
            .collect();
        let above = match &self.scope {
            Some(scope) if scope.starts_with('/') => scope.trim_end_matches('/').to_owned(),
            Some(scope) if !scope.is_empty() => {
                format!("{}/providers/{scope}", place.resource_group_id())
            }
            _ => place.resource_group_id(),
        };
        Ok(format!("{above}/providers/{provider}{pairs}"))
    }
}
