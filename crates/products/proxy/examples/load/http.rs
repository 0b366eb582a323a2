//! The load generator's HTTP/1.1: reads and writes heads, and compares bodies.

use std::io;
use std::pin::pin;
use std::time::Duration;

use anabranch_algo::Time;
use anabranch_net::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{HEAD_BYTES_MAX, Noise, PIECE_BYTES, wrong};

/// A connection, and the bytes that were read beyond the last head.
pub(crate) struct Http {
    stream: TcpStream,
    rest: Vec<u8>,
    /// The local port, and the time after which a stall is reported.
    pub(crate) port: u16,
    stall: Option<Duration>,
}

impl Http {
    pub(crate) fn new(stream: TcpStream, stall: Option<Duration>) -> Self {
        let port = stream.local_addr().map_or(0, |address| address.port());
        Self { stream, rest: Vec::new(), port, stall }
    }

    /// Reads some bytes, and reports a stall.
    async fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let (port, stall) = (self.port, self.stall);
        told(port, stall, "reads", self.stream.read(piece)).await
    }

    /// Writes all of a piece, and reports a stall.
    async fn write_all(&mut self, piece: &[u8]) -> io::Result<()> {
        let (port, stall) = (self.port, self.stall);
        told(port, stall, "writes", self.stream.write_all(piece)).await
    }

    /// Reads the next head, without its end. Returns `None` if the connection ends before it.
    pub(crate) async fn head(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.rest[..end]).into_owned();
                self.rest.drain(..end + 4);
                return Ok(Some(head));
            }
            if self.rest.len() > HEAD_BYTES_MAX {
                return Err(wrong("a head without an end"));
            }
            // The buffer is small, because many connections wait.
            let mut piece = [0; 2_048];
            match self.read(&mut piece).await? {
                0 if self.rest.is_empty() => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self.rest.extend_from_slice(&piece[..n]),
            }
        }
    }

    /// Reads a body and compares it with the noise.
    pub(crate) async fn body(&mut self, noise: &Noise, identity: u64, bytes: u64) -> io::Result<()> {
        let same = |place: u64, piece: &[u8]| match noise.at(identity, place, piece.len()) == piece {
            true => Ok(()),
            false => Err(wrong(format!("CORRUPT: body {identity} within {} of {place}", piece.len()))),
        };
        let first = self.rest.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        same(0, &self.rest[..first])?;
        self.rest.drain(..first);
        self.rest.shrink_to_fit();
        let mut place = first as u64;
        let mut buffer = vec![0; PIECE_BYTES.min((bytes - place) as usize)];
        while place < bytes {
            let most = buffer.len().min((bytes - place) as usize);
            let n = self.read(&mut buffer[..most]).await?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            same(place, &buffer[..n])?;
            place += n as u64;
        }
        Ok(())
    }

    /// Writes a head and its body.
    pub(crate) async fn write(
        &mut self,
        head: &str,
        noise: &Noise,
        identity: u64,
        bytes: u64,
    ) -> io::Result<()> {
        let first = bytes.min(16 * 1024);
        let mut piece = head.as_bytes().to_vec();
        piece.extend_from_slice(noise.at(identity, 0, first as usize));
        self.write_all(&piece).await?;
        let mut place = first;
        while place < bytes {
            let n = (bytes - place).min(PIECE_BYTES as u64);
            self.write_all(noise.at(identity, place, n as usize)).await?;
            place += n;
        }
        Ok(())
    }
}

/// Waits for a step of a connection. Reports when it has taken long, and when it is then done.
async fn told<T>(port: u16, stall: Option<Duration>, what: &str, step: impl Future<Output = T>) -> T {
    let mut step = pin!(step);
    let Some(stall) = stall else { return step.await };
    if let Ok(done) = timeout(stall, step.as_mut()).await {
        return done;
    }
    eprintln!("port {port} {what} and nothing has moved for {stall:?}");
    let clock = Clock::start();
    let done = step.await;
    let took = clock.now().since(Time::ZERO).as_nanos() / 1_000_000;
    eprintln!("port {port} {what} on, {took} ms later");
    done
}
