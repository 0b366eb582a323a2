//! What the fields of a request's head say, for all kinds of requests.

use httparse::Header;

use super::body::{Body, Chunked};

/// Why a request is not served: a status and a line for whoever looks.
pub(super) type Refusal = (&'static str, &'static str);

pub(super) const AMBIGUOUS: Refusal =
    ("400 Bad Request", "Nobody knows where the body of this request ends.");
pub(super) fn values<'a>(fields: &'a [Header<'_>], name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// The members of all fields of this name, which are lists.
pub(super) fn members<'a>(fields: &'a [Header<'_>], name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    let all = values(fields, name).flat_map(|value| value.split(|byte| *byte == b','));
    all.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// Where the body ends (RFC 9112 section 6.3). What two parsers could read differently is refused.
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
        // A field without a value is there, and says nothing.
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
