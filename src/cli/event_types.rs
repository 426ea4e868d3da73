//! `gridhook event-types`: manages the event types of topics.

use std::path::PathBuf;

use awc::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{ClientArgs, ClientResult, ResourceName, encode_segment, read_body},
    format::{self, NONE, optional_or_dash, optional_text, text_or_dash},
    list,
    output::TextTable,
    print, prompt,
};
use gridhook_api::topic::DeclaredEventType;

/// Width of the names of facts.
const WIDTH: usize = 11;

#[derive(Debug, Subcommand)]
#[command(after_help = "A file has the JSON of an event type:

  {\"description\": \"An order was placed\",
   \"versions\": {\"1\": {\"schema\": {\"type\": \"object\", \"required\": [\"total\"]},
                        \"examples\": [{\"total\": 5}]}}}

Examples:
  gridhook event-types put orders Order.Placed --body placed.json
  gridhook event-types list orders
  gridhook event-types show orders Order.Placed
  gridhook topics update orders --schema-validation refuse")]
pub enum EventTypes {
    /// List the event types of a topic
    List {
        /// Topic: NAME, domains/NAME, namespaces/NAME/topics/NAME or a resource id
        topic: ResourceName,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show an event type with its schemas and examples
    Show(EventTypeArgs),
    /// Create or replace an event type
    Put {
        #[command(flatten)]
        target: EventTypeArgs,
        /// File with the JSON of the event type; - is standard input
        #[arg(long, value_name = "FILE")]
        body: PathBuf,
    },
    /// Delete an event type
    Delete {
        #[command(flatten)]
        target: EventTypeArgs,
        /// Skip the confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct EventTypeArgs {
    /// Topic: NAME, domains/NAME, namespaces/NAME/topics/NAME or a resource id
    topic: ResourceName,
    /// Event type, such as Order.Placed
    event_type: String,
    #[command(flatten)]
    client: ClientArgs,
}

impl EventTypes {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// A flag cannot be used, or the request failed.
    pub async fn run(self) -> ClientResult {
        match self {
            Self::List { topic, client } => {
                let all: Vec<Value> =
                    list::read_list(&client.server.build_client()?, &topic.path("/eventTypes"))
                        .await?;
                client
                    .output
                    .format_list(all, |all: &[DeclaredEventType]| format_table(all))
            }
            Self::Show(target) => {
                let path = target.event_type_path();
                target.client.get_and_format(&path, format_facts).await
            }
            Self::Put { target, body } => {
                let body = json!({"properties": read_body(Some(&body))?});
                let server = target.client.server.build_client()?;
                let put: Value = server
                    .send_request(Method::PUT, &target.event_type_path(), Some(&body))
                    .await?;
                target
                    .client
                    .format_response(&put, |put| format!("saved {}", format_facts(put)))
            }
            Self::Delete { target, yes } => {
                let server = target.client.server.build_client()?;
                let (_, shown) = server.get_tagged(&target.event_type_path()).await?;
                prompt::ask_confirmation(
                    &format!("Delete the event type {}?", target.event_type),
                    yes,
                )?;
                server.delete(&target.event_type_path(), &shown).await?;
                let deletion = json!({"deleted": target.event_type});
                Ok(target.client.output.format_value(&deletion, |_| {
                    format!("deleted {}", text_or_dash(&target.event_type))
                }))
            }
        }
    }
}

impl EventTypeArgs {
    fn event_type_path(&self) -> String {
        self.topic
            .path(&format!("/eventTypes/{}", encode_segment(&self.event_type)))
    }
}

fn format_table(all: &[DeclaredEventType]) -> String {
    let mut table = TextTable::new(["NAME", "VERSIONS", "DEPRECATED", "DESCRIPTION"]);
    for DeclaredEventType {
        name, properties, ..
    } in all
    {
        let versions: Vec<String> = properties.versions.keys().cloned().collect();
        table.add_row([
            optional_text(&name.0),
            format::join_texts(&versions),
            if properties.deprecated { "yes" } else { NONE }.to_owned(),
            optional_text(&properties.description),
        ]);
    }
    table.to_string()
}

fn format_facts(
    DeclaredEventType {
        name, properties, ..
    }: &DeclaredEventType,
) -> String {
    let deprecated = |is: bool| if is { "yes" } else { NONE }.to_owned();
    let rows = [
        ("description", optional_text(&properties.description)),
        ("deprecated", deprecated(properties.deprecated)),
    ];
    let mut lines = vec![optional_text(&name.0), format::format_facts(WIDTH, &rows)];
    for (version, declaration) in &properties.versions {
        let mut facts = vec![
            ("version", text_or_dash(version)),
            ("deprecated", deprecated(declaration.deprecated)),
            (
                "schema",
                optional_or_dash(declaration.schema.as_ref(), print::json_line),
            ),
        ];
        facts.extend(
            declaration
                .examples
                .iter()
                .map(|example| ("example", print::json_line(example))),
        );
        lines.push(format::format_facts(WIDTH, &facts));
    }
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}
