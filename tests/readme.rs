//! The README and the manual are executed: each block of shell runs, and the files and tests that
//! they name exist.
//!
//! The sections of `WALK` are typed into two terminals in this order, and what a terminal prints
//! must be the block of text that follows. Three things differ from what a reader does:
//! - `make run` is replaced by the binary of this build with the arguments of the Makefile's own
//!   `run`;
//! - `127.0.0.1` is replaced by a loopback address that belongs to this process, so that its ports
//!   are free, and `gridhook listen` gets it as a flag;
//! - a retry after ten seconds comes after three: an edition of our own replaces `current`.
//!
//! Blocks that need something else (dead letters, a namespace, a stopped server) run in a second
//! test, which sets that up first (`setup_for`) and replaces placeholders such as `EVENT_ID`.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use gridhook::{clock::Clock, manual::CHAPTERS};
use tempfile::TempDir;

const README: &str = include_str!("../README.md");

/// The sections that are typed in this order: the file, and the heading without its hyphens.
const WALK: [(&str, &str); 5] = [
    ("README.md", "Quick start"),
    ("src/manual/subscriptions.md", "The control plane"),
    ("src/manual/publishing.md", "A request with curl"),
    ("src/manual/delivery.md", "Try it: an endpoint that is down"),
    ("src/manual/delivery.md", "Try it: kill -9"),
];

/// The README and the chapters: path and text.
fn documents() -> Vec<(String, &'static str)> {
    let chapters = CHAPTERS
        .iter()
        .map(|chapter| (format!("src/manual/{}.md", chapter.name), chapter.markdown));
    std::iter::once(("README.md".to_owned(), README))
        .chain(chapters)
        .collect()
}

/// All documents, also those that are not executed.
fn all_documents() -> Vec<(String, &'static str)> {
    let mut documents = documents();
    documents.push(("tests/README.md".to_owned(), include_str!("README.md")));
    documents.push((
        "benches/README.md".to_owned(),
        include_str!("../benches/README.md"),
    ));
    documents.push(("src/README.md".to_owned(), include_str!("../src/README.md")));
    documents.push((
        "CONTRIBUTING.md".to_owned(),
        include_str!("../CONTRIBUTING.md"),
    ));
    documents
}

/// How long a block may take to print what it prints: a busy machine, and a retry.
const PATIENCE: Duration = Duration::from_secs(180);

/// Typed behind a block in the terminal whose commands end, so that the next is not typed ahead.
const DONE: &str = "(the block is done)";

/// A block of shell, and what its terminal prints.
struct Step {
    /// The file and the line that the block begins in.
    at: String,
    terminal: Screen,
    commands: String,
    printed: Vec<String>,
    /// Whether the lines may come in any order, because two processes print them.
    unordered: bool,
}

impl Step {
    /// A block whose output has no text of its own.
    fn block(at: String, commands: String) -> Self {
        Self {
            at,
            terminal: Screen::Other,
            commands,
            printed: Vec::new(),
            unordered: false,
        }
    }
}

/// The reader's two terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Screen {
    /// The server runs in the foreground.
    Server,
    /// Everything else.
    Other,
}

/// The plain blocks of a section in order.
fn steps(file: &str, title: &str) -> Vec<Step> {
    let documents = documents();
    let (_, text) = documents
        .iter()
        .find(|(path, _)| path == file)
        .expect("a document");
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text
        .lines()
        .enumerate()
        .skip_while(|(_, line)| *line != format!("## {title}"))
        .skip(1);
    while let Some((number, line)) = lines.next() {
        if line.starts_with("## ") {
            break;
        }
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<String> = lines
            .by_ref()
            .map(|(_, line)| line.to_owned())
            .take_while(|line| line != "```")
            .collect();
        let at = format!("{file}:{}", number + 1);
        let terminal = if kind.ends_with(" server") {
            Screen::Server
        } else {
            Screen::Other
        };
        match kind {
            "sh" | "sh server" => {
                let commands = block.join("\n");
                steps.push(Step {
                    at,
                    terminal,
                    commands,
                    printed: Vec::new(),
                    unordered: false,
                });
            }
            "text" | "text server" | "text unordered" => {
                let step = steps.last_mut().expect("output follows commands");
                assert_eq!(
                    step.terminal, terminal,
                    "{at}: output of the other terminal"
                );
                step.printed = block;
                step.unordered = kind == "text unordered";
            }
            // It is executed behind the walk.
            "sh control-plane" => {}
            other => panic!("{at}: a block of {other:?} in what is executed"),
        }
    }
    assert!(
        !steps.is_empty(),
        "{file} has no section {title} with commands"
    );
    steps
}

