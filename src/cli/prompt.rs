//! Asks for confirmation before an irreversible action.

use std::io::{self, BufRead, IsTerminal};

use super::{
    client::{ClientError, ClientResult},
    print,
};

/// Asks for confirmation on the terminal. Without a terminal, `--yes` is required.
pub(super) fn ask_confirmation(question: &str, yes: bool) -> ClientResult<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(ClientError::Input(format!(
            "{question} Nothing was done: confirmation needs a terminal or --yes"
        )));
    }
    print::print_prompt(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(ClientError::Failed(
            "nothing was done: not confirmed".to_owned(),
        )),
    }
}
