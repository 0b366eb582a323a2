//! Lines on standard error: a few at the bottom of the terminal, redrawn in place, and others that stay. All
//! output for people goes through here or through [`printable`], because any line may contain texts of
//! servers and files.

use std::io::{IsTerminal as _, Write as _};

pub use anabranch::text::printable;
use console::Term;

/// Prints a line that stays, where nothing is redrawn. If standard error cannot be written (a full disk, a
/// reader that has gone), the command goes on, and its exit status tells the result.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}

/// Prints a remark for the person at the terminal.
pub fn note(text: &str) {
    say(&format!("anabranch: {text}"));
}

/// Lines on standard error that are redrawn in place. The cursor always rests below them, visible.
#[derive(Debug)]
pub struct Lines {
    term: Term,
    live: bool,
    drawn: Vec<String>,
}

impl Default for Lines {
    fn default() -> Self {
        Self { term: Term::stderr(), live: std::io::stderr().is_terminal(), drawn: Vec::new() }
    }
}

impl Lines {
    /// Returns the most columns of a line. One column stays free, because a full last column would wrap.
    #[must_use]
    pub fn width(&self) -> usize {
        usize::from(self.term.size().1).max(20) - 1
    }

    /// Replaces the drawn lines by `lines`, cut to the width and the height of the terminal. Draws nothing if
    /// there is no terminal.
    pub fn draw(&mut self, lines: &[String]) {
        if !self.live {
            return;
        }
        let width = self.width();
        // One row stays free: a full screen would scroll.
        let rows = usize::from(self.term.size().0).max(2) - 1;
        let from = lines.len().saturating_sub(rows);
        let fit = |line: &String| console::truncate_str(&printable(line), width, "…").into_owned();
        let fitting: Vec<String> = lines[from..].iter().map(fit).collect();
        let mut out = self.erase();
        for line in &fitting {
            out += line;
            out.push('\n');
        }
        self.drawn = fitting;
        self.write(&out);
    }

    /// Prints a line that stays, above those that are redrawn.
    pub fn print(&mut self, line: &str) {
        let mut out = self.erase();
        out += &printable(line);
        out.push('\n');
        for line in &self.drawn {
            out += line;
            out.push('\n');
        }
        self.write(&out);
    }

    /// Returns the control sequence that moves the cursor to the first drawn line and clears from there on.
    fn erase(&self) -> String {
        match self.drawn.len() {
            0 => String::new(),
            n => format!("\x1b[{n}A\r\x1b[J"),
        }
    }

    /// Writes a whole picture at once, so that it does not flicker. A terminal that has gone away is no
    /// error.
    fn write(&self, out: &str) {
        if !out.is_empty() {
            let mut stderr = std::io::stderr().lock();
            let _ = stderr.write_all(out.as_bytes()).and_then(|()| stderr.flush());
        }
    }
}
