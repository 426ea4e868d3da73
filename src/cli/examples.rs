//! An example for each command that has none in its own help.
//!
//! Each example is executed by a test. A command with examples in its `after_help` is not in the
//! table.

/// The name of a command with those above it, and its example.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "serve",
        "gridhook serve --config gridhook.toml --data-dir data",
    ),
    ("cluster status", "gridhook cluster status"),
    (
        "cluster ownership",
        "gridhook cluster ownership --output json",
    ),
    ("cluster move", "gridhook cluster move 0 node-b"),
    ("cluster drain", "gridhook cluster drain node-a"),
    ("cluster forget", "gridhook cluster forget node-c --yes"),
    ("clock show", "gridhook clock show"),
    ("clock confirm", "gridhook clock confirm"),
    (
        "config check",
        "gridhook config check --config gridhook.toml --changed",
    ),
    ("topics list", "gridhook topics list namespaces/plant"),
    (
        "topics show",
        "gridhook topics show namespaces/plant/topics/heat",
    ),
    (
        "topics create",
        "gridhook topics create invoices --input-schema CloudEventSchemaV1_0 --duplicate-window \
         10m",
    ),
    (
        "topics update",
        "gridhook topics update orders --allow-from 10.1.0.0/16",
    ),
    ("topics delete", "gridhook topics delete orders --yes"),
    (
        "topics keys",
        "gridhook topics keys orders --regenerate key2 --yes",
    ),
    ("event-types list", "gridhook event-types list orders"),
    (
        "event-types show",
        "gridhook event-types show orders Order.Placed",
    ),
    (
        "event-types put",
        "gridhook event-types put orders Order.Placed --body placed.json",
    ),
    (
        "event-types delete",
        "gridhook event-types delete orders Order.Placed --yes",
    ),
    ("subscriptions list", "gridhook subscriptions list orders"),
    (
        "subscriptions show",
        "gridhook subscriptions show namespaces/plant/topics/heat work",
    ),
    (
        "subscriptions create",
        "gridhook subscriptions create orders shipping --endpoint https://example.com/hook \
         --event-type Order.Placed",
    ),
    (
        "subscriptions update",
        "gridhook subscriptions update orders billing --max-attempts 5 --time-to-live 2h",
    ),
    (
        "subscriptions delete",
        "gridhook subscriptions delete orders billing --yes",
    ),
    (
        "subscriptions hold",
        "gridhook subscriptions hold orders billing",
    ),
    (
        "subscriptions resume",
        "gridhook subscriptions resume orders billing",
    ),
    (
        "subscriptions probe",
        "gridhook subscriptions probe orders suspended",
    ),
    (
        "subscriptions release",
        "gridhook subscriptions release orders suspended",
    ),
    (
        "subscriptions unblock",
        "gridhook subscriptions unblock orders ordered customer-7",
    ),
    (
        "subscriptions retry",
        "gridhook subscriptions retry orders billing",
    ),
    (
        "subscriptions test-filter",
        "gridhook subscriptions test-filter orders billing --draft filter.json --last 10",
    ),
    (
        "subscriptions test-transform",
        "gridhook subscriptions test-transform orders billing --draft transform.json --file \
         events.json",
    ),
    ("listen", "gridhook listen --port 9090 --fail-first 3"),
    (
        "context add",
        "gridhook context add prod --server https://events.example.com --token-file prod.token",
    ),
    ("context use", "gridhook context use prod"),
    ("context list", "gridhook context list"),
    ("context remove", "gridhook context remove prod"),
    (
        "dead-letters list",
        "gridhook dead-letters list orders billing --reason TimeToLiveExceeded --from 7d",
    ),
    (
        "dead-letters newest",
        "gridhook dead-letters newest --limit 10",
    ),
    (
        "dead-letters show",
        "gridhook dead-letters show orders billing KEY",
    ),
    (
        "dead-letters redrive",
        "gridhook dead-letters redrive orders billing --all --rate 50",
    ),
    (
        "dead-letters purge",
        "gridhook dead-letters purge orders billing --from 7d --yes",
    ),
    (
        "replay start",
        "gridhook replay start orders billing --from 2h --rate 100 --yes",
    ),
    ("replay list", "gridhook replay list orders billing"),
    ("replay running", "gridhook replay running"),
    ("replay show", "gridhook replay show orders billing ID"),
    ("replay pause", "gridhook replay pause orders billing ID"),
    ("replay resume", "gridhook replay resume orders billing ID"),
    ("replay cancel", "gridhook replay cancel orders billing ID"),
    ("trace", "gridhook trace 1 --sequence --topic orders"),
    (
        "ledger",
        "gridhook ledger orders billing --from 2h --outcome delivered",
    ),
    ("backup list", "gridhook backup list /srv/backups"),
    (
        "backup rehearse",
        "gridhook backup rehearse --config gridhook.toml",
    ),
    (
        "supervision",
        "gridhook supervision --topic namespaces/plant/topics/heat",
    ),
    (
        "tokens create",
        "gridhook tokens create shop --role publish --scope topics/orders --expires 90d",
    ),
    ("tokens list", "gridhook tokens list"),
    ("tokens revoke", "gridhook tokens revoke shop --yes"),
    (
        "chaos",
        "gridhook chaos --duration 60s --rate 2000 --kill-every 20ms",
    ),
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
        Some((_, example)) => command.after_help(format!("Example:\n  {example}")),
        None => command,
    }
}
