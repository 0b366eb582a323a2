//! Parses answers from any split of their bytes: heads (RFC 9112 sections 2 to 5) and bodies (section 6). An
//! answer whose end is ambiguous is refused, because part of it could be taken for the next answer.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use httparse::Status;
use hyper::http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::http::{Response, StatusCode, Version, response};

use crate::client::response_fields::content_length;

/// The most bytes of a head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The most header fields of one head.
const HEADERS_MAX: usize = 512;
/// A head of at most this many bytes is parsed whenever more of it comes; a longer one is parsed only when it
/// is complete.
const EAGER_BYTES: usize = 4 << 10;
/// The most interim answers (1xx) before the final answer.
const INTERIM_MAX: usize = 16;
/// The most bytes of a line with a chunk's size. The line may have extensions, which are ignored.
const CHUNK_LINE_BYTES_MAX: usize = 1 << 10;
/// The most bytes of a trailer section.
const TRAILER_BYTES_MAX: usize = 16 << 10;

/// The parser's position in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Body {
    /// The body has ended.
    #[default]
    End,
    /// This many bytes of a body of known length are still to come.
    Length(u64),
    /// The line with a chunk's size comes next.
    Size,
    /// This many bytes of a chunk are still to come.
    Chunk(u64),
    /// The line end behind a chunk comes next.
    ChunkEnd,
    /// The fields after the last chunk come; this many bytes of them have been read.
    Trailers(usize),
    /// The body ends with the connection.
    UntilClose,
}

/// The result of [`Parser::data`].
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) enum Step {
    /// The next bytes of the body; never empty.
    Data(Bytes),
    /// The parser needs more bytes.
    NeedMore,
    /// The body has ended.
    End,
}

/// The state of a parser between two calls.
#[derive(Debug, Default)]
pub(in crate::client) struct Parser {
    body: Body,
    /// The number of interim answers since the last final answer.
    interim: usize,
    /// How many bytes of an incomplete head have been searched for the head's end.
    scanned: usize,
    persists: bool,
    pipelines: bool,
}

impl Parser {
    /// Whether the connection stays open for another answer.
    pub(in crate::client) const fn persists(&self) -> bool {
        self.persists
    }

    /// Whether the server speaks HTTP/1.1 and keeps the connection open.
    pub(super) const fn pipelines(&self) -> bool {
        self.pipelines
    }

    /// Returns the number of bytes of the body (or of its current chunk) that are still to come; 0 if it is
    /// unknown.
    pub(in crate::client) const fn left_bytes(&self) -> u64 {
        match self.body {
            Body::Length(bytes) | Body::Chunk(bytes) => bytes,
            _ => 0,
        }
    }

