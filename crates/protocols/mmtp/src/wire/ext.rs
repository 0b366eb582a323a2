//! The extension area: `{type u8, words u8, value …}`, four-byte aligned.

use super::packet::{Cookie, ParseError};

/// Fills the area up to its end; the value is ignored.
pub(super) const PADDING: u8 = 0;
/// Proof of address: two zero bytes, then the 16 bytes of the cookie.
pub(super) const COOKIE: u8 = 1;
/// Types with this bit must be understood, or the packet is dropped.
pub(super) const CRITICAL: u8 = 0x80;
/// The cookie extension in 4-byte words, head included.
pub(super) const COOKIE_WORDS: u8 = 5;

/// What the area held that is understood here.
#[derive(Default)]
pub(super) struct Extensions {
    pub(super) cookie: Option<Cookie>,
}

/// Reads an extension area; the first of several of a type counts.
pub(super) fn read(mut area: &[u8]) -> Result<Extensions, ParseError> {
    let mut found = Extensions::default();
    while let [kind, words, ..] = *area {
        let (this, rest) = area.split_at_checked(usize::from(words) * 4).ok_or(ParseError::Extension)?;
        match (kind, this) {
            (_, []) => return Err(ParseError::Extension),
            (PADDING, _) => {}
            (COOKIE, [_, _, _, _, value @ ..]) => {
                let value = <[u8; 16]>::try_from(value).map_err(|_| ParseError::Extension)?;
                found.cookie = found.cookie.or(Some(Cookie(value)));
            }
            (kind, _) if kind & CRITICAL != 0 => return Err(ParseError::Critical(kind)),
            _ => {}
        }
        area = rest;
    }
    Ok(found)
}
