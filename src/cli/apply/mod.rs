//! `gridhook apply`: what a file declares is compared with what there is, shown, and made so.
//!
//! The server says what each PUT would change, because only it knows what a value means that nobody wrote. So a second run
//! says that nothing changes, and a change that somebody made by hand is seen.

mod plan;

use std::{collections::BTreeMap, io::IsTerminal, path::PathBuf};

use awc::http::Method;
use serde_json::{Value, json};

use self::plan::{ApplyPlan, PlanAction};
use super::{
    client::{self, OutputArgs, OutputFormat, ServerArgs, ServerClient},
    print, prompt,
    spinner::Spinner,
};
use crate::declared::{self, ResourceGroup};

/// The flags of `apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A file in TOML or JSON has a table for each topic, with the control plane's own keys:

  [topics.orders]
  tags = { team = \"shop\" }

  [topics.orders.eventSubscriptions.billing]
  endpointUrl = \"https://example.com/hook\"
  filter = { includedEventTypes = [\"Order.Placed\"] }

Domains are [domains.NAME], their topics [domains.NAME.topics.NAME]. A template of Azure's Resource Manager is taken as the
portal exports it.

Examples:
  gridhook apply -f topics.toml --dry-run
  gridhook apply -f topics.toml --prune --yes
  gridhook apply -f template.json --parameter topics_orders_name=orders --yes")]
pub struct Apply {
    /// The file: TOML, or JSON, or a template of ARM (.json)
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete what is there and not in the file: topics, domains and event subscriptions of its resource groups
    #[arg(long)]
    prune: bool,
    /// Do not ask first
    #[arg(long)]
    yes: bool,
    /// A parameter of a template; may be given several times
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = super::topics::pair)]
    parameters: Vec<(String, String)>,
    /// The Azure subscription, where the file names none
    #[arg(long, value_name = "ID", default_value = "local")]
    subscription_id: String,
    /// The resource group, where the file names none
    #[arg(long, value_name = "NAME", default_value = "dev")]
    resource_group: String,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why it is not so.
#[derive(Debug, thiserror::Error)]
pub enum ApplyCommandError {
    /// The file.
    #[error(transparent)]
    Declared(#[from] declared::DeclaredError),
    /// The server could not be asked.
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// One of the resources is refused.
    #[error("the {resource}: {error}; {done} of {of} changes were made before")]
    Resource {
        /// Which.
        resource: String,
        /// What the server said.
        error: Box<client::ClientError>,
        /// So many were done.
        done: usize,
        /// Of so many.
        of: usize,
    },
}

impl Apply {
    /// Does it; what is to be printed. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where the file says nothing that can be understood, or the server refuses.
    pub async fn run(self) -> Result<String, ApplyCommandError> {
        let parameters: BTreeMap<String, String> = self.parameters.iter().cloned().collect();
        let place =
            ResourceGroup { subscription: self.subscription_id.clone(), resource_group: self.resource_group.clone() };
        let declared = declared::load(&self.file, &place, &parameters)?;
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
        prompt::is_sure(&format!("{}?", plan.sum()), self.yes)?;
        let waiting = self.carry_out(&session, &plan).await?;
        Ok(self.format_plan(&plan, Some(&waiting)))
    }

    /// Does what is planned: what waits for its endpoint's word is answered.
    async fn carry_out(&self, session: &ServerClient, plan: &ApplyPlan) -> Result<Vec<String>, ApplyCommandError> {
        let (spinner, of) = (Spinner::new(), plan.steps.len());
        let mut waiting = Vec::new();
        for (done, step) in plan.steps.iter().enumerate() {
            spinner.set_message(format!("{done} of {of}: {}", step.name));
            let answered = match &step.action {
                PlanAction::Create { body, .. } | PlanAction::Change { body, .. } => {
                    session.fetch::<Value>(Method::PUT, &step.path, Some(body)).await
                }
                PlanAction::Delete => session.ask_only::<Value>(Method::DELETE, &step.path, None::<&Value>).await,
            };
            let failed =
                |error| ApplyCommandError::Resource { resource: step.name.clone(), error: Box::new(error), done, of };
            let answer = answered.map_err(failed)?;
            if answer["properties"]["provisioningState"] == "AwaitingManualAction" {
                waiting.push(step.name.clone());
            }
        }
        Ok(waiting)
    }

    fn format_plan(&self, plan: &ApplyPlan, done: Option<&[String]>) -> String {
        if let OutputFormat::Json = self.printed.output {
            let steps: Vec<Value> = plan.steps.iter().map(plan::PlanStep::json).collect();
            let unchanged = plan.unchanged;
            return print::json(&json!({"steps": steps, "unchanged": unchanged, "applied": done.is_some()}));
        }
        if plan.is_empty() {
            return format!("nothing changes: {} resources are as the file says", plan.unchanged);
        }
        let end = match done {
            None => format!("to do: {}; nothing was done", plan.sum()),
            Some([]) => format!("done: {}", plan.sum()),
            Some(waiting) => format!(
                "done: {}; until their endpoints agree nothing is delivered to: {}",
                plan.sum(),
                waiting.join(", ")
            ),
        };
        format!("{plan}\n\n{end}")
    }
}
