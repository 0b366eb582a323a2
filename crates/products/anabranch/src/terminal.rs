//! Makes text from outside safe for a terminal. Only this module decides which characters are shown
//! unchanged.
//!
//! Messages, events and reports of this crate contain texts of servers, lists and sources unchanged. A
//! program that prints them for people must pass each line through [`printable`]; a program that parses them
//! gets the exact text.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Replaces every character of a line that would move the cursor, set the title, reorder the line or be
/// invisible by an escape: `\x1b`, `\n` or `\u{202e}`. These are the control characters (C0, DEL and C1,
/// ECMA-48), line and paragraph separators, and invisible formatting characters, including all marks of the
/// bidirectional algorithm (UAX #9). A line that has been through this stays the same.
#[must_use]
pub fn printable(line: &str) -> Cow<'_, str> {
    if !line.contains(is_hidden) {
        return Cow::Borrowed(line);
    }
    let mut shown = String::with_capacity(line.len() + 16);
    line.chars().for_each(|c| push(&mut shown, c));
    Cow::Owned(shown)
}

/// Appends `c` in the form that [`printable`] gives it.
pub(crate) fn push(shown: &mut String, c: char) {
    // Writing to a string cannot fail.
    let _ = match c {
        '\n' => shown.write_str("\\n"),
        '\t' => shown.write_str("\\t"),
        c if !is_hidden(c) => shown.write_char(c),
        c if c.is_ascii() => write!(shown, "\\x{:02x}", u32::from(c)),
        c => write!(shown, "\\u{{{:x}}}", u32::from(c)),
    };
}

/// Returns whether a terminal would not simply show the character.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The characters with Bidi_Control in Unicode's PropList.txt.
    const BIDI: [char; 12] = [
        '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
        '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];

    #[test]
    fn no_control_and_no_bidi_mark_comes_through() {
        let is_control = |c: char| matches!(c, '\0'..='\x1f' | '\x7f' | '\u{80}'..='\u{9f}');
        let mut escaped = 0;
        for c in '\0'..=char::MAX {
            let (line, shown) = (format!("a{c}b"), printable(&format!("a{c}b")).into_owned());
            if is_control(c) || BIDI.contains(&c) {
                assert!(shown.starts_with("a\\") && shown.is_ascii(), "{c:?}: {shown}");
                assert!(!shown.contains(|c: char| c.is_control()), "{c:?}: {shown}");
            }
            escaped += usize::from(line != shown);
            assert_eq!(printable(&shown), shown, "once is enough");
        }
        // Letters, marks and signs of all scripts are shown unchanged.
        assert_eq!(escaped, 65 + 3 + 5 + 7 + 16 + 1 + 3 + 128);
        for line in ["naïve – 日本語 العربية עברית", "e\u{301} \u{1f3f3}\u{fe0f}", "back\\slash"]
        {
            assert!(matches!(printable(line), Cow::Borrowed(same) if same == line));
        }
    }

    #[test]
    fn escapes_say_what_stood_there() {
        assert_eq!(printable("\x1b]0;t\x07\r\n\t"), "\\x1b]0;t\\x07\\x0d\\n\\t");
        assert_eq!(printable("\u{9b}2J \u{202e}cod"), "\\u{9b}2J \\u{202e}cod");
    }
}
