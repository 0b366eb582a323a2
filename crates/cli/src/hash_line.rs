//! The progress of hashing, as a line that is redrawn.

use anabranch::HashProgress;

use crate::view::{Lines, bytes, duration};

/// Progress is shown if hashing takes longer than this, in seconds.
const AFTER_S: f64 = 0.3;

/// Draws the progress of hashing, once hashing has taken longer than [`AFTER_S`].
pub(crate) fn draw(lines: &mut Lines, progress: &HashProgress) {
    if progress.elapsed_s > AFTER_S {
        lines.draw(&[line(progress)]);
    }
}

fn line(progress: &HashProgress) -> String {
    let HashProgress { done_bytes, total_bytes, rate_bytes, .. } = *progress;
    let mut line =
        format!("hashing: {} of {}  {}/s", bytes(done_bytes), bytes(total_bytes), bytes(rate_bytes));
    if let Some(left_s) = progress.left_s() {
        line += &format!("  {} left", duration(left_s));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_it_is() {
        let mut progress = HashProgress::default();
        (progress.done_bytes, progress.total_bytes) = (1_000_000_000, 4_000_000_000);
        (progress.elapsed_s, progress.rate_bytes) = (2.0, 500_000_000);
        assert_eq!(line(&progress), "hashing: 1.0 GB of 4.0 GB  500.0 MB/s  6 s left");
        (progress.done_bytes, progress.rate_bytes) = (0, 0);
        assert_eq!(line(&progress), "hashing: 0 B of 4.0 GB  0 B/s");
    }
}
