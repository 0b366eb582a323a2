//! Plays one stream: a buffer that fills at the rate at which video arrives and empties at the rate at which
//! it is watched. Time passes in spans of constant rate; within a span, starts and stalls are found exactly.

use crate::plan::Player;

/// The state of a player, and what its viewer has felt so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Playback {
    /// Video in the buffer, seconds.
    pub(crate) level_s: f64,
    is_playing: bool,
    /// Time since the request, seconds.
    pub(crate) session_s: f64,
    /// Time from the request to the first picture; `None` before.
    pub(crate) start_s: Option<f64>,
    /// Time without a picture, seconds, before the first one too.
    pub(crate) waited_s: f64,
    /// Video that has arrived, seconds.
    pub(crate) fetched_s: f64,
    /// Times that playback stopped because the buffer was empty.
    pub(crate) stalls: u32,
}

impl Playback {
    /// Whether there is room for more video.
    pub(crate) fn is_hungry(&self, player: &Player) -> bool {
        self.level_s < player.buffer_s
    }

    /// Lets `span_s` seconds pass, in which `speed` seconds of video can arrive each second. Returns how many
    /// did: what does not fit in the buffer is not fetched.
    pub(crate) fn pass(&mut self, player: &Player, span_s: f64, speed: f64) -> f64 {
        let (mut left, mut fetched) = (span_s, 0.0);
        while left > 0.0 {
            if self.is_playing {
                let drain = 1.0 - speed;
                let span = if drain > 0.0 { (self.level_s / drain).min(left) } else { left };
                let room = (player.buffer_s - self.level_s).max(0.0) + span;
                let arrived = (speed * span).min(room);
                fetched += arrived;
                self.session_s += span;
                left -= span;
                self.level_s = (self.level_s + arrived - span).max(0.0);
                if left > 0.0 {
                    (self.is_playing, self.level_s) = (false, 0.0);
                    self.stalls += 1;
                }
            } else {
                let missing = player.start_s - self.level_s;
                let fills = if speed > 0.0 { missing / speed } else { f64::INFINITY };
                let span = fills.min(left);
                self.session_s += span;
                self.waited_s += span;
                if fills <= left {
                    fetched += missing;
                    (self.is_playing, self.level_s) = (true, player.start_s);
                    self.start_s.get_or_insert(self.session_s);
                } else {
                    fetched += speed * span;
                    self.level_s += speed * span;
                }
                left -= span;
            }
        }
        self.fetched_s += fetched;
        fetched
    }

    /// Returns what the viewer felt, in the measures of 000 §3.4.1.1.
    pub(crate) fn experience(&self, cached: bool) -> Experience {
        let session_s = self.session_s.max(1e-9);
        Experience {
            start_s: self.start_s.unwrap_or(f64::INFINITY) as f32,
            buffering: (self.waited_s / session_s) as f32,
            stalls_per_minute: (f64::from(self.stalls) * 60.0 / session_s) as f32,
            playback: (self.fetched_s / session_s).min(1.0) as f32,
            cached,
        }
    }
}

/// What a viewer felt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experience {
    /// Time from the request to the first picture, seconds; infinite if none came.
    pub start_s: f32,
    /// Fraction of the session without a picture, before the first one too.
    pub buffering: f32,
    /// Interruptions a minute.
    pub stalls_per_minute: f32,
    /// Rate at which video arrived, in proportion to the rate of its quality; at most 1.
    pub playback: f32,
    /// Whether a cache served the stream.
    pub cached: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAYER: Player = Player { start_s: 10.0, buffer_s: 30.0 };

    #[test]
    fn enough_for_the_quality() {
        let mut playback = Playback::default();
        assert_eq!(playback.pass(&PLAYER, 3.0, 5.0), 15.0);
        // It starts after 2 s and then gains 4 s each second.
        assert_eq!((playback.start_s, playback.level_s), (Some(2.0), 14.0));
        // The buffer takes 16 s more, and what is watched.
        assert_eq!(playback.pass(&PLAYER, 7.0, 5.0), 23.0);
        assert!(!playback.is_hungry(&PLAYER));
        let felt = playback.experience(true);
        assert_eq!((felt.buffering, felt.stalls_per_minute, felt.playback), (0.2, 0.0, 1.0));
    }

    #[test]
    fn half_of_the_quality() {
        let mut playback = Playback::default();
        // 20 s until it starts, 20 s until the buffer is empty, and so on.
        (0..800).for_each(|_| assert!(playback.pass(&PLAYER, 0.5, 0.5) <= 0.25 + 1e-9));
        let felt = playback.experience(false);
        assert!((felt.start_s - 20.0).abs() < 1e-4 && (felt.buffering - 0.5).abs() < 0.01, "{felt:?}");
        assert!((9..=10).contains(&playback.stalls) && (felt.playback - 0.5).abs() < 1e-6);
        let mut whole = Playback::default();
        whole.pass(&PLAYER, 400.0, 0.5);
        assert!((whole.waited_s - playback.waited_s).abs() < 1e-6);
    }

    #[test]
    fn nothing_comes() {
        let mut playback = Playback::default();
        playback.pass(&PLAYER, 60.0, 0.0);
        let felt = playback.experience(false);
        assert_eq!((felt.start_s, felt.buffering, felt.playback), (f32::INFINITY, 1.0, 0.0));
    }
}
