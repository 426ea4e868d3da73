//! The terminal in full-screen mode. Its state is restored at the end, also after a panic or a
//! signal.

use std::io::{self, IsTerminal, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use gridhook_escape as escape;

/// Whether standard input and standard output are a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The keyboard of a terminal: keys arrive immediately and are not echoed. Dropping it restores the
/// terminal.
pub(crate) struct Keyboard {
    before: Termios,
}

impl Keyboard {
    pub(crate) fn take_terminal() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }

    /// Whether a key ends the command. Without signals of the terminal, Ctrl-C is the byte 3.
    pub(crate) fn is_quit(key: u8) -> bool {
        matches!(key, b'q' | b'Q' | 3)
    }

    /// The typed keys, read on a separate thread that is not joined.
    pub(crate) fn typed_keys(&self) -> mpsc::Receiver<u8> {
        let (send, keys) = mpsc::channel(16);
        std::thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            let mut byte = [0];
            while stdin.read(&mut byte).is_ok_and(|read| read == 1)
                && send.blocking_send(byte[0]).is_ok()
            {}
        });
        keys
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // The terminal may be closed.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.before).ok();
    }
}

/// The terminal in full-screen mode. Dropping it restores the terminal.
pub(super) struct Screen {
    keyboard: Keyboard,
}

/// Switches to the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Screen {
    pub(super) fn take_terminal() -> io::Result<Self> {
        let screen = Self {
            keyboard: Keyboard::take_terminal()?,
        };
        write(ENTER)?;
        Ok(screen)
    }

    pub(super) fn typed_keys(&self) -> mpsc::Receiver<u8> {
        self.keyboard.typed_keys()
    }

    /// Shows the lines that fit on the screen.
    pub(super) fn show_lines(&mut self, lines: &[String]) -> io::Result<()> {
        let (rows, columns) =
            tcgetwinsize(io::stdout()).map_or((24, 80), |size| (size.ws_row, size.ws_col));
        // Lines are overwritten from the top and cleared to their ends; clearing the whole screen
        // would flicker.
        let mut text = "\x1b[H".to_owned();
        for (row, line) in lines.iter().take(usize::from(rows)).enumerate() {
            let cut: String = escape::escape_text(line)
                .chars()
                .take(usize::from(columns))
                .collect();
            let between = if row > 0 { "\r\n" } else { "" };
            text.push_str(&format!("{between}{cut}\x1b[K"));
        }
        write(&format!("{text}\x1b[J"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be closed.
        write(LEAVE).ok();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