    /// Takes the head of the next answer to a GET from `input`, and drops interim answers before it. Returns
    /// `None` if the head is incomplete.
    ///
    /// # Errors
    /// If the head is not HTTP, is too long, or leaves the end of the body unclear. The error is one clause.
    pub(in crate::client) fn head(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<response::Parts>, String> {
        if self.body != Body::End {
            return Err("the answer before is not at its end".to_owned());
        }
        loop {
            if input.len() > EAGER_BYTES && !self.is_ended(input) {
                return if input.len() < HEAD_BYTES_MAX { Ok(None) } else { Err(too_long()) };
            }
            let seen = input.get(..HEAD_BYTES_MAX).unwrap_or(input);
            let Some((bytes, parts)) = read(seen)? else {
                return if input.len() < HEAD_BYTES_MAX { Ok(None) } else { Err(too_long()) };
            };
            input.advance(bytes);
            self.scanned = 0;
            if parts.status == StatusCode::SWITCHING_PROTOCOLS {
                return Err("the server changes the protocol".to_owned());
            }
            if parts.status.is_informational() {
                self.interim += 1;
                if self.interim > INTERIM_MAX {
                    return Err("the server sends interim answers without end".to_owned());
                }
                continue;
            }
            self.interim = 0;
            let bodiless = matches!(parts.status.as_u16(), 204 | 304);
            self.body = if bodiless { Body::End } else { framing(parts.version, &parts.headers)? };
            let is_new = parts.version == Version::HTTP_11;
            let says = |word| has_token(&parts.headers, word);
            let open = if is_new { !says("close") } else { says("keep-alive") && !says("close") };
            self.persists = open && self.body != Body::UntilClose;
            self.pipelines = self.persists && is_new;
            return Ok(Some(parts));
        }
    }

    /// Whether the empty line after a head has come. Hardly a byte is searched twice.
    fn is_ended(&mut self, input: &[u8]) -> bool {
        let seen = input.get(..HEAD_BYTES_MAX).unwrap_or(input);
        let new = seen.get(self.scanned.saturating_sub(3)..).unwrap_or_default();
        self.scanned = seen.len();
        new.windows(2).any(|two| two == b"\n\n") || new.windows(3).any(|three| three == b"\n\r\n")
    }

    /// Takes the next bytes of the body from `input`.
    ///
    /// # Errors
    /// If a chunk is invalid. The error is one clause.
    pub(in crate::client) fn data(&mut self, input: &mut BytesMut) -> Result<Step, String> {
        loop {
            if self.body == Body::End {
                return Ok(Step::End);
            }
            if input.is_empty() {
                return Ok(Step::NeedMore);
            }
            match self.body {
                Body::End => {}
                Body::Length(left) => {
                    let piece = at_most(input, left);
                    let left = left - piece.len() as u64;
                    self.body = if left == 0 { Body::End } else { Body::Length(left) };
                    return Ok(Step::Data(piece));
                }
                Body::UntilClose => return Ok(Step::Data(input.split().freeze())),
                Body::Chunk(left) => {
                    let piece = at_most(input, left);
                    let left = left - piece.len() as u64;
                    self.body = if left == 0 { Body::ChunkEnd } else { Body::Chunk(left) };
                    return Ok(Step::Data(piece));
                }
                Body::ChunkEnd => {
                    let two = input.get(..2).unwrap_or(input);
                    if !b"\r\n".starts_with(two) {
                        return Err("a chunk is longer than it says".to_owned());
                    }
                    if two.len() < 2 {
                        return Ok(Step::NeedMore);
                    }
                    input.advance(2);
                    self.body = Body::Size;
                }
                Body::Size => {
                    let line = input.get(..CHUNK_LINE_BYTES_MAX).unwrap_or(input);
                    match httparse::parse_chunk_size(line) {
                        Ok(Status::Complete((bytes, size))) => {
                            input.advance(bytes);
                            self.body = if size == 0 { Body::Trailers(0) } else { Body::Chunk(size) };
                        }
                        Ok(Status::Partial) if line.len() < CHUNK_LINE_BYTES_MAX => {
                            return Ok(Step::NeedMore);
                        }
                        Ok(Status::Partial) => return Err("a chunk's size is too long".to_owned()),
                        Err(_) => return Err("a chunk's size is no number".to_owned()),
                    }
                }
                Body::Trailers(before) => {
                    let end = input.iter().position(|&b| b == b'\n');
                    if before + end.unwrap_or(input.len()) >= TRAILER_BYTES_MAX {
                        return Err("the fields after the body are too long".to_owned());
                    }
                    let Some(end) = end else { return Ok(Step::NeedMore) };
                    let last = end == 0 || input.starts_with(b"\r\n");
                    input.advance(end + 1);
                    self.body = if last { Body::End } else { Body::Trailers(before + end + 1) };
                }
            }
        }
    }

    /// Records that the connection has ended. This ends a body without a length.
    ///
    /// # Errors
    /// If the body is incomplete. The error is one clause.
    pub(in crate::client) fn close(&mut self) -> Result<(), String> {
        match self.body {
            Body::End | Body::UntilClose => {
                self.body = Body::End;
                Ok(())
            }
            _ => Err("the server closed the connection".to_owned()),
        }
    }
}

fn too_long() -> String {
    format!("the head of the answer is longer than {HEAD_BYTES_MAX} bytes")
}

/// Takes at most `most` bytes off the front of `input`. `input` must not be empty, and `most` not 0.
fn at_most(input: &mut BytesMut, most: u64) -> Bytes {
    let bytes = usize::try_from(most).map_or(input.len(), |most| most.min(input.len()));
    input.split_to(bytes).freeze()
}

/// Whether a line of a head is not a field, or gives the body's length in a form that other programs may read
/// differently.
fn is_unclear(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.starts_with(b" ") || line.starts_with(b"\t") {
        return false;
    }
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return true };
    let (name, value) = line.split_at(colon);
    if name.iter().all(u8::is_ascii_graphic)
        && !value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
    {
        return false;
    }
    let shown: Vec<u8> = name.iter().copied().filter(u8::is_ascii_graphic).collect();
    let is_called = |framing: &HeaderName| shown.eq_ignore_ascii_case(framing.as_str().as_bytes());
    [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(is_called)
}

/// Returns the value of a field with its lines joined into one. Hardly any value has several lines.
fn unfolded(value: &[u8]) -> Cow<'_, [u8]> {
    if !value.contains(&b'\n') {
        return Cow::Borrowed(value);
    }
    value.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect()
}

