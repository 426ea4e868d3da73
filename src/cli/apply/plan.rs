//! The changes that apply a configuration file.

use std::{collections::BTreeSet, fmt};

use awc::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    client::{ClientError, ClientResult, Precondition, ServerClient, short_name},
    format, list, print,
    progress::Progress,
};
use gridhook_api::what_if::{Difference, ValueChange};
use gridhook_declared::{Declared, DeclaredResource};
use gridhook_escape as escape;

/// The changes of a file, in the order in which they are applied.
pub(super) struct ApplyPlan {
    pub(super) steps: Vec<PlanStep>,
    pub(super) unchanged: usize,
}

/// The change of one resource.
pub(super) struct PlanStep {
    /// Kind and name of the resource in the output.
    pub(super) name: String,
    pub(super) path: String,
    pub(super) action: PlanAction,
}

pub(super) enum PlanAction {
    Create {
        body: Value,
        changes: Vec<ValueChange>,
    },
    /// A change of the state that the plan was compared with.
    Change {
        body: Value,
        changes: Vec<ValueChange>,
        precondition: Precondition,
    },
    /// The deletion of the state that the plan was made for.
    Delete(Precondition),
}

impl ApplyPlan {
    /// Compares the declared resources with the existing ones.
    pub(super) async fn compare_with_server(
        server: &ServerClient,
        declared: &Declared,
        prune: bool,
        progress: &Progress,
    ) -> ClientResult<Self> {
        let mut plan = Self {
            steps: Vec::new(),
            unchanged: 0,
        };
        let mut new = BTreeSet::new();
        for (index, resource) in declared.resources.iter().enumerate() {
            progress.set_message(&format!(
                "comparing {index} of {}",
                declared.resources.len()
            ));
            let name = resource.display_name();
            let path = resource.control_path();
            let body = resource.body.clone();
            // The server cannot compare a resource whose parent does not exist yet.
            let is_below_new = resource
                .parent_path()
                .is_some_and(|parent| new.contains(&parent.to_ascii_lowercase()));
            let (difference, precondition) = if is_below_new {
                (declared_values(resource), Precondition::None)
            } else if resource.only_if_not_exists && does_exist(server, resource).await? {
                // A PUT that is not made need not be valid.
                plan.unchanged += 1;
                continue;
            } else {
                what_if(server, resource).await?
            };
            // The client prints the warnings.
            let Difference {
                exists, changes, ..
            } = difference;
            // Another client may have made it since.
            let is_left = changes.is_empty() || resource.only_if_not_exists;
            if exists && is_left {
                plan.unchanged += 1;
                continue;
            }
            let action = if exists {
                PlanAction::Change {
                    body,
                    changes,
                    precondition,
                }
            } else {
                new.insert(path.to_ascii_lowercase());
                PlanAction::Create { body, changes }
            };
            plan.steps.push(PlanStep { name, path, action });
        }
        if prune {
            plan.plan_deletions(server, declared).await?;
        }
        Ok(plan)
    }

