//! The terminal: its keys, and its full-screen mode. Its state is restored at the end, also after a
//! panic, SIGINT, SIGTERM or SIGHUP.

use std::io::{self, IsTerminal, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use gridhook_escape as escape;

/// Whether standard input and standard output are a terminal.
pub(super) fn is_stdio_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// SIGINT, SIGTERM and SIGHUP.
pub(super) struct EndSignals([Signal; 3]);

impl EndSignals {
    pub(super) fn install() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Resolves when the next signal arrives.
    pub(super) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// The keyboard of a terminal: keys arrive immediately and are not echoed. Dropping it restores the
/// terminal.
pub(super) struct Keyboard {
    original: Termios,
    keys: mpsc::Receiver<u8>,
    signals: EndSignals,
}

/// Without signals of the terminal, Ctrl-C is this byte.
const CONTROL_C: u8 = 3;

impl Keyboard {
    pub(super) fn open() -> io::Result<Self> {
        let signals = EndSignals::install()?;
        let original = tcgetattr(io::stdin())?;
        let mut changed = original.clone();
        changed
            .local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Now, &changed)?;
        Ok(Self {
            original,
            keys: read_keys(),
            signals,
        })
    }

    /// The next key; [`None`] if the command is to end: after `q`, Ctrl-C or a signal.
    pub(super) async fn next_key(&mut self) -> Option<u8> {
        tokio::select! {
            key = self.keys.recv() => key.filter(|key| !matches!(*key, b'q' | b'Q' | CONTROL_C)),
            () = self.signals.next() => None,
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // The terminal may be closed.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.original).ok();
    }
}

/// The typed keys, read on a separate thread. It is not joined, because a read of a terminal cannot
/// be interrupted.
fn read_keys() -> mpsc::Receiver<u8> {
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

/// The terminal in full-screen mode. Dropping it restores the terminal.
pub(super) struct Screen {
    pub(super) keyboard: Keyboard,
}

/// Switches to the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let screen = Self {
            keyboard: Keyboard::open()?,
        };
        write(ENTER)?;
        Ok(screen)
    }

    /// Shows the lines that fit on the screen. A line is cut by its characters, so one with wide
    /// characters may wrap.
    pub(super) fn show_lines(&self, lines: &[String]) -> io::Result<()> {
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
