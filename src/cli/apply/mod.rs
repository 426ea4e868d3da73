//! `gridhook apply`: applies a configuration file.
//!
//! The server computes what each PUT would change, because only it knows the default values. A second run therefore changes
//! nothing, and manual changes are detected.

mod plan;

use std::{collections::BTreeMap, io::IsTerminal, path::PathBuf};

use awc::http::{Method, StatusCode};
use serde_json::{Value, json};

use self::plan::{ApplyPlan, PlanAction};
use super::{
    client::{self, ClientError, Precondition, ServerArgs, ServerClient},
    output::{CommandError, OutputArgs},
    print, prompt,
    spinner::Spinner,
};
use gridhook_declared as declared;
use gridhook_declared::ResourceGroup;

/// The flags of `apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A TOML or JSON file has a table for each topic, with the keys of the control plane:

  [topics.orders]
  tags = { team = \"shop\" }

  [topics.orders.eventSubscriptions.billing]
  endpointUrl = \"https://example.com/hook\"
  filter = { includedEventTypes = [\"Order.Placed\"] }

Domains are [domains.NAME], their topics [domains.NAME.topics.NAME]. A template of Azure Resource Manager (ARM) works as the
portal exports it.

Examples:
  gridhook apply -f topics.toml --dry-run
  gridhook apply -f topics.toml --prune --yes
  gridhook apply -f template.json --parameter topics_orders_name=orders --yes")]
pub struct Apply {
    /// Configuration file: TOML, JSON, or an ARM template (.json)
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Show the changes without applying them
    #[arg(long)]
    dry_run: bool,
    /// Delete topics, domains and event subscriptions of the file's resource groups that are not in the file
    #[arg(long)]
    prune: bool,
    /// Skip the confirmation
    #[arg(long)]
    yes: bool,
    /// Parameter of the ARM template; repeatable
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = super::topics::pair)]
    parameters: Vec<(String, String)>,
    /// Azure subscription, if the file names none
    #[arg(long, value_name = "ID", default_value = "local")]
    subscription_id: String,
    /// Resource group, if the file names none
    #[arg(long, value_name = "NAME", default_value = "dev")]
    resource_group: String,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why the file was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyCommandError {
    /// The file cannot be used.
    #[error(transparent)]
    Declared(#[from] declared::DeclaredError),
    /// The request failed.
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// The server rejected a resource.
    #[error("the {resource}: {error}; {done} of {of} changes were applied before")]
    Resource {
        /// The resource.
        resource: String,
        /// The error.
        error: Box<client::ClientError>,
        /// The number of applied changes.
        done: usize,
        /// The number of all changes.
        of: usize,
    },
}

impl CommandError for ApplyCommandError {
    fn is_usage(&self) -> bool {
        match self {
            Self::Declared(_) => true,
            Self::Control(error) => error.is_usage(),
            Self::Resource { .. } => false,
        }
    }
}

async fn is_gone(session: &ServerClient, path: &str) -> bool {
    let found = session.fetch_plain::<Value>(Method::GET, path, None::<&Value>).await;
    matches!(found, Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }))
}

impl Apply {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// The file cannot be used, or the server rejected a change.
    pub async fn run(self) -> Result<String, ApplyCommandError> {
        let parameters: BTreeMap<String, String> = self.parameters.iter().cloned().collect();
        let default_group =
            ResourceGroup { subscription: self.subscription_id.clone(), resource_group: self.resource_group.clone() };
        let declared = declared::load(&self.file, &default_group, &parameters)?;
        let session = self.control.session()?;
        let spinner = Spinner::new();
        let plan = ApplyPlan::make(&session, &declared, self.prune, &spinner).await?;
        drop(spinner);
        if self.dry_run || plan.is_empty() {
            return Ok(self.format_plan(&plan, None));
        }
        if !self.yes && std::io::stdin().is_terminal() {
            print::note(&format!("{plan}\n"));
        }
        prompt::confirm(&format!("{}?", plan.sum()), self.yes)?;
        let waiting = self.carry_out(&session, &plan).await?;
        Ok(self.format_plan(&plan, Some(&waiting)))
    }

    /// Applies the plan. Returns the event subscriptions that wait for endpoint validation.
    async fn carry_out(&self, session: &ServerClient, plan: &ApplyPlan) -> Result<Vec<String>, ApplyCommandError> {
        let (spinner, of) = (Spinner::new(), plan.steps.len());
        let mut waiting = Vec::new();
        for (done, step) in plan.steps.iter().enumerate() {
            spinner.set_message(format!("{done} of {of}: {}", step.name));
            let result = match &step.action {
                PlanAction::Create { body, .. } => {
                    session.change::<Value>(Method::PUT, &step.path, &Precondition::Missing, Some(body)).await
                }
                PlanAction::Change { body, of, .. } => session.change(Method::PUT, &step.path, of, Some(body)).await,
                PlanAction::Delete(of) => {
                    let deleted = session.change(Method::DELETE, &step.path, of, None::<&Value>).await;
                    let is_refused =
                        matches!(&deleted, Err(ClientError::Refused { status: StatusCode::PRECONDITION_FAILED, .. }));
                    // A domain topic may be deleted with its last event subscription.
                    if is_refused && is_gone(session, &step.path).await { Ok(Value::Null) } else { deleted }
                }
            };
            let failed =
                |error| ApplyCommandError::Resource { resource: step.name.clone(), error: Box::new(error), done, of };
            let answer = result.map_err(failed)?;
            if answer["properties"]["provisioningState"] == "AwaitingManualAction" {
                waiting.push(step.name.clone());
            }
        }
        Ok(waiting)
    }

    fn format_plan(&self, plan: &ApplyPlan, done: Option<&[String]>) -> String {
        let steps: Vec<Value> = plan.steps.iter().map(plan::PlanStep::json).collect();
        let json = json!({"steps": steps, "unchanged": plan.unchanged, "applied": done.is_some()});
        self.printed.format(&json, |_| {
            if plan.is_empty() {
                return match plan.unchanged {
                    1 => "no changes: 1 resource matches the file".to_owned(),
                    unchanged => format!("no changes: {unchanged} resources match the file"),
                };
            }
            let sum = plan.sum();
            let end = match done {
                None => format!("planned: {sum}; nothing was changed"),
                Some([]) => format!("done: {sum}"),
                Some(waiting) => {
                    format!("done: {sum}; waiting for endpoint validation, without delivery: {}", waiting.join(", "))
                }
            };
            format!("{plan}\n\n{end}")
        })
    }
}
