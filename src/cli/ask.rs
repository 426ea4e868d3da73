//! A question before something is done that cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use super::control::Error;

/// Whether an operator says yes. Where there is no terminal nobody can be asked: then `--yes` has to say it beforehand.
pub(super) fn is_sure(question: &str, yes: bool) -> Result<(), Error> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Error::Input(format!(
            "{question} Nothing was done: there is no terminal to say yes at; --yes says it"
        )));
    }
    eprint!("{question} [y/N] ");
    // The answer is what counts, not whether the question was seen.
    io::stderr().flush().ok();
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(Error::Input("nothing was done".to_owned())),
    }
}
