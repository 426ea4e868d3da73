//! `gridhook apply`: applies a configuration file.
//!
//! The server computes what each PUT would change, because only it knows the default values. A
//! second run therefore changes nothing, and manual changes are detected.

mod parameters;
mod plan;
mod states;

use std::{io::IsTerminal, path::PathBuf};

use awc::http::{Method, StatusCode};
use serde_json::{Value, json};

use self::{
    parameters::ParameterArgument,
    plan::{ApplyPlan, PlanAction, PlanStep},
    states::TemplateReader,
};
use super::{
    client::{ClientError, ClientResult, Precondition, ServerArgs, ServerClient},
    output::{CommandError, CommandResult, OutputArgs},
    print,
    progress::Progress,
    prompt,
};
use gridhook_clock::Clock;
use gridhook_declared as declared;
use gridhook_declared::{Declared, DeclaredError, ForeignResources, ResourceGroup, hide_secrets};
use gridhook_escape as escape;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A TOML or JSON file has a table for each topic, with the keys of the control plane:

  [topics.orders]
  tags = { team = \"shop\" }

  [topics.orders.eventSubscriptions.billing]
  endpointUrl = \"https://example.com/hook\"
  filter = { includedEventTypes = [\"Order.Placed\"] }

Domains are [domains.NAME], their topics [domains.NAME.topics.NAME]. A template of Azure Resource Manager (ARM) works as
the portal exports it or Bicep compiles it.

Examples:
  gridhook apply -f topics.toml --dry-run
  gridhook apply -f topics.toml --prune --yes
  gridhook apply -f template.json --parameter topics_orders_name=orders --yes
  gridhook apply -f main.json --parameters @main.parameters.json --ignore-foreign --dry-run"
)]
pub struct Apply {
    /// Configuration file: TOML, JSON, or an ARM template (.json)
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Show the changes without applying them
    #[arg(long)]
    dry_run: bool,
    /// Delete topics, domains, namespaces and event subscriptions of the file's resource groups
    /// that are not in the file
    #[arg(long)]
    prune: bool,
    /// Skip the confirmation
    #[arg(long)]
    yes: bool,
    /// Parameter of the ARM template, or a file of them; repeatable, and the first value of a
    /// parameter counts
    #[arg(
        long = "parameter",
        visible_alias = "parameters",
        value_name = "NAME=VALUE|@FILE"
    )]
    parameters: Vec<ParameterArgument>,
    /// Leave out resources of other services than Event Grid, and list them
    #[arg(long)]
    ignore_foreign: bool,
    /// Azure subscription, if the file names none
    #[arg(long, value_name = "ID", default_value = "local")]
    subscription_id: String,
    /// Resource group, if the file names none
    #[arg(long, value_name = "NAME", default_value = "dev")]
    resource_group: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Why the file was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyCommandError {
    /// The server rejected a resource.
    #[error("the {resource}: {error}; {done} of {total} changes were applied before")]
    Resource {
        resource: String,
        error: Box<ClientError>,
        /// The number of applied changes.
        done: usize,
        /// The number of all changes.
        total: usize,
    },
    /// A parameter file cannot be used.
    #[error("{file}: {error}")]
    Parameters {
        file: String,
        error: declared::DeclarationError,
    },
    #[error(
        "{resource} needs the state of {needs}, which does not exist; the other resources were \
         applied"
    )]
    Pending {
        resource: String,
        /// The resource that does not exist.
        needs: String,
    },
}

/// Formats everything in a template that is not a resource, each in a line.
fn format_details(template: &declared::TemplateDetails) -> String {
    let mut lines = String::new();
    for resource in &template.foreign {
        lines.push_str(&format!(
            "\nleft out: {} ({}): {}",
            escape::escape_text(&resource.id),
            escape::escape_text(&resource.kind),
            resource.reason
        ));
    }
    for output in &template.unobtainable_outputs {
        lines.push_str(&format!(
            "\nleft out: {}, which needs the state of {}, which this server does not have",
            escape::escape_text(&output.what),
            escape::escape_text(&output.needs.id)
        ));
    }
    for pending in &template.pending {
        let what = escape::escape_text(&pending.what);
        let needs = escape::escape_text(&pending.needs.id);
        lines.push_str(&format!(
            "\nlater: {what}, which needs the state of {needs}"
        ));
    }
    for (name, output) in &template.outputs {
        let value = output
            .get("value")
            .map_or_else(|| "(secure)".to_owned(), plan::format_value);
        lines.push_str(&format!("\noutput {}: {value}", escape::escape_text(name)));
    }
    lines
}

impl CommandError for ApplyCommandError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Parameters { .. })
    }
}

impl CommandError for DeclaredError {
    fn is_usage(&self) -> bool {
        true
    }
}

/// Sends the request of a step, and returns the resource after it.
async fn send_step(server: &ServerClient, step: &PlanStep) -> ClientResult<Value> {
    match &step.action {
        PlanAction::Create { body, .. } => {
            server
                .send_change(Method::PUT, &step.path, &Precondition::Missing, Some(body))
                .await
        }
        PlanAction::Change {
            body, precondition, ..
        } => {
            server
                .send_change(Method::PUT, &step.path, precondition, Some(body))
                .await
        }
        PlanAction::Delete(precondition) => {
            match server.delete(&step.path, precondition).await {
                // A domain topic may be deleted with its last event subscription.
                Err(error)
                    if error.has_status(StatusCode::PRECONDITION_FAILED)
                        && is_deleted(server, &step.path).await =>
                {
                    Ok(Value::Null)
                }
                deletion => deletion,
            }
        }
    }
}