/// The steps of the first sections of the walk.
fn walk(sections: usize) -> Vec<Step> {
    WALK[..sections]
        .iter()
        .flat_map(|(file, title)| steps(file, title))
        .collect()
}

/// A shell that is typed into, and what it has printed.
struct Terminal {
    shell: Child,
    keyboard: ChildStdin,
    printed: Arc<Mutex<String>>,
    /// How much of it was compared already.
    seen: usize,
}

impl Terminal {
    fn open(folder: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new("bash");
        command
            .args(["--noprofile", "--norc"])
            .current_dir(folder)
            .process_group(0);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GRIDHOOK_"))
        {
            command.env_remove(name);
        }
        command
            .env("HOME", folder)
            .env("GRIDHOOK_POLICY__EDITIONS_DIR", folder.join("editions"));
        command
            .env_remove("XDG_CONFIG_HOME")
            .envs(variables.iter().copied());
        // One pipe for both, as a terminal is: lines come in the order in which they were written.
        let (screen, writer) = io::pipe().expect("a pipe");
        command
            .stdin(Stdio::piped())
            .stdout(writer.try_clone().expect("a pipe's end"))
            .stderr(writer);
        let mut shell = command.spawn().expect("bash is there");
        let keyboard = shell.stdin.take().expect("a pipe");
        let printed = Arc::<Mutex<String>>::default();
        // It has the writing end, which must be closed when the shell is gone.
        drop(command);
        copy(screen, &printed);
        Self {
            shell,
            keyboard,
            printed,
            seen: 0,
        }
    }

    fn type_in(&mut self, text: &str) {
        writeln!(self.keyboard, "{text}").expect("the shell reads");
    }

    /// The output since the last comparison.
    fn fresh(&self) -> String {
        self.printed.lock()[self.seen..].to_owned()
    }
}

/// The shell and whatever it started, the server above all.
impl Drop for Terminal {
    fn drop(&mut self) {
        let group = format!("-{}", self.shell.id());
        let killed = Command::new("kill").args(["-9", "--", &group]).status();
        assert!(
            killed.is_ok_and(|status| status.success()) || thread::panicking(),
            "the terminal is closed"
        );
        // It ends by the signal; how it does says nothing.
        self.shell.wait().ok();
    }
}

fn copy(mut from: impl Read + Send + 'static, to: &Arc<Mutex<String>>) {
    let to = Arc::clone(to);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        let mut pending = Vec::new();
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            pending.extend_from_slice(&buffer[..read]);
            // Whole lines, so that those of two writers do not mix.
            if let Some(end) = pending.iter().rposition(|byte| *byte == b'\n') {
                let lines: Vec<u8> = pending.drain(..=end).collect();
                to.lock().push_str(&String::from_utf8_lossy(&lines));
            }
        }
    });
}

/// Replaces the parts that differ between runs with names: points in time, codes, and how often a
/// late event was tried.
fn masked(line: &str) -> String {
    let stop = |c: char| c.is_whitespace() || c == '"' || c == ',';
    let words = line.split_inclusive(stop).map(|word| {
        let (word, end) = word.split_at(word.trim_end_matches(stop).len());
        let word = match word.strip_prefix("delivery-count=") {
            Some(count) if count != "0" => "delivery-count=(again)",
            Some(_) | None if word.parse::<jiff::Timestamp>().is_ok() => "(time)",
            Some(_) | None if uuid::Uuid::parse_str(word).is_ok() => "(code)",
            Some(_) | None => word,
        };
        format!("{word}{end}")
    });
    words.collect()
}

/// Whether the lines are the expected ones, where a line `…` stands for any number of lines.
fn fits(expected: &[String], lines: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=lines.len()).any(|skip| fits(rest, &lines[skip..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, lines)| line == first && fits(rest, lines)),
    }
}