    /// Adds the deletion of resources in the file's resource groups that are not in the file.
    async fn plan_deletions(
        &mut self,
        server: &ServerClient,
        declared: &Declared,
    ) -> ClientResult<()> {
        let mut kept_paths: BTreeSet<String> = BTreeSet::new();
        for resource in &declared.resources {
            kept_paths.insert(resource.control_path().to_ascii_lowercase());
            // A domain topic is created with its first subscription.
            kept_paths.extend(
                resource
                    .parent_path()
                    .map(|parent| parent.to_ascii_lowercase()),
            );
        }
        // Resources that need the state of others are in the file, too.
        for pending in &declared.template.pending {
            let id = pending.what.to_ascii_lowercase();
            kept_paths.insert(id.replace(
                "/providers/microsoft.eventgrid/eventsubscriptions/",
                "/eventsubscriptions/",
            ));
        }
        let is_kept = |path: &str| kept_paths.contains(&path.to_ascii_lowercase());
        let mut deletions = Vec::new();
        for group in &declared.groups {
            for kind in list::KINDS {
                for path in list::list_ids(server, &group.list_path(kind)).await? {
                    // Children come first, so that each deletion checks an ETag of its own: with
                    // the parent they would be deleted unchecked.
                    let mut sources = if kind == "topics" {
                        Vec::new()
                    } else {
                        list::list_ids(server, &format!("{path}/topics")).await?
                    };
                    sources.push(path.clone());
                    for source in sources {
                        // In a namespace, only topics have event subscriptions.
                        if kind != "namespaces" || source != path {
                            deletions.extend(
                                list::list_ids(server, &format!("{source}/eventSubscriptions"))
                                    .await?,
                            );
                        }
                        deletions.push(source);
                    }
                }
            }
        }
        for path in deletions.into_iter().filter(|path| !is_kept(path)) {
            let (_, precondition) = server.get_tagged(&path).await?;
            self.steps.push(PlanStep {
                name: short_name(&path),
                path,
                action: PlanAction::Delete(precondition),
            });
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The numbers of creations, changes and deletions.
    fn count_steps(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for step in &self.steps {
            let kind = match step.action {
                PlanAction::Create { .. } => 0,
                PlanAction::Change { .. } => 1,
                PlanAction::Delete(_) => 2,
            };
            counts[kind] += 1;
        }
        counts
    }

    /// The number of resources that are created or changed.
    pub(super) fn count_written(&self) -> usize {
        let [created, changed, _] = self.count_steps();
        created + changed
    }

    /// The number of changes of each kind.
    pub(super) fn summarize(&self) -> String {
        let [created, changed, deleted] = self.count_steps();
        format!("create {created}, change {changed}, delete {deleted}")
    }
}

/// The values of a resource that does not exist, as the file declares them. The server adds its
/// default values.
fn declared_values(resource: &DeclaredResource) -> Difference {
    let mut changes = Vec::new();
    add_values("", &resource.body, &mut changes);
    Difference {
        changes,
        ..Difference::default()
    }
}

fn add_values(at: &str, value: &Value, changes: &mut Vec<ValueChange>) {
    match value {
        Value::Object(inside) => {
            for (key, value) in inside {
                let at = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                add_values(&at, value, changes);
            }
        }
        // The query of an endpoint may have a secret, which the server hides, too.
        Value::String(url) if at.ends_with("endpointUrl") && url.contains('?') => {
            let base = url.split('?').next().unwrap_or_default();
            let after = format!("{base}?[hidden]").into();
            changes.push(ValueChange {
                at: at.to_owned(),
                before: Value::Null,
                after,
            });
        }
        _ => changes.push(ValueChange {
            at: at.to_owned(),
            before: Value::Null,
            after: value.clone(),
        }),
    }
}

async fn does_exist(server: &ServerClient, resource: &DeclaredResource) -> ClientResult<bool> {
    let path = resource.control_path();
    let found = server.find::<Value>(Method::GET, &path).await;
    let found = found.map_err(|error| name_resource(error, resource))?;
    Ok(found.is_some())
}

/// The changes, and the ETag of the resource before them.
async fn what_if(
    server: &ServerClient,
    resource: &DeclaredResource,
) -> ClientResult<(Difference, Precondition)> {
    let path = format!("{}?whatIf=true", resource.control_path());
    let result = server
        .exchange_json(
            Method::PUT,
            &path,
            &Precondition::None,
            Some(&resource.body),
        )
        .await;
    let is_missing = matches!(&result, Err(error) if error.has_status(StatusCode::NOT_FOUND));
    let result = match resource.domain_path() {
        // A domain topic that is created with its first subscription does not exist before.
        Some(domain) if is_missing => {
            let domain = server.get::<Value>(&domain).await;
            domain.map(|_| (declared_values(resource), Precondition::None))
        }
        Some(_) | None => server.with_suggestion(&path, result).await,
    };
    result.map_err(|error| name_resource(error, resource))
}

/// The error, whose reason begins with the resource.
fn name_resource(error: ClientError, resource: &DeclaredResource) -> ClientError {
    match error {
        ClientError::Refused { status, reason } => ClientError::Refused {
            status,
            reason: format!("the {}: {reason}", resource.display_name()),
        },
        other => other,
    }
}

impl PlanStep {
    pub(super) fn to_json(&self) -> Value {
        let (action, changes) = match &self.action {
            PlanAction::Create { changes, .. } => ("create", changes.as_slice()),
            PlanAction::Change { changes, .. } => ("change", changes.as_slice()),
            PlanAction::Delete(_) => ("delete", &[][..]),
        };
        json!({"action": action, "id": self.path, "changes": changes})
    }
}

impl fmt::Display for ApplyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            let sign = match step.action {
                PlanAction::Create { .. } => '+',
                PlanAction::Change { .. } => '~',
                PlanAction::Delete(_) => '-',
            };
            write!(
                f,
                "{}{sign} {}",
                if index > 0 { "\n" } else { "" },
                escape::escape_text(&step.name)
            )?;
            let (PlanAction::Create { changes, .. } | PlanAction::Change { changes, .. }) =
                &step.action
            else {
                continue;
            };
            for ValueChange { at, before, after } in changes {
                let before = format_value(before);
                let after = format_value(after);
                let at = escape::escape_text(at);
                match step.action {
                    PlanAction::Change { .. } => write!(f, "\n    {at}: {before} -> {after}")?,
                    PlanAction::Create { .. } | PlanAction::Delete(_) if after == format::NONE => {}
                    PlanAction::Create { .. } | PlanAction::Delete(_) => {
                        write!(f, "\n    {at}: {after}")?
                    }
                }
            }
        }
        if self.unchanged > 0 {
            write!(f, "\n= {} unchanged", self.unchanged)?;
        }
        Ok(())
    }
}

pub(super) fn format_value(value: &Value) -> String {
    match value {
        Value::Null => format::NONE.to_owned(),
        Value::String(text) => format::text_or_dash(text),
        other => print::json_line(other),
    }
}
