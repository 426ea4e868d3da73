//! `gridhook audit`: lists what operators did and tried to do.

use serde_json::Value;

use super::{
    client::{ClientArgs, ClientResult, PagedList},
    format::{count_with_noun, optional_text, text_or_dash},
    output::TextTable,
    print,
    value::whole_number,
};
use gridhook_api::audit::AuditEntry;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gridhook audit
  gridhook audit --operator shop-team --limit 20
  gridhook audit --search topics/orders --refused
  gridhook audit --output json")]
pub struct Audit {
    /// Only operations of this operator: admin, the name of a token, or the name in an access token
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
    /// Only operations with this text in their method and path, or in the id of the request
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only refused operations
    #[arg(long)]
    refused: bool,
    /// Maximum number of operations, newest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = whole_number::<u32>(1..))]
    limit: u32,
    #[command(flatten)]
    client: ClientArgs,
}

impl Audit {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// A request failed.
    pub async fn run(self) -> ClientResult {
        let server = self.client.server.build_client()?;
        let list = PagedList {
            path: "/audit".to_owned(),
            query: &[
                ("operator", self.operator.as_deref()),
                ("search", self.search.as_deref()),
                ("refused", self.refused.then_some("true")),
            ],
            key: "value",
            page_max: 1_000,
            limit: self.limit as usize,
        };
        let entries = server.read_pages(list).await?.items;
        self.client
            .output
            .format_list(entries, |entries: &[AuditEntry]| format_table(entries))
    }
}

/// The characters of a value that are printed of a change; `--output json` has all.
const VALUE_CHARS: usize = 60;

/// A table of operations, with a line for each change of a property.
fn format_table(entries: &[AuditEntry]) -> String {
    let mut table = TextTable::new(["TIME", "OPERATOR", "FROM", "STATUS", "OPERATION"]);
    for entry in entries {
        table.add_row([
            entry.at.clone(),
            optional_text(&entry.operator),
            optional_text(&entry.from),
            entry.status.to_string(),
            format!("{} {}", entry.method, entry.path),
        ]);
    }
    let table = table.to_string();
    let mut rows = table.lines();
    let mut lines: Vec<String> = rows.next().map(str::to_owned).into_iter().collect();
    for (row, entry) in rows.zip(entries) {
        lines.push(row.to_owned());
        for change in &entry.changes {
            let before = excerpt_of_value(&change.before);
            let after = excerpt_of_value(&change.after);
            lines.push(format!(
                "    {}: {before} -> {after}",
                text_or_dash(&change.at)
            ));
        }
        if entry.suppressed > 0 {
            lines.push(format!(
                "    {} before it",
                count_with_noun(entry.suppressed, "more attempt")
            ));
        }
    }
    lines.join("\n")
}

/// The beginning of a value.
fn excerpt_of_value(value: &Value) -> String {
    let whole = print::json_line(value);
    if whole.chars().count() <= VALUE_CHARS {
        return whole;
    }
    let beginning: String = whole.chars().take(VALUE_CHARS).collect();
    format!("{beginning}…")
}
