//! Reads the fields of a request's head, for all kinds of requests.

use httparse::Header;

use super::body::{Body, Chunked};

/// The status of a refused request, and a line of text for people.
pub(super) type Refusal = (&'static str, &'static str);

pub(super) const AMBIGUOUS: Refusal =
    ("400 Bad Request", "Nobody knows where the body of this request ends.");
pub(super) fn values<'a>(fields: &'a [Header<'_>], name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// Returns the members of all list-valued fields of this name.
pub(super) fn members<'a>(fields: &'a [Header<'_>], name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    let all = values(fields, name).flat_map(|value| value.split(|byte| *byte == b','));
    all.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// Finds where the body ends (RFC 9112 section 6.3). Heads that two parsers could read differently are
/// refused.
pub(super) fn framing(fields: &[Header<'_>], version: u8) -> Result<Body, Refusal> {
    let codings: Vec<&[u8]> = members(fields, "transfer-encoding").collect();
    let length = match values(fields, "content-length").collect::<Vec<_>>().as_slice() {
        [] => None,
        [digits] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            Some(str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok()).ok_or(AMBIGUOUS)?)
        }
        _ => return Err(AMBIGUOUS),
    };
    match codings.as_slice() {
        // The field exists without a value, so its meaning is unclear.
        [] if values(fields, "transfer-encoding").next().is_some() => Err(AMBIGUOUS),
        [] => Ok(Body::Length(length.unwrap_or(0))),
        [before @ .., last]
            if last.eq_ignore_ascii_case(b"chunked")
                && !before.iter().any(|coding| coding.eq_ignore_ascii_case(b"chunked"))
                && length.is_none()
                && version == 1 =>
        {
            Ok(Body::Chunked(Chunked::default()))
        }
        _ => Err(AMBIGUOUS),
    }
}