/// Waits until the terminal has printed the expected lines, and returns its output.
fn compare(step: &Step, terminal: &mut Terminal, expected: &[String]) -> String {
    let clock = Clock::system();
    let from = clock.now();
    loop {
        let fresh = terminal.fresh();
        let mut lines: Vec<String> = fresh
            .lines()
            .filter(|line| *line != DONE)
            .map(masked)
            .collect();
        let mut expected = expected.to_vec();
        if step.unordered {
            lines.sort_unstable();
            expected.sort_unstable();
        }
        let done = step.terminal == Screen::Server || fresh.lines().any(|line| line == DONE);
        if done && fits(&expected, &lines) {
            terminal.seen += fresh.len();
            return lines.join("\n");
        }
        assert!(
            clock.now().since(from) < PATIENCE,
            "{}: the block\n{}\nprinted\n{}\nbut the text says\n{}",
            step.at,
            step.commands,
            lines.join("\n"),
            expected.join("\n"),
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// The command of `make run`, with the binary of this build and the address of this test.
fn make_run(root: &Path, address: &str) -> String {
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "-n", "run"])
        .current_dir(root);
    make.env_remove("ARGS")
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL");
    let printed = String::from_utf8(make.output().expect("make is there").stdout).expect("text");
    let (_, arguments) = printed
        .trim()
        .split_once(" -- ")
        .expect("`make run` runs `cargo run … -- arguments`");
    format!(
        "{} {arguments} --listen {address}:8080",
        env!("CARGO_BIN_EXE_gridhook")
    )
}

/// The reader's folder and home: the settings, the binary where `make run` puts it, an edition that
/// waits less.
fn folder(root: &Path) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = |path: &str| -> PathBuf { folder.path().join(path) };
    std::os::unix::fs::symlink(root.join("config"), inside("config")).expect("a link");
    let makefile = fs::read_to_string(root.join("Makefile")).expect("a Makefile");
    assert!(
        makefile.contains("CARGO_TARGET_DIR ?= $(HOME)/.cache/gridhook/target\n"),
        "where `make run` builds"
    );
    fs::create_dir_all(inside(".cache/gridhook/target/release")).expect("a folder");
    std::os::unix::fs::symlink(
        env!("CARGO_BIN_EXE_gridhook"),
        inside(".cache/gridhook/target/release/gridhook"),
    )
    .expect("a link");
    let edition =
        fs::read_to_string(root.join("config/editions/current.toml")).expect("an edition");
    fs::create_dir(inside("editions")).expect("a folder");
    fs::write(
        inside("editions/current.toml"),
        edition.replace("\"10s\"", "\"3s\""),
    )
    .expect("an edition");
    folder
}

