//! The extension area of a packet: `{type u8, words u8, value …}`, aligned to four bytes.

use super::packet::{Cookie, ParseError};

/// The type of padding, which fills the area up to its end. Its value is ignored.
pub(super) const PADDING: u8 = 0;
/// The type of the proof of address: two zero bytes, then the 16 bytes of the cookie.
pub(super) const COOKIE: u8 = 1;
/// The bit of critical types: a receiver that does not know such a type drops the packet.
pub(super) const CRITICAL: u8 = 0x80;
/// The length of the cookie extension in 4-byte words, its head included.
pub(super) const COOKIE_WORDS: u8 = 5;

/// The known extensions of an area.
#[derive(Default)]
pub(super) struct Extensions {
    pub(super) cookie: Option<Cookie>,
}

/// Parses an extension area. If a type comes several times, the first one counts.
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
