//! Exit statuses: 2 for a command line that cannot be used, also where the command finds that, and
//! 1 for what could not be done.

use std::fmt::Write as _;

use expect_test::expect;

use super::Folder;

#[test]
fn unusable_command_lines_end_with_2_and_failures_with_1() {
    let folder = Folder::new();
    folder.write("token", "a-token-of-some-length");
    folder.write("list.json", "[]");
    folder.write("topics.yaml", "topics:");
    folder.write("events.json", "{\"id\": ");
    folder.write("broken.toml", "[server]\nlisten = \"here\"\n");
    let lines = [
        "topics list --no-such-flag",
        "topics list --server localhost:8080",
        "topics list",
        "topics list --token-file nowhere",
        "topics list --context prod",
        "topics list --token-file token --ca-file list.json",
        "topics create orders --body list.json",
        "topics update orders",
        "topics delete a/b/c",
        "subscriptions create orders billing",
        "subscriptions create orders billing --pull",
        "subscriptions create orders billing --endpoint https://a --time-to-live 30",
        "subscriptions update orders billing",
        "dead-letters purge orders billing",
        "dead-letters redrive orders billing",
        "replay start orders billing",
        "publish https://example.com/api/events",
        "publish orders nowhere.json",
        "publish namespaces/plant --key-file token",
        "tail a/b/c/d",
        "help nonsense",
        "apply -f topics.yaml",
        "serve --listen here",
        "config check --listen here",
        "simulate --days 0",
        "simulate --rate 100000",
        "simulate --edition nonsense",
        "backup list",
        "backup list nonsense://x",
        "listen --status 99",
        // Failures that are not mistakes in the command line.
        "topics list --token-file token --server http://127.0.0.1:9",
        "health --server http://127.0.0.1:9",
        "config check --config broken.toml",
        "fsck --data-dir nowhere",
        "restore nowhere --data-dir data",
        "backup list nowhere",
    ];
    let mut statuses = String::new();
    for line in lines {
        let ended = folder.run(&line.split(' ').collect::<Vec<_>>(), &[]);
        let code = ended.code.expect("a status");
        assert!(
            code == 0 || !ended.error.is_empty() || line.starts_with("health"),
            "{line} says why"
        );
        writeln!(statuses, "{code} {line}").expect("a string");
    }
    expect![[r#"
        2 topics list --no-such-flag
        2 topics list --server localhost:8080
        2 topics list
        2 topics list --token-file nowhere
        2 topics list --context prod
        2 topics list --token-file token --ca-file list.json
        2 topics create orders --body list.json
        2 topics update orders
        2 topics delete a/b/c
        2 subscriptions create orders billing
        2 subscriptions create orders billing --pull
        2 subscriptions create orders billing --endpoint https://a --time-to-live 30
        2 subscriptions update orders billing
        2 dead-letters purge orders billing
        2 dead-letters redrive orders billing
        2 replay start orders billing
        2 publish https://example.com/api/events
        2 publish orders nowhere.json
        2 publish namespaces/plant --key-file token
        2 tail a/b/c/d
        2 help nonsense
        2 apply -f topics.yaml
        2 serve --listen here
        2 config check --listen here
        2 simulate --days 0
        2 simulate --rate 100000
        2 simulate --edition nonsense
        2 backup list
        2 backup list nonsense://x
        2 listen --status 99
        1 topics list --token-file token --server http://127.0.0.1:9
        1 health --server http://127.0.0.1:9
        1 config check --config broken.toml
        1 fsck --data-dir nowhere
        1 restore nowhere --data-dir data
        1 backup list nowhere
    "#]]
    .assert_eq(&statuses);
}