#[test]
fn the_quick_start_prints_what_it_says() {
    let curl = Command::new("curl").arg("--version").output();
    assert!(
        curl.is_ok(),
        "curl is missing: the quick start uses it. `make test` installs it on Debian"
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder(root);
    let process = std::process::id();
    let address = format!("127.{}.{}.1", 1 + process % 250, process / 250 % 250);
    let run = make_run(root, &address);
    let server_at = format!("http://{address}:8080");
    let mut server = Terminal::open(folder.path(), &[]);
    // The commands find the server without a flag, as they do at the default address.
    let mut other = Terminal::open(folder.path(), &[("GRIDHOOK_SERVER", &server_at)]);

    let steps = walk(WALK.len());
    assert!(steps.len() >= 11, "{} blocks were found", steps.len());
    for step in &steps {
        let here = |text: &str| text.replace("127.0.0.1", &address);
        let expected: Vec<String> = step
            .printed
            .iter()
            .map(|line| masked(&here(line)))
            .collect();
        let commands = here(&step.commands).replace("make run", &run).replace(
            "gridhook listen",
            &format!("gridhook listen --listen {address}:9090"),
        );
        let terminal = match step.terminal {
            Screen::Server => &mut server,
            Screen::Other => &mut other,
        };
        terminal.type_in(&commands);
        match step.terminal {
            // Its command does not end.
            Screen::Server => {}
            Screen::Other => terminal.type_in(&format!("echo '{DONE}'")),
        }
        compare(step, terminal, &expected);
    }

    let calls = blocks()
        .into_iter()
        .find(|block| block.kind == "sh control-plane")
        .expect("the control plane's calls");
    let calls = calls.commands;
    other.type_in(&format!("{calls}\necho; echo '{DONE}'"));
    let step = Step::block("the control plane's calls".to_owned(), calls.clone());
    let printed = compare(&step, &mut other, &["…".to_owned()]);
    let answers = serde_json::Deserializer::from_str(&printed).into_iter::<serde_json::Value>();
    let answers: Vec<_> = answers
        .collect::<Result<_, _>>()
        .expect("each call is answered with JSON");
    assert_eq!(answers.len(), calls.matches("arm ").count(), "{answers:?}");
    let errors: Vec<_> = answers
        .iter()
        .filter_map(|response| response["error"]["code"].as_str())
        .collect();
    assert_eq!(
        errors, ["Conflict"; 2],
        "a probe and a release of a healthy endpoint: {answers:?}"
    );

    let blocks: Vec<Block> = blocks()
        .into_iter()
        .filter(|block| block.kind == "sh operator")
        .collect();
    assert!(
        blocks.len() >= 4,
        "{} blocks are an operator's",
        blocks.len()
    );
    for Block { at, commands, .. } in blocks {
        // The first command that fails ends the block.
        let commands = commands.replace("127.0.0.1", &address);
        // A response of the server may end without a line's end.
        other.type_in(&format!(
            "( set -e\n{commands}\n); status=$?; echo; echo \"status $status\"; echo '{DONE}'"
        ));
        compare(
            &Step::block(at, commands),
            &mut other,
            &["…".to_owned(), "status 0".to_owned()],
        );
    }
    for written in [
        "before-upgrade/backup.json",
        "gridhook.bash",
        "man1/gridhook.1",
    ] {
        assert!(folder.path().join(written).exists(), "{written} is there");
    }
}

/// A block of shell.
struct Block {
    /// The file and the line that it begins in.
    at: String,
    /// The words behind its ticks.
    kind: String,
    commands: String,
}

/// The commands about clusters.
pub(crate) fn cluster_commands() -> Vec<String> {
    let of_clusters = blocks()
        .into_iter()
        .filter(|block| block.kind == "sh cluster");
    of_clusters
        .flat_map(|block| {
            block
                .commands
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// All blocks of shell, in order.
fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for (path, text) in documents() {
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let Some(kind) = line.strip_prefix("```") else {
                continue;
            };
            let commands: Vec<&str> = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| *line != "```")
                .collect();
            let is_shell = ["sh", "bash", "console", "shell"]
                .contains(&kind.split(' ').next().unwrap_or_default());
            let is_known = is_shell
                || ["text", "text server", "text unordered", "toml", "yaml"].contains(&kind);
            let at = format!("{path}:{}", number + 1);
            if let Some((_, scenario)) = kind
                .split_once(' ')
                .filter(|(_, file)| file.starts_with("tests/sdk/"))
            {
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(scenario);
                let executed = fs::read_to_string(file).expect("the scenario of a client");
                let missing = commands.iter().find(|line| !executed.contains(line.trim()));
                assert_eq!(
                    missing, None,
                    "{at}: the line is not in {scenario}, which is executed"
                );
                continue;
            }
            assert!(is_known, "{at}: nobody executes a block of {kind:?}");
            if is_shell {
                blocks.push(Block {
                    at,
                    kind: kind.to_owned(),
                    commands: commands.join("\n"),
                });
            }
        }
    }
    blocks
}

/// The set-up of a block: commands before it, and replacements in its commands.
struct BlockSetup {
    before: &'static str,
    /// Placeholders, and their values here.
    replaced: &'static [(&'static str, &'static str)],
}

/// The setup of a block, by the first test module that it names.
fn setup_for(module: &str) -> Option<BlockSetup> {
    Some(match module {
        "server::operator" => BlockSetup {
            // The topic of the quick start is made once more.
            before: "arm DELETE orders",
            replaced: &[],
        },
        "server::trace" => BlockSetup {
            before: "order 11 | send",
            replaced: &[("EVENT_ID", "11")],
        },
        // Later blocks publish the same ids again.
        "server::duplicates" => BlockSetup {
            before: "",
            replaced: &[(
                "PT10M",
                "PT10M\ngridhook topics update orders --duplicate-window off",
            )],
        },
        "server::publish" => BlockSetup {
            before: "order 12 > events.json",
            replaced: &[],
        },
        "server::tokens" | "server::audit" | "server::event_types" => BlockSetup {
            before: "",
            replaced: &[],
        },
        "config" => BlockSetup {
            before: "",
            replaced: &[("--config gridhook.toml", "--config config/gridhook.toml")],
        },
        // These go on until they are stopped.
        "server::watch" => BlockSetup {
            before: "",
            replaced: &[
                ("gridhook top ", "gridhook top --once "),
                ("gridhook tail ", "lasting tail "),
            ],
        },
        "server::redrive" => BlockSetup {
            before: r#"
                arm PATCH orders/eventSubscriptions/billing '{"deadLetterDestination": {"endpointType": "StorageBlob",
                  "properties": {"resourceId": "/r", "blobContainerName": "letters"}}}' > /dev/null
                listen --status 400
                order 17 | send
                until letters=$(gridhook dead-letters list orders billing --output json) && grep -q '"17"' <<< "$letters"; do
                  sleep 0.1
                done
                LETTER=$(grep -oE '"key": ?"[^"]*"' <<< "$letters" | head -n 1 | cut -d '"' -f 4)
                listen"#,
            replaced: &[(" KEY ", " \"$LETTER\" ")],
        },
        "server::dead_letter" => BlockSetup {
            before: r#"
                order 19 | sed 's/"data"/"deadLetterReason": "TimeToLiveExceeded", "deliveryAttempts": 1,
                  "lastDeliveryOutcome": "NotFound", "publishTime": "2026-11-20T12:00:00Z", &/' > letters.json"#,
            replaced: &[(" FILE", " letters.json")],
        },
        "server::replay" => BlockSetup {
            before: "",
            replaced: &[
                ("2026-11-20T08:00:00Z", "$(date -u -d '-1 hour' +%FT%TZ)"),
                ("2026-11-20T09:00:00Z", "$(date -u +%FT%TZ)"),
            ],
        },
        "server::pull" => BlockSetup {
            before: r#"
                plant() {
                  curl -sS --fail-with-body -X "$1" -H "Authorization: Bearer $(cat data/admin-token)" ${3:+-d "$3"} \
                    "http://127.0.0.1:8080/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/namespaces/plant$2"
                }
                plant PUT '' '{"location": "local"}' > /dev/null
                plant PUT /topics/heat '{}' > /dev/null
                plant PUT /topics/heat/eventSubscriptions/work '{"properties": {
                  "deliveryConfiguration": {"deliveryMode": "Queue"}}}' > /dev/null
                KEY=$(plant POST /listKeys | sed 's/.*"key1":"\([^"]*\)".*/\1/')
                curl -sS --fail-with-body -H "Authorization: SharedAccessKey $KEY" \
                  -H 'Content-Type: application/cloudevents+json' \
                  -d '{"specversion": "1.0", "id": "1", "source": "/s", "type": "T"}' \
                  http://127.0.0.1:8080/namespaces/plant/topics/heat:publish"#,
            replaced: &[("-X POST ", "-sS --fail-with-body -X POST ")],
        },
        "server::chaos_command" => BlockSetup {
            before: "",
            replaced: &[(
                "--duration 60s --rate 2000 --kill-every 20ms",
                "--duration 1s --rate 20 --kill-every 500ms",
            )],
        },
        // The server is stopped before a store is looked at, and a restored one must not have one
        // in its place.
        "server::backup" => BlockSetup {
            before: "mkdir backups",
            replaced: &[
                ("/srv/backups/monday", "backups/monday"),
                (
                    "gridhook fsck --data-dir data ",
                    "stopped; gridhook fsck --data-dir data ",
                ),
                (
                    "gridhook restore backups",
                    "mv data damaged-data; gridhook restore backups",
                ),
                (
                    "gridhook restore damaged-data",
                    "mv data old-data; gridhook restore damaged-data",
                ),
                ("monday --data-dir data", "monday --data-dir \"$PWD/data\""),
                (
                    "damaged-data --data-dir data",
                    "damaged-data --data-dir \"$PWD/data\"",
                ),
            ],
        },
        "simulate::command" => BlockSetup {
            before: "",
            replaced: &[("--subscriptions 600", "--subscriptions 40")],
        },
        _ => return None,
    })
}

