//! What is to be done so that there is what a file declares.

use std::{collections::BTreeSet, fmt};

use awc::http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cli::{
        control::{Error, Session, short},
        list, print,
        spinner::Spinner,
        words,
    },
    declared::{Declared, Kind, Resource},
};

/// All of it, in order.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) unchanged: usize,
}

/// One resource.
pub(super) struct Step {
    /// For people.
    pub(super) name: String,
    pub(super) path: String,
    pub(super) action: Action,
}

pub(super) enum Action {
    Create { body: Value, changes: Vec<Change> },
    Change { body: Value, changes: Vec<Change> },
    Delete,
}

/// As the server tells it.
#[derive(Deserialize)]
struct Difference {
    exists: bool,
    changes: Vec<Change>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Change {
    at: String,
    before: Value,
    after: Value,
}

impl Plan {
    /// Compares what is declared with what there is.
    pub(super) async fn make(
        session: &Session,
        declared: &Declared,
        prune: bool,
        spinner: &Spinner,
    ) -> Result<Self, Error> {
        let mut plan = Self { steps: Vec::new(), unchanged: 0 };
        let mut new = BTreeSet::new();
        for (place, resource) in declared.resources.iter().enumerate() {
            spinner.tell(format!("comparing {place} of {}", declared.resources.len()));
            let (name, path, body) = (resource.told(), resource.path(), resource.body.clone());
            // What hangs on what is not there yet is not there either, and nobody can say more of it.
            let is_below_new = resource.parent().is_some_and(|parent| new.contains(&parent.to_ascii_lowercase()));
            let difference = match is_below_new {
                true => Difference { exists: false, changes: Vec::new() },
                false => ask(session, resource).await?,
            };
            let Difference { exists, changes } = difference;
            if exists && changes.is_empty() {
                plan.unchanged += 1;
                continue;
            }
            let action = if exists { Action::Change { body, changes } } else { Action::Create { body, changes } };
            if !exists {
                new.insert(path.to_ascii_lowercase());
            }
            plan.steps.push(Step { name, path, action });
        }
        if prune {
            plan.prune(session, declared).await?;
        }
        Ok(plan)
    }

    /// Everything that is there, in the places of the file, and not in the file.
    async fn prune(&mut self, session: &Session, declared: &Declared) -> Result<(), Error> {
        let mut kept: BTreeSet<String> = BTreeSet::new();
        for resource in &declared.resources {
            kept.insert(resource.path().to_ascii_lowercase());
            // The topic of a domain comes with its first subscription.
            kept.extend(resource.parent().map(|parent| parent.to_ascii_lowercase()));
        }
        let is_kept = |path: &str| kept.contains(&path.to_ascii_lowercase());
        let mut gone = Vec::new();
        for place in &declared.places {
            for kind in list::KINDS {
                let all = Resource {
                    kind: Kind::Topic,
                    place: place.clone(),
                    names: vec![kind.to_owned()],
                    body: Value::Null,
                };
                for topic in list::all(session, &all.path()).await? {
                    let path = path_of(&topic);
                    if !is_kept(&path) {
                        gone.push(path);
                        continue;
                    }
                    // A namespace has subscribers only below its topics.
                    let mut sources = if kind == "namespaces" { Vec::new() } else { vec![path.clone()] };
                    if kind != "topics" {
                        for topic in list::all(session, &format!("{path}/topics")).await? {
                            match path_of(&topic) {
                                path if is_kept(&path) => sources.push(path),
                                path => gone.push(path),
                            }
                        }
                    }
                    for source in sources {
                        let all = list::all(session, &format!("{source}/eventSubscriptions")).await?;
                        gone.extend(all.iter().map(path_of).filter(|path| !is_kept(path)));
                    }
                }
            }
        }
        self.steps.extend(gone.into_iter().map(|path| Step { name: short(&path), path, action: Action::Delete }));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many of what.
    pub(super) fn sum(&self) -> String {
        let count = |is: fn(&Action) -> bool| self.steps.iter().filter(|step| is(&step.action)).count();
        format!(
            "create {}, change {}, delete {}",
            count(|action| matches!(action, Action::Create { .. })),
            count(|action| matches!(action, Action::Change { .. })),
            count(|action| matches!(action, Action::Delete))
        )
    }
}

/// The path of a resource as the server tells it: names of ours need no escaping.
fn path_of(resource: &Value) -> String {
    resource["id"].as_str().unwrap_or_default().to_owned()
}

async fn ask(session: &Session, resource: &Resource) -> Result<Difference, Error> {
    let path = format!("{}?whatIf=true", resource.path());
    let named = |error| match error {
        Error::Refused { status, reason } => {
            Error::Refused { status, reason: format!("the {}: {reason}", resource.told()) }
        }
        other => other,
    };
    let asked = session.ask::<Difference>(Method::PUT, &path, Some(&resource.body)).await;
    match asked {
        // A topic of a domain that comes with its first subscription is not there before.
        Err(Error::Refused { status: StatusCode::NOT_FOUND, .. }) if resource.names.len() == 6 => {
            Ok(Difference { exists: false, changes: Vec::new() })
        }
        asked => asked.map_err(named),
    }
}

impl Step {
    pub(super) fn json(&self) -> Value {
        let (action, changes) = match &self.action {
            Action::Create { changes, .. } => ("create", changes.as_slice()),
            Action::Change { changes, .. } => ("change", changes.as_slice()),
            Action::Delete => ("delete", &[][..]),
        };
        let changes: Vec<Value> = changes
            .iter()
            .map(|Change { at, before, after }| json!({"at": at, "before": before, "after": after}))
            .collect();
        json!({"action": action, "id": self.path, "changes": changes})
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.steps.iter().enumerate() {
            let sign = match step.action {
                Action::Create { .. } => '+',
                Action::Change { .. } => '~',
                Action::Delete => '-',
            };
            write!(f, "{}{sign} {}", if place > 0 { "\n" } else { "" }, step.name)?;
            let (Action::Create { changes, .. } | Action::Change { changes, .. }) = &step.action else { continue };
            for Change { at, before, after } in changes {
                let (before, after) = (told(before), told(after));
                match step.action {
                    Action::Change { .. } => write!(f, "\n    {at}: {before} -> {after}")?,
                    Action::Create { .. } | Action::Delete if after == words::NONE => {}
                    Action::Create { .. } | Action::Delete => write!(f, "\n    {at}: {after}")?,
                }
            }
        }
        if self.unchanged > 0 {
            write!(f, "\n= {} unchanged", self.unchanged)?;
        }
        Ok(())
    }
}

fn told(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => print::json_line(value),
        other => words::text(other),
    }
}
