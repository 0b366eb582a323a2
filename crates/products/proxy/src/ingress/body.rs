//! Finds the end of a request's body: RFC 9112 section 6.

use thiserror::Error;

/// The most bytes of a line of a chunked body, with its extensions.
const LINE_BYTES_MAX: usize = 4_096;
/// The most bytes of the trailer section.
const TRAILER_BYTES_MAX: usize = 16_384;

/// The error that a chunked body violates RFC 9112 section 7.1, so that its end is unknown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the chunks of the request's body are malformed")]
pub struct Malformed;

/// Finds which of a program's bytes are for the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// All bytes, as in a tunnel.
    Endless,
    /// This number of further bytes.
    Length(u64),
    /// All bytes up to the last chunk and its trailer section.
    Chunked(Chunked),
}

impl Body {
    /// Returns how many of the next `bytes` are for the origin. Later bytes belong to another request.
    ///
    /// # Errors
    /// If the chunks are malformed. The request cannot continue then.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        match self {
            Self::Endless => Ok(bytes.len()),
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                Ok(taken)
            }
            Self::Chunked(chunked) => chunked.take(bytes),
        }
    }

    /// Whether the body has been taken completely.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunked { part: Part::Over, .. }))
    }
}

/// The position in a chunked body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunked {
    part: Part,
    /// The part of the current line that has arrived.
    line: Vec<u8>,
    trailer_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Size,
    /// This number of bytes of the chunk is still missing.
    Data(u64),
    /// The line end after a chunk.
    DataEnd,
    Trailer,
    Over,
}

impl Chunked {
    fn take(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() {
            match self.part {
                Part::Over => break,
                Part::Data(left) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    at += taken;
                    let left = left - taken as u64;
                    self.part = if left == 0 { Part::DataEnd } else { Part::Data(left) };
                }
                Part::Size | Part::DataEnd | Part::Trailer => {
                    self.line.push(bytes[at]);
                    at += 1;
                    if self.line.ends_with(b"\r\n") {
                        self.end_of_line()?;
                    } else if self.line.ends_with(b"\n") || self.line.len() > LINE_BYTES_MAX {
                        // Parsers may disagree about a bare line feed (RFC 9112 section 2.2).
                        return Err(Malformed);
                    }
                }
            }
        }
        Ok(at)
    }

    fn end_of_line(&mut self) -> Result<(), Malformed> {
        let line = &self.line[..self.line.len() - 2];
        self.part = match self.part {
            // httparse reads a line without digits as 0, so the first digit is checked here.
            Part::Size if !line.first().is_some_and(u8::is_ascii_hexdigit) => return Err(Malformed),
            Part::Size => match httparse::parse_chunk_size(&self.line) {
                Ok(httparse::Status::Complete((_, 0))) => Part::Trailer,
                Ok(httparse::Status::Complete((_, size))) => Part::Data(size),
                _ => return Err(Malformed),
            },
            Part::DataEnd if line.is_empty() => Part::Size,
            Part::Trailer if line.is_empty() => Part::Over,
            Part::Trailer if self.trailer_bytes + line.len() <= TRAILER_BYTES_MAX => {
                self.trailer_bytes += line.len();
                Part::Trailer
            }
            _ => return Err(Malformed),
        };
        self.line.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_body_is_found_however_it_is_cut() {
        let chunked = b"5;x=\"y\"\r\nhello\r\n00\r\nA: b\r\n\r\n".as_slice();
        for (body, bytes) in [
            (Body::Length(0), b"".as_slice()),
            (Body::Length(7), b"\r\n0\r\n\r\n"),
            (Body::Chunked(Chunked::default()), b"0\r\n\r\n"),
            (Body::Chunked(Chunked::default()), chunked),
        ] {
            let all = [bytes, b"GET / HTTP/1.1\r\n\r\n"].concat();
            for size in 1..=all.len() {
                let mut body = body.clone();
                let taken: usize = all.chunks(size).map(|some| body.take(some).expect("sound")).sum();
                assert_eq!((taken, body.is_over()), (bytes.len(), true), "in pieces of {size}");
            }
        }
        assert!(!Body::Endless.is_over() && Body::Endless.take(chunked) == Ok(chunked.len()));
    }

    #[test]
    fn nobody_guesses_where_malformed_chunks_end() {
        let long = [b"1;".as_slice(), &[b'x'; LINE_BYTES_MAX], b"\r\n"].concat();
        let trailer = [b"0\r\n".as_slice(), &b"a: bcdefgh\r\n".repeat(2_000), b"\r\n"].concat();
        for bytes in [
            b"x\r\n".as_slice(),
            b"\r\n",
            b"-1\r\n",
            b"5\nhello\r\n",
            b"1\r\nab\r\n",
            b"ffffffffffffffffff\r\n",
            b"0\r\n\n",
            &long,
            &trailer,
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(Body::Chunked(Chunked::default()).take(bytes), Err(Malformed), "{text:.20}");
        }
    }
}
