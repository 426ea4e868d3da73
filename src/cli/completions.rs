//! `gridhook completions`: prints a shell completion script.

use clap_complete::aot::{Shell as Known, generate};

#[derive(Clone, Copy, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gridhook completions bash > /etc/bash_completion.d/gridhook\n  \
        gridhook completions zsh > /usr/local/share/zsh/site-functions/_gridhook\n  gridhook \
        completions fish > ~/.config/fish/completions/gridhook.fish"
)]
pub struct Completions {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: SupportedShell,
}

/// The supported shells; clap_complete knows more that are not tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SupportedShell {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    pub fn run(self) -> String {
        let shell = match self.shell {
            SupportedShell::Bash => Known::Bash,
            SupportedShell::Zsh => Known::Zsh,
            SupportedShell::Fish => Known::Fish,
        };
        // Into memory first: the generator panics if standard output is closed.
        let mut script = Vec::new();
        generate(shell, &mut super::build_command(), "gridhook", &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }
}
