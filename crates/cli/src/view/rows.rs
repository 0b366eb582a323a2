//! The rows of several transfers that come one after the other, as those of one.

use super::PathRow;

/// The state of a path over which nothing has come yet.
pub const NO_ANSWER_YET: &str = "no answer yet";

/// What has come `before` over paths with what comes `now`, and then the paths that are new.
pub(super) fn joined(before: &[PathRow], now: &[PathRow]) -> Vec<PathRow> {
    let mut rows: Vec<PathRow> = before.iter().map(|row| PathRow { rate_bytes: 0, ..row.clone() }).collect();
    add(&mut rows, now);
    if !before.is_empty() {
        share(&mut rows);
    }
    rows
}

/// Adds what comes `now` to the rows of its paths; a path without one gets one.
pub fn add(rows: &mut Vec<PathRow>, now: &[PathRow]) {
    for row in now {
        match rows.iter_mut().find(|known| is_same(known, row)) {
            Some(known) => *known = sum(known, row),
            None => rows.push(row.clone()),
        }
    }
}

/// The row of a path over which `now` came after `before`.
fn sum(before: &PathRow, now: &PathRow) -> PathRow {
    let state = if now.state == NO_ANSWER_YET { &before.state } else { &now.state }.clone();
    let (bytes, timeouts) = (before.bytes + now.bytes, before.timeouts + now.timeouts);
    PathRow { state, bytes, timeouts, ..now.clone() }
}

/// Whether both are of the same path.
#[must_use]
pub fn is_same(a: &PathRow, b: &PathRow) -> bool {
    (&a.source, &a.via) == (&b.source, &b.via)
}

/// Works out what part of all bytes came over each.
pub fn share(rows: &mut [PathRow]) {
    let all: u64 = rows.iter().map(|row| row.bytes).sum();
    for row in rows {
        row.share_percent = row.bytes as f64 * 100.0 / all.max(1) as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_before_counts() {
        let row = |source: &str, bytes: u64, state: &str| PathRow {
            source: source.into(),
            state: state.into(),
            rate_bytes: bytes,
            bytes,
            ..PathRow::default()
        };
        let before = [row("a", 100, "open"), row("b", 200, "failing"), row("c", 0, NO_ANSWER_YET)];
        let now = [row("b", 50, "open"), row("a", 0, NO_ANSWER_YET), row("d", 50, "open")];
        let joined = joined(&before, &now);
        let told: Vec<(&str, u64, u64, &str)> =
            joined.iter().map(|r| (r.source.as_str(), r.bytes, r.rate_bytes, r.state.as_str())).collect();
        assert_eq!(
            told,
            [
                ("a", 100, 0, "open"),
                ("b", 250, 50, "open"),
                ("c", 0, 0, NO_ANSWER_YET),
                ("d", 50, 50, "open")
            ]
        );
        assert_eq!(joined[1].share_percent, 62.5);
        assert_eq!(super::joined(&[], &now)[0].share_percent, now[0].share_percent);
    }
}
