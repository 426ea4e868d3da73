//! A terminal that is ours for a while, and then as it was: also where we panic or are told to end.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::escape;

/// Whether there is one, to see and to type on.
pub(super) fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal while it is ours. It is given back when this is dropped.
pub(super) struct Screen {
    before: Termios,
}

/// The second screen, without a cursor; what was on the first one stays there.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut ours = before.clone();
        // Each key at once, and not shown.
        ours.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Now, &ours)?;
        let screen = Self { before };
        write(ENTER)?;
        Ok(screen)
    }

    /// Shows as much of these lines as there is room for.
    pub(super) fn show(&mut self, lines: &[String]) -> io::Result<()> {
        let (rows, columns) = tcgetwinsize(io::stdout()).map_or((24, 80), |size| (size.ws_row, size.ws_col));
        // From the top, each line cleared to its end and the rest of the screen after the last: nothing flickers.
        let mut text = "\x1b[H".to_owned();
        for (row, line) in lines.iter().take(usize::from(rows)).enumerate() {
            let cut: String = escape::text(line).chars().take(usize::from(columns)).collect();
            let between = if row > 0 { "\r\n" } else { "" };
            text.push_str(&format!("{between}{cut}\x1b[K"));
        }
        write(&format!("{text}\x1b[J"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing any more.
        write(LEAVE).ok();
        tcsetattr(io::stdin(), OptionalActions::Now, &self.before).ok();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
