//! `gridhook server`: shows version, listeners, process and changed settings of a running server.

use bytesize::ByteSize;

use super::{
    client::{ClientArgs, ClientResult},
    format::{count_with_noun, optional_number, optional_or_dash},
    output::TextTable,
};
use gridhook_api::server::{Listener, ServerFacts, ServerProcess, SettingView};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  gridhook server
  gridhook server --output json | jq .settings")]
pub struct Server {
    #[command(flatten)]
    client: ClientArgs,
}

impl Server {
    /// Runs the command and returns the text to print.
    pub async fn run(self) -> ClientResult {
        self.client.get_and_format("/server", format_report).await
    }
}

fn format_report(report: &ServerFacts) -> String {
    let ServerFacts {
        version,
        started,
        chaos,
        test_endpoint,
        cluster,
        listeners,
        process,
        disk_free_bytes,
        settings,
        now: _,
    } = report;
    let ServerProcess {
        cpu_seconds,
        resident_bytes,
        threads,
        open_files,
        most_files,
    } = process;
    let size = |bytes: &Option<u64>| optional_or_dash(*bytes, |bytes| ByteSize(bytes).to_string());
    let mut lines = vec![
        format!("version         {version}, started {started}"),
        format!("memory          {}", size(resident_bytes)),
        format!(
            "processor time  {}",
            optional_or_dash(*cpu_seconds, |seconds| format!("{seconds:.1} s"))
        ),
        format!("threads         {}", optional_number(*threads)),
        format!(
            "open files      {} of {}",
            optional_number(*open_files),
            optional_number(*most_files)
        ),
        format!("free disk       {}", size(disk_free_bytes)),
        format!("chaos           {}", if *chaos { "enabled" } else { "off" }),
        format!(
            "test endpoint   {}",
            test_endpoint.as_deref().unwrap_or("off")
        ),
        format!(
            "cluster         {}",
            if *cluster {
                "a node of a cluster"
            } else {
                "none"
            }
        ),
    ];
    for Listener {
        name,
        open,
        admitted,
        refused,
    } in listeners
    {
        let open = count_with_noun(*open, "connection");
        lines.push(format!(
            "{name:<15} {open} open, {admitted} accepted, {refused} refused"
        ));
    }
    let mut table = TextTable::new(["CHANGED SETTING", "VALUE", "FROM"]);
    for SettingView { key, value, origin } in settings {
        table.add_row([key.clone(), value.clone(), origin.clone()]);
    }
    format!("{}\n\n{table}", lines.join("\n"))
}
