//! A terminal: tmux with a shell, whose screen can be read.

use std::{
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use super::{debian::unpacked, needs::runs, server::wait_for};

/// A terminal of tmux. It ends with the test.
pub(crate) struct Terminal {
    tmux: PathBuf,
    libraries: Option<PathBuf>,
    /// tmux's own socket is in it.
    folder: tempfile::TempDir,
}

impl Terminal {
    /// Opens a terminal of this size with a shell that shows `$` when it waits.
    pub(crate) fn open(columns: u16, rows: u16) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (tmux, libraries) = if runs(Command::new("tmux").arg("-V")).is_ok() {
            (PathBuf::from("tmux"), None)
        } else {
            let tools = unpacked(
                "tmux",
                &["libevent-core-2.1-7", "libutempter0"],
                "usr/bin/tmux",
            )
            .expect("tmux");
            (
                tools.join("usr/bin/tmux"),
                Some(tools.join("usr/lib/x86_64-linux-gnu")),
            )
        };
        let terminal = Self {
            tmux,
            libraries,
            folder,
        };
        let size = [columns.to_string(), rows.to_string()];
        let shell = "env -i PATH=\"$PATH\" TERM=screen PS1='$ ' sh";
        terminal.ask(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &size[0],
            "-y",
            &size[1],
            shell,
        ]);
        terminal.wait_until("a shell", |screen| screen.contains("$"));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.tmux);
        command
            .env("TMUX_TMPDIR", self.folder.path())
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX");
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.args(arguments).output().expect("tmux starts")
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.tmux(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types a line, and Enter.
    pub(crate) fn enter(&self, line: &str) {
        self.ask(&["send-keys", "-l", line]);
        self.ask(&["send-keys", "Enter"]);
    }

    /// Presses a key, as tmux calls it.
    pub(crate) fn press(&self, key: &str) {
        self.ask(&["send-keys", key]);
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.ask(&[
            "resize-window",
            "-x",
            &columns.to_string(),
            "-y",
            &rows.to_string(),
        ]);
    }

    /// The visible text.
    pub(crate) fn screen(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    /// Whether a flag of tmux is set, such as `alternate_on`.
    pub(crate) fn is(&self, flag: &str) -> bool {
        self.ask(&["display-message", "-p", &format!("#{{{flag}}}")])
            .trim()
            == "1"
    }

    /// Waits until the screen is as `so` demands.
    pub(crate) fn wait_until(&self, what: &str, so: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        wait_for(what, Duration::from_secs(60), || {
            screen = self.screen();
            so(&screen)
        });
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- the terminal\n{}",
                String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout)
            );
        }
        self.tmux(&["kill-server"]);
    }
}
