//! `gridhook health`, `gridhook completions` and `gridhook man`, as installed.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
};

use clap::CommandFactory;
use expect_test::expect;
use gridhook::cli::Cli;

use super::{BINARY, output_text, root, tool};
use crate::support::{
    needs::can_run,
    server::{Server, say},
};

fn run(arguments: &[&str]) -> Output {
    let output = Command::new(BINARY)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    output.expect("the binary starts")
}

#[test]
fn health_is_an_exit_status() {
    let mut server = Server::start(&[]);
    let url = format!("http://{}", server.address());
    let ask = |more: &[&str]| say(&[&["health", "--server", &url], more].concat());
    let (status, reported) = ask(&[]);
    assert_eq!((status.code(), reported.as_str()), (Some(0), "serving\n"));
    let (status, reported) = ask(&["--live"]);
    assert_eq!((status.code(), reported.as_str()), (Some(0), "alive\n"));
    server.terminate();
    let (status, reported) = ask(&["--live"]);
    assert_eq!(status.code(), Some(1));
    assert!(reported.contains(&url), "{reported}");

    // A listener that accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", silent.local_addr().expect("its address"));
    let (status, reported) = say(&["health", "--server", &url, "--wait", "50ms"]);
    assert_eq!(status.code(), Some(1));
    expect![[r#"
        SERVER: no response within 50ms
    "#]]
    .assert_eq(&reported.replace(&url, "SERVER"));
}

#[test]
fn another_program_that_answers_is_no_healthy_server() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", other.local_addr().expect("its address"));
    std::thread::spawn(move || {
        for mut stream in other.incoming().take(2).map_while(Result::ok) {
            // The request has no body: its head ends with an empty line.
            BufReader::new(&stream)
                .lines()
                .map_while(Result::ok)
                .find(String::is_empty);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
                .ok();
        }
    });
    for more in [&[][..], &["--live"]] {
        let (status, reported) = say(&[&["health", "--server", &url], more].concat());
        assert_eq!(status.code(), Some(1), "{reported}");
        assert!(
            reported.contains("200 OK, and the response is not from gridhook"),
            "{reported}"
        );
    }
}

/// The completions of bash after these words.
fn completed(script: &Path, words: &str) -> Vec<String> {
    let line = format!(
        "source '{}'; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         COMP_LINE='{words}'; COMP_POINT=${{#COMP_LINE}}; _gridhook gridhook \
         \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \
         \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let output = tool("bash", &["--noprofile", "--norc", "-c", &line]);
    assert!(output.status.success(), "{}", output_text(&output));
    output_text(&output).lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_commands_and_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success(), "{}", output_text(&output));
        let script = folder.path().join(shell);
        fs::write(&script, &output.stdout).expect("a script");
        let text = output_text(&output);
        let missing: Vec<String> = commands()
            .into_iter()
            .filter(|name| !text.contains(name.as_str()))
            .collect();
        assert!(missing.is_empty(), "{shell} knows nothing of {missing:?}");
        // bash is there wherever make is.
        if shell == "bash" || can_run(shell, Command::new(shell).arg("--version")) {
            let output = tool(shell, &["-n", script.to_str().expect("text")]);
            assert!(output.status.success(), "{shell}: {}", output_text(&output));
        }
    }
    let bash = folder.path().join("bash");
    expect!["publish"].assert_eq(&completed(&bash, "gridhook publ").join(" "));
    expect!["--key-file"].assert_eq(&completed(&bash, "gridhook publish --key").join(" "));
}

/// The commands that are shown, by their own names.
fn commands() -> Vec<String> {
    let root = Cli::command();
    let shown = root
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}

#[test]
fn every_command_has_a_page_that_man_finds_nothing_wrong_with() {
    if !can_run("man", Command::new("man").arg("--version")) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("man/man1");
    let output = run(&["man", into.to_str().expect("text")]);
    assert!(output.status.success(), "{}", output_text(&output));
    let pages: Vec<_> = fs::read_dir(&into)
        .expect("a folder of pages")
        .map(|page| page.expect("a page").path())
        .collect();
    for command in commands() {
        let page = into.join(format!("gridhook-{command}.1"));
        assert!(pages.contains(&page), "gridhook {command} has a page");
    }
    assert!(
        output_text(&output).starts_with(&format!("{} pages written", pages.len())),
        "{}",
        output_text(&output)
    );
    for page in ["gridhook-dead-letters-redrive.1", "gridhook-delivery.1"] {
        assert!(
            pages.contains(&into.join(page)),
            "{page} is among {pages:?}"
        );
    }
    for page in &pages {
        let page = page.to_str().expect("text");
        let output = Command::new("man")
            .args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page])
            .envs([
                ("LC_ALL", "C.UTF-8"),
                ("MANROFFSEQ", ""),
                ("MANWIDTH", "80"),
            ])
            .output()
            .expect("man is there; `make test` installs it on Debian");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && printed.is_empty(),
            "{page}: {printed}"
        );
    }
    let main = fs::read_to_string(into.join("gridhook.1")).expect("the first page");
    for heading in [".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", ".SH FILES"] {
        assert!(main.contains(heading), "{heading} is in\n{main}");
    }
    let replay = fs::read_to_string(into.join("gridhook-replay.1")).expect("the page of a command");
    assert!(
        replay.contains(".SH REPLAY"),
        "the chapter of the same name is in\n{replay}"
    );
    assert!(
        root().join("config/gridhook.toml").exists(),
        "the page names the file with every key"
    );
}