/// Helpers of the blocks, besides those of the quick start.
fn helpers(address: &str) -> String {
    format!(
        r#"
        binary=$(type -P gridhook)
        # Commands that ask no server take their settings from the environment.
        gridhook() {{
          case " $* " in
            *' --data-dir '* | ' config '* | ' simulate '*) env -u GRIDHOOK_SERVER "$binary" "$@" ;;
            *) "$binary" "$@" ;;
          esac
        }}
        send() {{ gridhook publish orders; }}
        # Runs for a while, and must not end by itself.
        lasting() {{
          timeout 2 "$binary" "$@" > /dev/null || [ $? = 124 ]
        }}
        # Another endpoint at the place of the one that listens.
        listen() {{
          kill "$listener" 2>/dev/null && wait "$listener"
          "$binary" listen --listen {address}:9090 "$@" > /dev/null &
          listener=$!
          until curl -s -o /dev/null http://{address}:9090/; do sleep 0.05; done
        }}
        stopped() {{
          local server=$(cat data/lock)
          kill -TERM "$server" 2>/dev/null || return 0
          while kill -0 "$server" 2>/dev/null; do sleep 0.05; done
        }}
        listener=$!"#
    )
}

#[test]
fn every_other_block_of_commands_runs_to_its_end() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder(root);
    let process = std::process::id();
    let address = format!("127.{}.{}.3", 1 + process % 250, process / 250 % 250);
    let settings = [
        ("GRIDHOOK_JOURNAL__RETENTION", "1d"),
        ("GRIDHOOK_CHAOS__ENABLED", "true"),
    ];
    let server_at = format!("http://{address}:8080");
    let mut server = Terminal::open(folder.path(), &settings);
    let mut other = Terminal::open(folder.path(), &[("GRIDHOOK_SERVER", &server_at)]);
    let here = |text: &str| text.replace("127.0.0.1", &address);

    // The walk, up to the section that stops the webhook.
    for step in &walk(3) {
        let commands = here(&step.commands).replace("make run", &make_run(root, &address));
        let commands = commands.replace(
            "gridhook listen",
            &format!("gridhook listen --listen {address}:9090"),
        );
        let (terminal, end) = match step.terminal {
            Screen::Server => (&mut server, String::new()),
            Screen::Other => (&mut other, format!("\necho '{DONE}'")),
        };
        terminal.type_in(&(commands + &end));
        let expected: Vec<String> = step
            .printed
            .iter()
            .map(|line| masked(&here(line)))
            .collect();
        compare(step, terminal, &expected);
    }

    other.type_in(&helpers(&address));
    let mut wrong = String::new();
    let mut run = 0;
    let mut blocks = blocks();
    // Its commands want no server.
    blocks.sort_by_key(|block| block.kind.contains("server::backup"));
    for Block { at, kind, commands } in blocks {
        let Some(module) = kind
            .strip_prefix("sh see ")
            .and_then(|modules| modules.split(' ').next())
        else {
            continue;
        };
        let Some(BlockSetup { before, replaced }) = setup_for(module) else {
            panic!("{at}: {module} has no setup")
        };
        let commands = replaced
            .iter()
            .fold(commands, |commands, (from, to)| commands.replace(from, to));
        other.type_in(&here(before));
        other.type_in(&format!(
            "( set -e\n{}\n); status=$?; echo; echo \"status $status\"; echo '{DONE}'",
            here(&commands)
        ));
        let step = Step::block(at, commands);
        let printed = compare(&step, &mut other, &["…".to_owned()]);
        // A listener in the background may print behind it.
        if printed.lines().rfind(|line| line.starts_with("status ")) != Some("status 0") {
            writeln!(
                wrong,
                "{}: the block\n{}\nprinted\n{printed}",
                step.at, step.commands
            )
            .expect("a string");
        }
        run += 1;
    }
    assert!(
        wrong.is_empty() && run >= 9,
        "{run} blocks, of which these failed:\n{wrong}"
    );
}

