//! HTTP/1.1 at the server's end: heads, bodies with a length, answers.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// The longest head of a request, bytes.
const HEAD_BYTES_MAX: u64 = 32 << 10;
/// A connection without a request for this long is closed.
const IDLE: Duration = Duration::from_secs(120);
/// The bytes that are written or read at once.
static PIECE: [u8; 64 << 10] = [b'.'; 64 << 10];

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    /// The length of the body, bytes.
    length: u64,
    /// Whether the client waits for a word before it sends the body.
    expects: bool,
    /// Whether the connection ends after the answer.
    pub(super) closes: bool,
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes without a meaning.
    Bytes(u64),
    /// These bytes.
    Text(Vec<u8>),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Body,
}

/// A connection of a client.
pub(super) struct Connection<'a> {
    reader: BufReader<&'a TcpStream>,
    writer: &'a TcpStream,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

impl<'a> Connection<'a> {
    pub(super) fn new(stream: &'a TcpStream) -> Self {
        let _ = stream.set_read_timeout(Some(IDLE));
        Self { reader: BufReader::new(stream), writer: stream }
    }

    /// Reads the head of the next request; `None` if the client has no more.
    pub(super) fn head(&mut self) -> io::Result<Option<Head>> {
        let mut lines = Vec::new();
        let mut limited = self.reader.by_ref().take(HEAD_BYTES_MAX);
        loop {
            let mut line = Vec::new();
            limited.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                return if lines.is_empty() && line.is_empty() { Ok(None) } else { Err(wrong("a cut head")) };
            }
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        parse(&lines).map(Some)
    }

    /// Reads the body of a request.
    pub(super) fn take_body(&mut self, head: &Head) -> io::Result<()> {
        if head.expects {
            self.writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let taken = io::copy(&mut self.reader.by_ref().take(head.length), &mut io::sink())?;
        if taken == head.length { Ok(()) } else { Err(wrong("a cut body")) }
    }

    pub(super) fn send(&mut self, head: &Head, answer: Answer) -> io::Result<()> {
        let length = match &answer.body {
            Body::Bytes(count) => *count,
            Body::Text(text) => text.len() as u64,
        };
        let reason = match answer.status {
            200 => "OK",
            404 => "Not Found",
            _ => "Method Not Allowed",
        };
        let (status, keeps) = (answer.status, if head.closes { "connection: close\r\n" } else { "" });
        let mut first =
            format!("HTTP/1.1 {status} {reason}\r\n{keeps}content-length: {length}\r\n\r\n").into_bytes();
        if head.method == "HEAD" {
            return self.writer.write_all(&first);
        }
        // The head travels with the first bytes of the body.
        let mut left = match answer.body {
            Body::Text(text) => {
                first.extend(text);
                0
            }
            Body::Bytes(count) => {
                let with = count.min(PIECE.len() as u64);
                first.extend(&PIECE[..with as usize]);
                count - with
            }
        };
        self.writer.write_all(&first)?;
        while left > 0 {
            let count = left.min(PIECE.len() as u64);
            self.writer.write_all(&PIECE[..count as usize])?;
            left -= count;
        }
        Ok(())
    }
}

fn parse(lines: &[String]) -> io::Result<Head> {
    let mut words = lines.first().map(|line| line.split_whitespace()).into_iter().flatten();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(wrong("no request"));
    };
    let mut head = Head {
        method: method.to_owned(),
        target: target.to_owned(),
        length: 0,
        expects: false,
        closes: words.next() != Some("HTTP/1.1"),
    };
    for line in &lines[1..] {
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("a field without a colon"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => head.length = value.parse().map_err(|_| wrong("a length that is none"))?,
            "expect" => head.expects = value.eq_ignore_ascii_case("100-continue"),
            "connection" => head.closes |= value.eq_ignore_ascii_case("close"),
            "transfer-encoding" => return Err(wrong("a body without a length")),
            _ => {}
        }
    }
    Ok(head)
}
