//! `gridhook audit`: lists what operators did and tried to do.

use serde_json::{Value, json};
use url::form_urlencoded;

use super::{
    client::{ClientArgs, ClientError},
    format::{NONE, text},
    output::{TextTable, read},
};
use gridhook_api::audit::{AuditEntry, AuditPageView};

/// The flags of `audit`.
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
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    client: ClientArgs,
}

impl Audit {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// A request failed.
    pub async fn run(self) -> Result<String, ClientError> {
        let session = self.client.control.session()?;
        let (mut entries, mut next, most) = (Vec::new(), None, self.limit as usize);
        loop {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("top", &(most - entries.len()).min(1_000).to_string());
            for (name, value) in [("operator", &self.operator), ("search", &self.search), ("continue", &next)] {
                if let Some(value) = value {
                    query.append_pair(name, value);
                }
            }
            if self.refused {
                query.append_pair("refused", "true");
            }
            let page: Value = session.get(&format!("/audit?{}", query.finish())).await?;
            next = read::<AuditPageView>(&page)?.r#continue;
            entries.extend(page["value"].as_array().into_iter().flatten().cloned());
            if next.is_none() || entries.len() >= most {
                break;
            }
        }
        self.client.print(&json!(entries), |entries: &Vec<AuditEntry>| table(entries))
    }
}

fn table(entries: &[AuditEntry]) -> String {
    let mut table = TextTable::new(["TIME", "OPERATOR", "FROM", "STATUS", "OPERATION", "CHANGES"]);
    for entry in entries {
        let or_none = |value: &Option<String>| value.as_deref().map_or_else(|| NONE.to_owned(), text);
        let changes: Vec<String> = entry
            .changes
            .iter()
            .map(|change| format!("{}: {} -> {}", change.at, change.before, change.after))
            .chain((entry.suppressed > 0).then(|| format!("{} more attempts before it", entry.suppressed)))
            .collect();
        table.line([
            entry.at.clone(),
            or_none(&entry.operator),
            or_none(&entry.from),
            entry.status.to_string(),
            format!("{} {}", entry.method, entry.path),
            if changes.is_empty() { NONE.to_owned() } else { changes.join("; ") },
        ]);
    }
    table.to_string()
}