async fn is_deleted(server: &ServerClient, path: &str) -> bool {
    let current = server.find::<Value>(Method::GET, path).await;
    matches!(current, Ok(None))
}

impl Apply {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// The file cannot be used, or the server rejected a change.
    pub(super) async fn run(self) -> CommandResult<String> {
        let mut reader = self.template_reader()?;
        // Checked before the first request.
        reader.read()?;
        let server = self.server.build_client()?;
        let mut declared = reader.read_with_states(&server).await?;
        let progress = Progress::spinner();
        let mut plan =
            ApplyPlan::compare_with_server(&server, &declared, self.prune, &progress).await?;
        drop(progress);
        if self.dry_run || plan.is_empty() && declared.template.pending.is_empty() {
            return Ok(self.format_plan(&plan, &declared, None));
        }
        if !self.yes && std::io::stdin().is_terminal() {
            print::print_note(&format!(
                "{}\n",
                hide_secrets(plan.to_string(), &declared.template.secrets)
            ));
        }
        prompt::ask_confirmation(&format!("{}?", plan.summarize()), self.yes)?;
        let mut waiting = self.apply_steps(&server, &plan.steps, 0).await?;
        // Resources that need the state of a resource that was just created.
        while let Some(pending) = declared.first_pending_resource() {
            let next = reader.read_with_states(&server).await?;
            if next.template.pending.len() == declared.template.pending.len() {
                return Err(ApplyCommandError::Pending {
                    resource: pending.what.clone(),
                    needs: pending.needs.id.clone(),
                }
                .into());
            }
            let more =
                ApplyPlan::compare_with_server(&server, &next, false, &Progress::spinner()).await?;
            let applied = plan.steps.len();
            waiting.extend(self.apply_steps(&server, &more.steps, applied).await?);
            // What was just applied compares as unchanged, unless somebody changed it since.
            plan.unchanged = more.unchanged.saturating_sub(plan.count_written());
            plan.steps.extend(more.steps);
            declared = next;
        }
        // The outputs may need what was created.
        let declared = reader.read_with_states(&server).await?;
        Ok(self.format_plan(&plan, &declared, Some(&waiting)))
    }

    fn template_reader(&self) -> Result<TemplateReader<'_>, ApplyCommandError> {
        let mut options = declared::TemplateOptions::at_time(Clock::system().now().0);
        if self.ignore_foreign {
            options.foreign = ForeignResources::LeftOut;
        }
        for argument in &self.parameters {
            argument.add_to(&mut options)?;
        }
        let subscription = self.subscription_id.clone();
        let resource_group = self.resource_group.clone();
        Ok(TemplateReader {
            file: &self.file,
            group: ResourceGroup {
                subscription,
                resource_group,
            },
            options,
        })
    }

    /// Applies the steps, before which `applied` others were. Returns the event subscriptions that
    /// wait for endpoint validation.
    async fn apply_steps(
        &self,
        server: &ServerClient,
        steps: &[PlanStep],
        applied: usize,
    ) -> Result<Vec<String>, ApplyCommandError> {
        let progress = Progress::spinner();
        let total = applied + steps.len();
        let mut waiting = Vec::new();
        for (done, step) in (applied..).zip(steps) {
            progress.set_message(&format!("{done} of {total}: {}", step.name));
            let result = send_step(server, step).await;
            let resource = result.map_err(|error| ApplyCommandError::Resource {
                resource: step.name.clone(),
                error: Box::new(error),
                done,
                total,
            })?;
            if resource["properties"]["provisioningState"] == "AwaitingManualAction" {
                waiting.push(step.name.clone());
            }
        }
        Ok(waiting)
    }

    fn format_plan(
        &self,
        plan: &ApplyPlan,
        declared: &Declared,
        waiting: Option<&[String]>,
    ) -> String {
        let steps: Vec<Value> = plan.steps.iter().map(plan::PlanStep::to_json).collect();
        let mut json =
            json!({"steps": steps, "unchanged": plan.unchanged, "applied": waiting.is_some()});
        let template = &declared.template;
        let foreign: Vec<Value> = template
            .foreign
            .iter()
            .map(|resource| json!({"id": resource.id, "type": resource.kind, "reason": resource.reason}))
            .collect();
        let pending: Vec<&str> = template
            .pending
            .iter()
            .map(|pending| pending.what.as_str())
            .collect();
        for (key, value) in [("leftOut", foreign.into()), ("pending", pending.into())] {
            if value != json!([]) {
                json[key] = value;
            }
        }
        if !template.outputs.is_empty() {
            json["outputs"] = Value::Object(template.outputs.clone());
        }
        let text = self.output.format_value(&json, |_| {
            format_summary(plan, waiting) + &format_details(template)
        });
        hide_secrets(text, &template.secrets)
    }
}

/// The steps and their number. `waiting` are event subscriptions that wait for endpoint validation
/// after the plan was applied.
fn format_summary(plan: &ApplyPlan, waiting: Option<&[String]>) -> String {
    if plan.is_empty() {
        return match plan.unchanged {
            1 => "no changes: 1 resource matches the file".to_owned(),
            unchanged => format!("no changes: {unchanged} resources match the file"),
        };
    }
    let sum = plan.summarize();
    match waiting {
        None => format!("{plan}\n\nplanned: {sum}; nothing was changed"),
        Some([]) => format!("{plan}\n\ndone: {sum}"),
        Some(waiting) => format!(
            "{plan}\n\ndone: {sum}; waiting for endpoint validation, without delivery: {}",
            waiting.join(", ")
        ),
    }
}
