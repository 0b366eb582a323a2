//! The messages of each workload.

use anabranch_algo::{Span, Time};

use crate::tcp_flows::{Message, TransferConfig, Workload as Transfer};

/// Time after which a video frame comes too late to be shown (assumed).
pub const DEADLINE: Span = Span::from_millis(150);
/// Bytes of a video frame, and frames a second: about 1 Mbit/s (assumed, after Ferlin et al., BLEST, 2016).
const FRAME_BYTES: u64 = 5 * 1_024;
const FRAME_EVERY: Span = Span::from_millis(40);
/// Time for which video is sent, and time for which a game is played.
const VIDEO_TIME: Span = Span::from_secs(30);
const GAME_TIME: Span = Span::from_secs(60);
/// Time from the opening of a connection until its first message.
const BEFORE_FIRST: Span = Span::from_secs(2);
/// Connections over which a page is fetched.
const CONNECTIONS: usize = 6;
/// Bytes of a request (assumed).
const REQUEST_BYTES: u64 = 300;

/// Games: name, bytes of a message and time between two (assumed, after Petlund's table of thin streams).
pub const GAMES: [(&str, u64, Span); 6] = [
    ("World of Warcraft", 26, Span::from_millis(314)),
    ("Anarchy Online", 98, Span::from_millis(632)),
    ("EVE Online", 261, Span::from_millis(694)),
    ("Age of Conan", 80, Span::from_millis(86)),
    ("Counter-Strike", 36, Span::from_millis(124)),
    ("Halo 3", 247, Span::from_millis(36)),
];

/// Pages: name, objects and KiB in all (assumed, after Ferlin et al., BLEST, 2016; objects of equal size).
pub const PAGES: [(&str, u64, u64); 3] =
    [("Wikipedia", 15, 72), ("Amazon", 54, 1_024), ("Huffington Post", 138, 3_994)];

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A video of 25 frames a second.
    Video,
    /// All [`GAMES`] at the same time, each over a connection of its own: together they are a few kbit/s.
    Games,
    /// The page of this number of [`PAGES`].
    Page(usize),
}

impl Workload {
    /// All workloads.
    pub const EACH: [Self; 5] = [Self::Video, Self::Games, Self::Page(0), Self::Page(1), Self::Page(2)];

    /// Returns the names of the streams whose latencies count.
    #[must_use]
    pub fn streams(self) -> Vec<&'static str> {
        match self {
            Self::Video => vec!["video"],
            Self::Games => GAMES.iter().map(|game| game.0).collect(),
            Self::Page(page) => vec![PAGES[page].0],
        }
    }

    /// Returns the transfers of each flow when the workload begins at `start`.
    pub(super) fn flows(self, start: Time) -> Vec<Vec<TransferConfig>> {
        match self {
            Self::Video => vec![vec![stream(start, FRAME_BYTES, FRAME_EVERY, VIDEO_TIME)]],
            Self::Games => {
                GAMES.iter().map(|(_, bytes, every)| vec![stream(start, *bytes, *every, GAME_TIME)]).collect()
            }
            Self::Page(_) => {
                let fetch = || Transfer::Fetch { request_bytes: REQUEST_BYTES };
                vec![(0..CONNECTIONS).map(|_| TransferConfig { start, workload: fetch() }).collect()]
            }
        }
    }

    /// Returns the sizes of the objects that are fetched, bytes.
    pub(super) fn objects(self) -> Vec<u64> {
        match self {
            Self::Video | Self::Games => Vec::new(),
            Self::Page(page) => {
                let (_, count, kib) = PAGES[page];
                vec![kib * 1_024 / count; count as usize]
            }
        }
    }

    /// Returns half of the time for which messages are sent.
    pub(super) fn middle(self) -> Span {
        match self {
            Self::Video => VIDEO_TIME.over(2),
            Self::Games => GAME_TIME.over(2),
            Self::Page(_) => Span::from_millis(200),
        }
    }
}

/// Returns a connection that carries a message every `every`.
fn stream(start: Time, bytes: u64, every: Span, time: Span) -> TransferConfig {
    let first = start + BEFORE_FIRST;
    let count = time.as_nanos() / every.as_nanos();
    let message = |nth| Message { at: first + every.times(nth), bytes };
    TransferConfig { start, workload: Transfer::Messages((0..count).map(message).collect()) }
}
