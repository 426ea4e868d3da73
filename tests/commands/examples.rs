//! Each command has an example in its help, and its first example runs.
//!
//! The examples of `cluster` run on a cluster (`server::cluster::membership`). Addresses, folders
//! of the machine and long times are replaced, and a command that goes on until it is stopped must
//! print something.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use super::{Ended, Folder, leaves};
use crate::support::{
    server::{Server, wait_for},
    sink::{Behavior, Sink},
};

const LONG: Duration = Duration::from_secs(60);

/// The first example of a command, without its indentation.
fn first_example(command: &clap::Command) -> Option<String> {
    let help = command.get_after_help()?.to_string();
    let mut lines = help
        .lines()
        .skip_while(|line| !matches!(*line, "Example:" | "Examples:"));
    lines
        .find_map(|line| line.strip_prefix("  "))
        .map(str::to_owned)
}

/// The words of the example of a command of a cluster, for its test there.
pub(crate) fn example_words(name: &str) -> Vec<String> {
    let (_, command) = leaves()
        .into_iter()
        .find(|(leaf, _)| leaf == name)
        .expect("a command");
    first_example(&command)
        .expect("an example")
        .split(' ')
        .skip(1)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_an_example_of_itself() {
    for (name, command) in leaves() {
        let example = first_example(&command).unwrap_or_else(|| panic!("{name} has no example"));
        let is_own = example.contains(&format!("gridhook {name}"));
        assert!(is_own, "{name}: {example}");
        // Line by line, as it is typed.
        assert!(example.len() <= 120, "{name}: {example}");
    }
}

/// Creates the resources that the examples name, whatever the example before has changed.
const BASE: &str = r#"
gridhook topics delete orders --yes || true
gridhook topics create orders
gridhook topics create domains/shop
gridhook topics create namespaces/plant
gridhook topics create namespaces/plant/topics/heat
gridhook subscriptions create namespaces/plant/topics/heat work --pull
gridhook subscriptions create orders billing --endpoint SINK/billing --dead-letters /r --container letters
gridhook subscriptions create orders suspended --endpoint SINK/suspended
gridhook subscriptions create orders ordered --endpoint SINK/ordered --ordering-key subject --on-failure block \
  --max-attempts 1
"#;

/// A dead letter of billing.
const DEAD_LETTER: &str = r#"
gridhook subscriptions update orders billing --max-attempts 1 --endpoint SINK/refused
gridhook publish orders refused.json
until KEY=$(gridhook dead-letters list orders billing --output json | sed -n 's/.*"key": "\(.*\)".*/\1/p' | head -n 1)
  [ -n "$KEY" ]
do sleep 0.05; done
"#;

/// A replay that takes long: its second event waits.
const REPLAY: &str = r#"
gridhook publish orders events.json
gridhook publish orders explained.json
ID=$(gridhook replay start orders billing --all --rate 0.001 --yes --output json | sed -n 's/.*"id": "\(.*\)".*/\1/p')
"#;

const PAUSED_REPLAY: &str = r#"
gridhook publish orders events.json
gridhook publish orders explained.json
ID=$(gridhook replay start orders billing --all --rate 0.001 --yes --output json | sed -n 's/.*"id": "\(.*\)".*/\1/p')
gridhook replay pause orders billing "$ID"
"#;

/// The needs of an example, and the replacements in it.
struct ExampleSetup {
    before: &'static str,
    replaced: &'static [(&'static str, &'static str)],
}

fn setup_for(name: &str) -> ExampleSetup {
    let (before, replaced): (&str, &[(&str, &str)]) = match name {
        "health" => ("", &[("--server http://127.0.0.1:8080 ", "")]),
        "event-types show" | "event-types delete" => (
            "gridhook event-types put orders Order.Placed --body placed.json",
            &[],
        ),
        "subscriptions create" => ("", &[("https://example.com/hook", "SINK/shipping")]),
        "subscriptions resume" => ("gridhook subscriptions hold orders billing", &[]),
        "subscriptions probe" | "subscriptions release" => (
            r#"gridhook publish orders events.json
            until gridhook subscriptions show orders suspended | grep -q 'suspended for'; do sleep 0.05; done"#,
            &[],
        ),
        "subscriptions unblock" => (
            r#"gridhook publish orders blocking.json
            until gridhook subscriptions show orders ordered | grep -q 'unblock'; do sleep 0.05; done"#,
            &[],
        ),
        "explain" => ("gridhook publish orders explained.json", &[]),
        "context use" | "context list" | "context remove" => (
            "gridhook context add prod --server http://127.0.0.1:9 || true",
            &[],
        ),
        "context add" => ("gridhook context remove prod || true", &[]),
        "dead-letters show" => (DEAD_LETTER, &[(" KEY", " \"$KEY\"")]),
        "dead-letters redrive" | "dead-letters purge" => (DEAD_LETTER, &[]),
        "replay show" | "replay pause" | "replay cancel" => (REPLAY, &[(" ID", " \"$ID\"")]),
        "replay resume" => (PAUSED_REPLAY, &[(" ID", " \"$ID\"")]),
        "replay start" | "trace" | "ledger" => ("gridhook publish orders events.json", &[]),
        "fsck" => (
            "rm -rf store copy; gridhook backup \"$PWD/copy\"; gridhook restore copy --data-dir \
             store",
            &[("--data-dir data", "--data-dir store")],
        ),
        "backup" => (
            "rm -rf srv; mkdir -p srv/backups",
            &[("/srv/", "\"$PWD\"/srv/")],
        ),
        "backup list" => (
            "rm -rf srv; mkdir -p srv/backups; gridhook backup \"$PWD/srv/backups/monday\"",
            &[("/srv/", "\"$PWD\"/srv/")],
        ),
        "backup rehearse" => ("mkdir -p repository; gridhook backup", &[]),
        "restore" => (
            "rm -rf srv store; mkdir -p srv/backups; gridhook backup \"$PWD/srv/backups/monday\"",
            &[("/srv/", "srv/"), ("--data-dir data", "--data-dir store")],
        ),
        "tokens revoke" => ("gridhook tokens create shop --role publish || true", &[]),
        "tokens create" => ("gridhook tokens revoke shop --yes || true", &[]),
        "chaos" => (
            "",
            &[(
                "--duration 60s --rate 2000 --kill-every 20ms",
                "--duration 500ms --rate 20 --kill-every 200ms",
            )],
        ),
        "simulate" => (
            "",
            &[(
                "--model healthy=3",
                "--model healthy=3 --subscriptions 20 --days 0.01",
            )],
        ),
        "completions" => ("", &[("/etc/bash_completion.d/", "completion-of-")]),
        "man" => (
            "",
            &[("/usr/local/share/man/man1 && man gridhook-serve", "pages")],
        ),
        "listen" => ("", &[("--port 9090", "--port 0")]),
        _ => ("", &[]),
    };
    ExampleSetup { before, replaced }
}

/// The commands that go on until they are stopped.
const LASTING: [&str; 3] = ["serve", "listen", "tail"];

#[test]
fn the_example_of_every_command_runs() {
    let folder = Folder::new();
    let repository = format!("file://{}/repository", folder.path().display());
    fs::create_dir(folder.path().join("repository")).expect("a folder");
    let settings = [
        ("CHAOS__ENABLED", "true"),
        ("JOURNAL__RETENTION", "1h"),
        ("DELIVERY__SUSPEND_AFTER_FAILURES", "1"),
        ("BACKUP__STORE__URL", &repository),
    ];
    let server = Server::start(&settings);
    let sink = Sink::start();
    for (path, status) in [("/suspended", 503), ("/ordered", 400), ("/refused", 400)] {
        sink.set(path, Behavior::Respond(status));
    }
    prepare_files(&folder, &repository);
    let mut wrong = Vec::new();
    let mut examples = 0;
    for (name, command) in leaves()
        .into_iter()
        .filter(|(name, _)| !name.starts_with("cluster "))
    {
        let ExampleSetup { before, replaced } = setup_for(&name);
        let example = first_example(&command).expect("an example");
        let example = replaced
            .iter()
            .fold(example, |example, (from, to)| example.replace(from, to));
        let script = format!(
            "{{ set -e; {BASE}\n{before}\n}} > before.log 2>&1 || \
             {{ cat before.log >&2; exit 99; }}\n{}{example}",
            if LASTING.contains(&name.as_str()) {
                "exec "
            } else {
                ""
            }
        );
        let script = script.replace("SINK", &sink.url(""));
        examples += 1;
        let failure = if LASTING.contains(&name.as_str()) {
            run_until_it_prints(&server, &folder, &script)
        } else {
            run_to_its_end(&server, &folder, &script)
        };
        wrong.extend(failure.map(|failure| format!("{name}: {example}\n{failure}")));
    }
    assert!(
        wrong.is_empty() && examples >= 60,
        "of {examples} examples these failed:\n{}",
        wrong.join("\n\n")
    );
}

fn prepare_files(folder: &Folder, repository: &str) {
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gridhook"), bin.join("gridhook"))
        .expect("a link");
    let edition = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/editions/current.toml");
    fs::copy(edition, folder.path().join("my.toml")).expect("an edition");
    let event = |id: &str, subject: &str| {
        format!(
            r#"[{{"id": "{id}", "eventType": "Order.Placed", "subject": "{subject}", "dataVersion": "1",
            "eventTime": "2026-01-01T00:00:00Z", "data": {{"total": 5}}}}]"#
        )
    };
    folder.write("events.json", &event("1", "/orders/1"));
    folder.write("refused.json", &event("refused", "/orders/2"));
    folder.write("blocking.json", &event("blocking", "customer-7"));
    folder.write("explained.json", &event("6b9a", "/orders/3"));
    folder.write("prod.token", "a-token-of-another-server");
    folder.write("placed.json", r#"{"description": "An order was placed"}"#);
    folder.write("filter.json", r#"{"subjectBeginsWith": "/orders"}"#);
    folder.write("transform.json", r#"{"body": "data.total"}"#);
    folder.write("topics.toml", "[topics.orders]\n");
    folder.write(
        "gridhook.toml",
        &format!("[server]\nlisten = \"127.0.0.1:0\"\n[backup.store]\nurl = \"{repository}\"\n"),
    );
}

fn bash(server: &Server, folder: &Folder, script: &str) -> std::process::Command {
    let token = fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let path = format!(
        "{}:{}",
        folder.path().join("bin").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let at = format!("http://{}", server.address());
    let variables = [
        ("GRIDHOOK_SERVER", at.as_str()),
        ("GRIDHOOK_TOKEN", token.trim()),
        ("PATH", path.as_str()),
    ];
    folder.command("bash", &["-c", script], &variables)
}

fn run_to_its_end(server: &Server, folder: &Folder, script: &str) -> Option<String> {
    let ended = Ended::from_output(
        &bash(server, folder, script)
            .output()
            .expect("bash is there"),
    );
    (ended.code != Some(0)).then(|| format!("{:?}: {}{}", ended.code, ended.out, ended.error))
}

/// Publishes until the command has printed something, and ends it.
fn run_until_it_prints(server: &Server, folder: &Folder, script: &str) -> Option<String> {
    let printed = folder.path().join("printed");
    let log = File::create(&printed).expect("a file");
    let mut command = bash(server, folder, script);
    command
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .stdin(Stdio::null());
    let mut child: Child = command.spawn().expect("bash is there");
    let text = || fs::read_to_string(&printed).unwrap_or_default();
    let mut ended = None;
    wait_for("the command to print", LONG, || {
        run_to_its_end(server, folder, "gridhook publish orders events.json");
        ended = child.try_wait().expect("a child");
        ended.is_some() || !text().is_empty()
    });
    // The command is stopped, or has ended.
    child.kill().ok();
    child.wait().expect("an end");
    ended.map(|status| format!("{status}: {}", text()))
}