#[test]
fn every_block_of_shell_is_executed_here() {
    let typed = walk(WALK.len()).len();
    let tests = tests();
    let mut own = 0;
    for Block { at, kind, .. } in blocks() {
        match kind.split(' ').collect::<Vec<_>>()[..] {
            ["sh"] | ["sh", "server"] => own += 1,
            // Those about clusters are executed on one (`server::cluster::spread`).
            ["sh", "control-plane" | "operator" | "cluster"] => {}
            ["sh", "see", module, ..] => {
                assert!(setup_for(module).is_some(), "{at}: {module} has no setup");
                let prefix = format!("{module}::");
                assert!(
                    tests.lines().any(|test| test.starts_with(&prefix)),
                    "{at}: {module} has no tests"
                );
            }
            _ => panic!("{at}: nobody executes a block of {kind:?}"),
        }
    }
    assert_eq!(
        own, typed,
        "every plain block is in a section of the walk, which is executed"
    );
}

/// Every test's path, as `make test ARGS=…` filters it.
fn tests() -> String {
    fn collect(folder: &Path, module: &str, found: &mut String) {
        for entry in fs::read_dir(folder).expect("a folder of tests") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                collect(&path, &format!("{module}{name}::"), found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let module = if name == "mod" {
                    module.to_owned()
                } else {
                    format!("{module}{name}::")
                };
                let text = fs::read_to_string(&path).expect("a test's source");
                for function in text.split("fn ").skip(1) {
                    let name = function.split('(').next().unwrap_or_default();
                    found.push_str(&format!("{module}{name}\n"));
                }
            }
        }
    }
    let mut found = String::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"),
        "",
        &mut found,
    );
    found
}

