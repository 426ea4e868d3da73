//! `gridhook ledger`: lists the delivery outcomes of an event subscription, in the order of time.

use super::{
    client::{ClientResult, ListedItems, PagedList, SubscriptionArgs},
    format::join,
    output::read,
    time::parse_past,
    trace::{covered_events, write_line},
    value::whole_number,
};
use gridhook_api::ledger::{LedgerPageView, LineView};

#[derive(Debug, clap::Args)]
pub struct Ledger {
    /// Only lines at or after this time, such as 2026-11-20T12:00:00Z or 2h [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    from: Option<String>,
    /// Only lines before this time [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    to: Option<String>,
    /// Only lines with this outcome: filtered, delivered, deferred, undeliverable, expired,
    /// deadLettered, dropped, late, canceled, written, lost, redriven, received, renewed,
    /// acknowledged, released, lockExpired, the outcome of an attempt such as Busy, or a reason
    /// such as TimeToLiveExceeded
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Maximum number of lines
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole_number::<u32>(1..))]
    limit: u32,
    #[command(flatten)]
    target: SubscriptionArgs,
}

impl Ledger {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// The request failed.
    pub async fn run(&self) -> ClientResult {
        let client = &self.target.client;
        let server = client.server.build_client()?;
        let list = PagedList {
            path: self.target.path("/ledger"),
            query: &[
                ("from", self.from.as_deref()),
                ("to", self.to.as_deref()),
                ("outcome", self.outcome.as_deref()),
            ],
            key: "lines",
            page_max: 1_000,
            limit: self.limit as usize,
        };
        let ListedItems { items, last_page } = server.read_pages(list).await?;
        let LedgerPageView {
            oldest, r#continue, ..
        } = read(&last_page)?;
        client.output.format_list(items, |lines: &[LineView]| {
            format_lines(lines, oldest.as_deref(), r#continue.is_some())
        })
    }
}

fn format_lines(lines: &[LineView], oldest: Option<&str>, more: bool) -> String {
    let mut text = String::new();
    for line in lines {
        write_line(line, &mut text, Some(&covered_events(line)));
    }
    let shown = text.lines().filter(|line| !line.is_empty());
    let unindented = shown.map(|line| line.strip_prefix("  ").unwrap_or(line));
    let mut text = join(unindented, "\n");
    if lines.is_empty() {
        text = match oldest {
            Some(oldest) => format!("no matching lines; the oldest stored line is from {oldest}"),
            None => "no lines are stored for this subscription".to_owned(),
        };
    }
    if more {
        text.push_str("\n  more lines exist; raise --limit to show them");
    }
    text
}
