//! A question before something is done that cannot be undone.

use std::io::{self, BufRead, IsTerminal};

use super::{client::ClientError, print};

/// Whether an operator says yes. Where there is no terminal nobody can be asked: then `--yes` has to say it beforehand.
pub(super) fn is_sure(question: &str, yes: bool) -> Result<(), ClientError> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(ClientError::Input(format!(
            "{question} Nothing was done: there is no terminal to say yes at; --yes says it"
        )));
    }
    print::prompt(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(ClientError::Input("nothing was done".to_owned())),
    }
}