#[test]
fn every_file_of_the_manual_is_a_chapter_with_a_title() {
    let mut files: Vec<String> =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual"))
            .expect("a folder")
            .filter_map(|entry| {
                Some(
                    entry
                        .expect("an entry")
                        .file_name()
                        .to_str()?
                        .strip_suffix(".md")?
                        .to_owned(),
                )
            })
            .collect();
    files.sort_unstable();
    let mut names: Vec<&str> = CHAPTERS.iter().map(|chapter| chapter.name).collect();
    names.sort_unstable();
    assert_eq!(files, names, "src/manual and the list of chapters");
    for chapter in CHAPTERS {
        assert!(
            chapter.markdown.starts_with("# "),
            "{} has no title",
            chapter.name
        );
        assert!(
            !chapter.text().contains("```"),
            "{} is printed with its fences",
            chapter.name
        );
    }
    assert!(
        README.len() <= 12_000,
        "the README has {} bytes",
        README.len()
    );
}

/// The first two words of each block of a chapter, and of each item of its lists.
fn block_beginnings(markdown: &str) -> BTreeSet<String> {
    let mut beginnings = BTreeSet::new();
    let mut is_beginning = true;
    let mut is_code = false;
    for line in markdown.lines() {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_beginning || line.starts_with(['-', '#']) {
            let words = line.trim_start_matches(['#', ' ']).to_uppercase();
            let words: Vec<&str> = words.split_whitespace().take(2).collect();
            beginnings.insert(words.join(" "));
        }
        is_beginning = line.is_empty() || is_fence || line.starts_with(['#', '!']) || is_code;
    }
    beginnings
}

#[test]
fn a_printed_chapter_has_the_paragraphs_and_numbered_items_of_its_file() {
    for chapter in CHAPTERS {
        let text = chapter.text();
        let beginnings = block_beginnings(chapter.markdown);
        for paragraph in text.split("\n\n").filter(|text| text.starts_with('`')) {
            let words = paragraph.to_uppercase();
            let words: Vec<&str> = words.split_whitespace().take(2).collect();
            assert!(
                beginnings.contains(&words.join(" ")),
                "{}: a paragraph is torn before {paragraph:?}",
                chapter.name
            );
        }
        for line in chapter.markdown.lines() {
            let number = line.split_once(". ").map(|(number, _)| number);
            let is_numbered = number.is_some_and(|number| number.parse::<u8>().is_ok());
            let words: Vec<&str> = line.split(' ').take(4).collect();
            let beginning = words.join(" ");
            assert!(
                !is_numbered || text.lines().any(|printed| printed.starts_with(&beginning)),
                "{}: no line begins with {beginning:?}",
                chapter.name
            );
        }
    }
}

#[test]
fn every_test_that_a_document_names_is_there() {
    let tests = tests();
    // With further arguments it stands in quotes.
    let bare = |rest: &'static str| {
        rest.trim_start_matches('"')
            .split(['`', ' ', '\n'])
            .next()
            .unwrap_or("")
    };
    let named: Vec<&str> = all_documents()
        .into_iter()
        .flat_map(|(_, text)| {
            text.split("make test ARGS=")
                .skip(1)
                .chain(text.split("make test\nARGS=").skip(1))
        })
        .map(bare)
        .filter(|name| *name != "NAME")
        .collect();
    assert!(named.len() > 60, "the documents name {} tests", named.len());
    let missing: Vec<&&str> = named
        .iter()
        .filter(|name| !tests.contains(**name))
        .collect();
    assert!(
        missing.is_empty(),
        "the documents name tests that are not there: {missing:?}"
    );
}