/// Parses a head and returns it with its length in bytes. Returns `None` if the head is incomplete. Folded
/// lines are read as one (RFC 9112 section 5.2). An invalid field is ignored, as other clients do.
fn read(input: &[u8]) -> Result<Option<(usize, response::Parts)>, String> {
    let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true).ignore_invalid_headers_in_responses(true);
    let bytes = match config.parse_response_with_uninit_headers(&mut head, input, &mut room) {
        Ok(Status::Complete(bytes)) => bytes,
        Ok(Status::Partial) => return Ok(None),
        Err(e) => return Err(format!("the answer is not HTTP: {e}")),
    };
    let impossible = || "the answer is not HTTP".to_owned();
    if input[..bytes].split(|byte| *byte == b'\n').skip(1).any(is_unclear) {
        return Err(impossible());
    }
    let mut response = Response::new(());
    *response.version_mut() = if head.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    *response.status_mut() =
        head.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or_else(impossible)?;
    for field in head.headers.iter() {
        let value = unfolded(field.value);
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(field.name.as_bytes()), HeaderValue::from_bytes(&value))
        {
            response.headers_mut().append(name, value);
        }
    }
    Ok(Some((bytes, response.into_parts().0)))
}

/// Returns how the body of an answer is framed (RFC 9112 section 6.3).
fn framing(version: Version, headers: &HeaderMap) -> Result<Body, String> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        return if headers.contains_key(CONTENT_LENGTH) {
            Err("the answer has both Content-Length and Transfer-Encoding".to_owned())
        } else if version != Version::HTTP_11
            || codings.next().is_some()
            || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")
        {
            Err("the answer has an unknown Transfer-Encoding".to_owned())
        } else {
            Ok(Body::Size)
        };
    }
    match content_length(headers) {
        Some(0) => Ok(Body::End),
        Some(length) => Ok(Body::Length(length)),
        None if headers.contains_key(CONTENT_LENGTH) => {
            Err("the answer's Content-Length is none, or there are several".to_owned())
        }
        None => Ok(Body::UntilClose),
    }
}

