//! Rules that hold for all commands: whom they trust, how they end, what their flags and lists
//! mean, their examples.

mod credentials;
pub(crate) mod examples;
mod flags;
mod lists;
mod outcomes;
mod status;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use gridhook::cli;

use crate::support::server::Server;

/// A folder that commands run in, without variables and contexts of the environment.
struct Folder(tempfile::TempDir);

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// One in which a server has stored its token.
    fn with_token(token: &str) -> Self {
        let folder = Self::new();
        fs::create_dir(folder.path().join("data")).expect("a folder");
        folder.write("data/admin-token", token);
        folder
    }

    /// One whose commands find the token of this server.
    fn with_token_from(server: &Server) -> Self {
        let token = fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
        Self::with_token(&token)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).expect("a file");
    }

    fn command(&self, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GRIDHOOK_"))
        {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .current_dir(self.path())
            .env("XDG_CONFIG_HOME", self.path());
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        command
    }

    /// Runs the binary.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = self.command(env!("CARGO_BIN_EXE_gridhook"), arguments, variables);
        Ended::from_output(&command.output().expect("the binary starts"))
    }

    /// Runs the binary on a server, which must carry the command out.
    fn done(&self, server: &Server, arguments: &[&str]) -> String {
        let ended = self.run(
            arguments,
            &[("GRIDHOOK_SERVER", &format!("http://{}", server.address()))],
        );
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.error);
        ended.out
    }

    /// Runs the binary on a server, which must refuse.
    fn refused(&self, server: &Server, arguments: &[&str]) -> Ended {
        let ended = self.run(
            arguments,
            &[("GRIDHOOK_SERVER", &format!("http://{}", server.address()))],
        );
        assert_ne!(ended.code, Some(0), "{arguments:?}: {}", ended.out);
        ended
    }
}

impl Ended {
    fn from_output(output: &std::process::Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            error: text(&output.stderr),
        }
    }
}

/// The commands that run, by their names with those above them.
fn leaves() -> Vec<(String, clap::Command)> {
    fn collect(command: &clap::Command, above: &str, leaves: &mut Vec<(String, clap::Command)>) {
        for child in command.get_subcommands() {
            let name = format!("{above} {}", child.get_name())
                .trim_start()
                .to_owned();
            // `backup` runs alone, too.
            if child.get_subcommands().next().is_none() || name == "backup" {
                leaves.push((name.clone(), child.clone()));
            }
            collect(child, &name, leaves);
        }
    }
    let mut root = cli::build_command();
    let mut all = Vec::new();
    root.build();
    collect(&root, "", &mut all);
    all
}