#[test]
fn every_claim_names_a_test() {
    let claims = include_str!("README.md")
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| claim"));
    let rows: Vec<&str> = claims.filter(|line| !line.starts_with("| ---")).collect();
    let bare: Vec<&&str> = rows
        .iter()
        .filter(|row| !row.contains("`make test ARGS=") && !row.contains("`make fuzz"))
        .collect();
    assert!(
        rows.len() >= 60 && bare.is_empty(),
        "{} claims, of which these name no test: {bare:#?}",
        rows.len()
    );
}

/// Sentences of the README and the manual that no line of the table of tests is about, and the test
/// of each.
const PROMISES: [(&str, &str); 4] = [
    (
        "488 MiB with the defaults, 32 MiB for each thread that computes, and the program itself",
        "server::memory::with_all_budgets_full_memory_stays_below_their_sum",
    ),
    (
        "all files have mode 0600, whatever the umask",
        "server::promises::every_file_is_private_with_any_umask_also_in_a_backup",
    ),
    (
        "publishers receive 503 and everything else waits. The server continues by itself once \
         there is space",
        "server::full_disk::a_full_disk_heals_on_a_server_where_nothing_else_is_written",
    ),
    (
        "a sandbox with its own two folders (store and backups) and the network",
        "packaging::systemd::under_systemd_the_packaged_server_starts_publishes_backs_up_reloads_restarts_and_is_purged",
    ),
];

#[test]
fn every_promise_has_its_test() {
    let text: Vec<&str> = documents()
        .into_iter()
        .flat_map(|(_, text)| text.split_whitespace())
        .collect();
    let text = text.join(" ");
    let tests = tests();
    let broken = PROMISES.iter().filter(|(promise, test)| {
        !text.contains(promise) || !tests.lines().any(|line| line == *test)
    });
    let broken: Vec<_> = broken.collect();
    assert!(
        broken.is_empty(),
        "not in a document any more, or without a test: {broken:#?}"
    );
}

#[test]
fn every_file_that_a_document_links_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut missing = Vec::new();
    for (path, text) in all_documents() {
        let folder = root.join(&path).parent().expect("a folder").to_owned();
        let linked = text
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap_or(""));
        missing.extend(
            linked
                .filter(|link| !folder.join(link).exists())
                .map(|link| format!("{path}: {link}")),
        );
    }
    assert!(
        missing.is_empty(),
        "links to what is not there: {missing:?}"
    );
}

#[test]
fn every_decision_is_short_and_listed_in_the_architecture() {
    let architecture = include_str!("../src/README.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/decisions");
    let mut decisions = 0;
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        let text = fs::read_to_string(&path).expect("a decision");
        assert!(
            architecture.contains(&format!("](decisions/{name})")),
            "{name} is listed"
        );
        assert!(
            text.lines().count() <= 25,
            "{name} has {} lines",
            text.lines().count()
        );
        decisions += 1;
    }
    assert!(decisions >= 6, "{decisions} decisions");
}

/// A newcomer's walk: from the README to the architecture, and from there to the function that
/// answers a question.
#[test]
fn every_function_that_the_architecture_names_is_in_the_linked_file() {
    assert!(
        README.contains("](src/README.md)") && README.contains("](CONTRIBUTING.md)"),
        "the walk begins there"
    );
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let architecture = include_str!("../src/README.md");
    let mut named = 0;
    let mut missing = Vec::new();
    for part in architecture.split("` in [").collect::<Vec<_>>().windows(2) {
        let name = part[0].rsplit('`').next().expect("a name");
        let file = part[1]
            .split("](")
            .nth(1)
            .and_then(|rest| rest.split(')').next())
            .expect("a link");
        let text = std::fs::read_to_string(source.join(file)).unwrap_or_default();
        named += 1;
        let is_defined = ["const", "enum", "fn", "struct"].iter().any(|kind| {
            let definition = format!("{kind} {name}");
            text.split(&*definition)
                .skip(1)
                .any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        });
        if !is_defined {
            missing.push(format!("{name} in {file}"));
        }
    }
    assert!(
        named >= 6 && missing.is_empty(),
        "{named} names, of which these are elsewhere: {missing:?}"
    );
}