/// Whether the field `Connection` lists `word`.
fn has_token(headers: &HeaderMap, word: &str) -> bool {
    let mut words =
        headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|&b| b == b','));
    words.any(|other| other.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

/// Parses all answers in `pieces`, after which the connection ends. Returns the status and body of each
/// answer, and whether the last one is complete.
pub(in crate::client) fn parse_responses(pieces: &[&[u8]]) -> (Vec<(u16, Vec<u8>)>, bool) {
    let (mut parser, mut input) = (Parser::default(), BytesMut::new());
    let mut found: Vec<(u16, Vec<u8>)> = Vec::new();
    let mut pieces = pieces.iter();
    let mut in_body = false;
    loop {
        let step = if in_body {
            parser.data(&mut input)
        } else {
            match parser.head(&mut input) {
                Ok(Some(parts)) => {
                    found.push((parts.status.as_u16(), Vec::new()));
                    in_body = true;
                    continue;
                }
                Ok(None) => Ok(Step::NeedMore),
                Err(e) => Err(e),
            }
        };
        match step {
            Err(_) => return (found, false),
            Ok(Step::Data(bytes)) => {
                if let Some((_, body)) = found.last_mut() {
                    body.extend_from_slice(&bytes);
                }
            }
            Ok(Step::End) => {
                in_body = false;
                if !parser.persists() {
                    return (found, true);
                }
            }
            Ok(Step::NeedMore) => match pieces.next() {
                Some(piece) => input.extend_from_slice(piece),
                None if in_body => {
                    let whole = parser.close().is_ok();
                    return (found, whole);
                }
                None => {
                    let whole = input.is_empty();
                    return (found, whole);
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> (Vec<(u16, Vec<u8>)>, bool) {
        parse_responses(&[text.replace('\n', "\r\n").as_bytes()])
    }

    #[test]
    fn answers_behind_each_other() {
        let text = "HTTP/1.1 206 P\nContent-Length: 5\n\nhello\
                    HTTP/1.1 100 C\n\nHTTP/1.1 103 E\nLink: x\n\n\
                    HTTP/1.1 200 O\ntransfer-encoding: Chunked\n\n2;x=y\nhe\n3 \nllo\n0\nA: b\nC: d\n\n\
                    HTTP/1.1 204 N\n\nHTTP/1.1 304 N\nContent-Length: 9\n\n\
                    HTTP/1.1 404 N\nContent-Length: 0\nContent-Length: 0\n\n\
                    HTTP/1.1 200 O\n\nuntil the end";
        let (found, whole) = all(text);
        let expected: Vec<(u16, &[u8])> = vec![
            (206, b"hello"),
            (200, b"hello"),
            (204, b""),
            (304, b""),
            (404, b""),
            (200, b"until the end"),
        ];
        let found: Vec<(u16, &[u8])> =
            found.iter().map(|(status, body)| (*status, body.as_slice())).collect();
        assert!(whole);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_field_that_is_none_counts_as_not_sent() {
        let fields = [
            "X-Fold: a\n  b",
            "X-Esc: \x1b[31m",
            "Set-Cookie: \x01\x02",
            "X-A : z",
            "X Y: z",
            ": empty",
            "Content-Disposition: \x1b]0;t\x07",
        ];
        for field in fields {
            let text = format!("HTTP/1.1 206 P\n{field}\nContent-Length: 5\n\nhello");
            assert_eq!(all(&text), (vec![(206, b"hello".to_vec())], true), "{field}");
        }
        for name in [
            "Content-Length\t: 5",
            "content-length\x01: 5",
            "Content-Length: \x015",
            "TRANSFER-ENCODING: \x07",
        ] {
            assert_eq!(all(&format!("HTTP/1.1 200 O\n{name}\n\nhello")), (vec![], false), "{name:?}");
        }
        let read =
            |text: &str| read(text.replace('\n', "\r\n").as_bytes()).expect("HTTP").expect("all of it").1;
        assert_eq!(read("HTTP/1.1 200 O\nETag:\n \"a\"\n\n").headers["etag"], "\"a\"");
    }

    #[test]
    fn framing_that_could_mean_two_things_is_refused() {
        for fields in [
            "Content-Length: 5\nContent-Length: 6",
            "Content-Length: 5, 5",
            "Content-Length: +5",
            "Content-Length: -1",
            "Content-Length: 18446744073709551616",
            "Content-Length:",
            "Content-Length: 5\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\nTransfer-Encoding: chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: chunked\n folded",
            "Transfer-Encoding : chunked",
            "no field",
            "A: b\0c",
        ] {
            assert_eq!(all(&format!("HTTP/1.1 200 O\n{fields}\n\nhello")), (vec![], false), "{fields:?}");
        }
        assert_eq!(all("HTTP/1.0 200 O\nTransfer-Encoding: chunked\n\n0\n\n"), (vec![], false));
        assert_eq!(all("HTTP/1.1 101 S\nContent-Length: 0\n\n"), (vec![], false));
        assert_eq!(all("HTTP/2.0 200 S\nContent-Length: 0\n\n"), (vec![], false));
        assert_eq!(all("HTTP/1.1 099 S\nContent-Length: 0\n\n"), (vec![], false));
        assert_eq!(all(&"HTTP/1.1 102 P\n\n".repeat(INTERIM_MAX + 1)), (vec![], false));
    }

    #[test]
    fn chunks_that_are_none() {
        for body in [
            "x\nhello\n0\n\n",
            "5\nhelloX0\n\n",
            "5\nhello\n",
            "-5\nhello\n0\n\n",
            "5\nhello\n0\nA: b\n",
            "FFFFFFFFFFFFFFFFF\nhello",
            "\nhello",
        ] {
            let text = format!("HTTP/1.1 200 O\nTransfer-Encoding: chunked\n\n{body}");
            assert!(!all(&text).1, "{body:?}");
        }
        let endless = format!("HTTP/1.1 200 O\nTransfer-Encoding: chunked\n\n5;{}", "x".repeat(1 << 20));
        assert!(!all(&endless).1);
        let endless =
            format!("HTTP/1.1 200 O\nTransfer-Encoding: chunked\n\n0\n{}", "a: b\n".repeat(1 << 16));
        assert!(!all(&endless).1);
    }

    #[test]
    fn heads_have_limits() {
        let long = |bytes: usize| format!("HTTP/1.1 200 O\nContent-Length: 0\nA: {}\n\n", "x".repeat(bytes));
        assert_eq!(all(&long(60 << 10)), (vec![(200, vec![])], true));
        assert_eq!(all(&long(64 << 10)), (vec![], false));
        let many =
            |fields: usize| format!("HTTP/1.1 200 O\nContent-Length: 0\n{}\n", "A: b\n".repeat(fields));
        assert_eq!(all(&many(HEADERS_MAX - 1)), (vec![(200, vec![])], true));
        assert_eq!(all(&many(HEADERS_MAX)), (vec![], false));
        // An endless head is refused.
        let mut parser = Parser::default();
        let mut input = BytesMut::from(&b"HTTP/1.1 200 O\r\n"[..]);
        while input.len() < HEAD_BYTES_MAX {
            assert_eq!(parser.head(&mut input).map(|head| head.is_some()), Ok(false));
            input.extend_from_slice(b"A: 0123456789\r\n");
        }
        assert!(parser.head(&mut input).is_err());
    }

    #[test]
    fn who_keeps_the_connection() {
        for (head, persists, pipelines) in [
            ("HTTP/1.1 200 O\nContent-Length: 0", true, true),
            ("HTTP/1.1 200 O\nContent-Length: 0\nConnection: x, Close", false, false),
            ("HTTP/1.1 200 O", false, false),
            ("HTTP/1.0 200 O\nContent-Length: 0", false, false),
            ("HTTP/1.0 200 O\nContent-Length: 0\nConnection: Keep-Alive", true, false),
            ("HTTP/1.1 200 O\nTransfer-Encoding: chunked", true, true),
        ] {
            let mut parser = Parser::default();
            let mut input = BytesMut::from(format!("{head}\n\n").replace('\n', "\r\n").as_bytes());
            assert!(parser.head(&mut input).unwrap().is_some());
            assert_eq!((parser.persists(), parser.pipelines()), (persists, pipelines), "{head}");
        }
    }

    /// Generates bytes that are nearly answers.
    fn nearly() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        use proptest::prelude::*;
        let part = prop_oneof![
            Just("HTTP/1.1 200 O\r\n".to_owned()),
            Just("HTTP/1.1 206 P\r\nContent-Length: 5\r\n\r\nhello".to_owned()),
            Just("HTTP/1.1 100 C\r\n\r\n".to_owned()),
            Just("Transfer-Encoding: chunked\r\n".to_owned()),
            Just("Connection: close\r\n".to_owned()),
            (0_u64..9).prop_map(|n| format!("Content-Length: {n}\r\n")),
            Just("\r\n".to_owned()),
            Just("\n".to_owned()),
            (0_usize..9).prop_map(|n| format!("{n:x}\r\n{}\r\n", "y".repeat(n))),
            Just("0\r\n\r\n".to_owned()),
            "[ -~\\r\\n]{0,9}",
        ];
        proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat().into_bytes())
    }

    proptest::proptest! {
        #[test]
        fn any_split_is_the_same(
            bytes in nearly(),
            cuts in proptest::collection::vec(0_usize..400, 0..9),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            let whole = parse_responses(&[&bytes]);
            proptest::prop_assert_eq!(&parse_responses(&pieces), &whole);
            proptest::prop_assert_eq!(&parse_responses(&single), &whole);
        }

        #[test]
        fn any_bytes_are_read(
            before in nearly(),
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        ) {
            let bytes = [before, bytes].concat();
            let (found, _) = parse_responses(&[&bytes]);
            proptest::prop_assert!(found.iter().map(|(_, body)| body.len()).sum::<usize>() <= bytes.len());
        }

        #[test]
        fn never_more_than_its_length(length in 0_u64..40, sent in 0_usize..80, cut in 0_usize..40) {
            let text = format!("HTTP/1.1 200 O\r\nContent-Length: {length}\r\n\r\n{}", "z".repeat(sent));
            let (first, second) = text.as_bytes().split_at(cut.min(text.len()));
            let (found, whole) = parse_responses(&[first, second]);
            let expected = sent.min(length as usize);
            proptest::prop_assert_eq!(found, vec![(200, vec![b'z'; expected])]);
            proptest::prop_assert_eq!(whole, sent as u64 == length);
        }
    }
}
