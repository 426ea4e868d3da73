//! An example for each command that has none in its own help.
//!
//! Each example is executed by a test. A command with examples in its `after_help` is not in the
//! table.

/// The name of a command with those above it, and the arguments of its example.
const EXAMPLES: &[(&str, &str)] = &[
    ("serve", "--config gridhook.toml --data-dir data"),
    ("cluster status", ""),
    ("cluster ownership", "--output json"),
    ("cluster move", "0 node-b"),
    ("cluster drain", "node-a"),
    ("cluster forget", "node-c --yes"),
    ("clock show", ""),
    ("clock confirm", ""),
    ("config check", "--config gridhook.toml --changed"),
    ("topics list", "namespaces/plant"),
    ("topics show", "namespaces/plant/topics/heat"),
    (
        "topics create",
        "invoices --input-schema CloudEventSchemaV1_0 --duplicate-window 10m",
    ),
    ("topics update", "orders --allow-from 10.1.0.0/16"),
    ("topics delete", "orders --yes"),
    ("topics keys", "orders --regenerate key2 --yes"),
    ("event-types list", "orders"),
    ("event-types show", "orders Order.Placed"),
    ("event-types put", "orders Order.Placed --body placed.json"),
    ("event-types delete", "orders Order.Placed --yes"),
    ("subscriptions list", "orders"),
    ("subscriptions show", "namespaces/plant/topics/heat work"),
    (
        "subscriptions create",
        "orders shipping --endpoint https://example.com/hook --event-type Order.Placed",
    ),
    (
        "subscriptions update",
        "orders billing --max-attempts 5 --time-to-live 2h",
    ),
    ("subscriptions delete", "orders billing --yes"),
    ("subscriptions hold", "orders billing"),
    ("subscriptions resume", "orders billing"),
    ("subscriptions probe", "orders suspended"),
    ("subscriptions release", "orders suspended"),
    ("subscriptions unblock", "orders ordered customer-7"),
    ("subscriptions retry", "orders billing"),
    (
        "subscriptions test-filter",
        "orders billing --draft filter.json --last 10",
    ),
    (
        "subscriptions test-transform",
        "orders billing --draft transform.json --file events.json",
    ),
    ("listen", "--port 9090 --fail-first 3"),
    (
        "context add",
        "prod --server https://events.example.com --token-file prod.token",
    ),
    ("context use", "prod"),
    ("context list", ""),
    ("context remove", "prod"),
    (
        "dead-letters list",
        "orders billing --reason TimeToLiveExceeded --from 7d",
    ),
    ("dead-letters newest", "--limit 10"),
    ("dead-letters show", "orders billing KEY"),
    ("dead-letters redrive", "orders billing --all --rate 50"),
    ("dead-letters purge", "orders billing --from 7d --yes"),
    ("replay start", "orders billing --from 2h --rate 100 --yes"),
    ("replay list", "orders billing"),
    ("replay running", ""),
    ("replay show", "orders billing ID"),
    ("replay pause", "orders billing ID"),
    ("replay resume", "orders billing ID"),
    ("replay cancel", "orders billing ID"),
    ("trace", "1 --sequence --topic orders"),
    ("ledger", "orders billing --from 2h --outcome delivered"),
    ("backup list", "/srv/backups"),
    ("backup rehearse", "--config gridhook.toml"),
    ("supervision", "--topic namespaces/plant/topics/heat"),
    (
        "tokens create",
        "shop --role publish --scope topics/orders --expires 90d",
    ),
    ("tokens list", ""),
    ("tokens revoke", "shop --yes"),
    ("chaos", "--duration 60s --rate 2000 --kill-every 20ms"),
];

/// Adds the examples to the help of the commands below `above`.
pub(super) fn add_examples(command: clap::Command, above: &str) -> clap::Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|child| child.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        let path = format!("{above} {name}").trim_start().to_owned();
        command.mut_subcommand(&name, |child| {
            add_examples(with_example(child, &path), &path)
        })
    })
}

fn with_example(command: clap::Command, path: &str) -> clap::Command {
    match EXAMPLES.iter().find(|(name, _)| *name == path) {
        Some((_, arguments)) => {
            let example = format!("gridhook {path} {arguments}");
            command.after_help(format!("Example:\n  {}", example.trim_end()))
        }
        None => command,
    }
}
