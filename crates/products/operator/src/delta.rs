//! What differs between two states of the same length: runs of bytes, each with its place. Most of a state is
//! zero, or as it was a moment ago, so what a move sends while packets wait is short.

/// The length of the pieces that are compared, bytes.
const PIECE: usize = 64;

/// Returns what has to be written to `before` to make it `after`: for each run its place and its length, 32
/// bits each in little-endian order, then its bytes. A state that is shorter counts as filled up with zeros.
#[must_use]
pub fn between(before: &[u8], after: &[u8]) -> Vec<u8> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for start in (0..after.len()).step_by(PIECE) {
        let end = (start + PIECE).min(after.len());
        let is_same = match before.get(start..end) {
            Some(piece) => *piece == after[start..end],
            None => after[start..end].iter().all(|byte| *byte == 0),
        };
        match runs.last_mut() {
            _ if is_same => {}
            Some((_, last)) if *last == start => *last = end,
            _ => runs.push((start, end)),
        }
    }
    let mut bytes = Vec::new();
    for (start, end) in runs {
        bytes.extend((start as u32).to_le_bytes());
        bytes.extend(((end - start) as u32).to_le_bytes());
        bytes.extend(&after[start..end]);
    }
    bytes
}

/// Writes what [`between`] returned. Returns `None` if it leads out of the state, or is cut off: the state is
/// then half changed.
#[must_use]
pub fn apply(state: &mut [u8], mut delta: &[u8]) -> Option<()> {
    while !delta.is_empty() {
        let number = |at: usize| {
            let bytes = delta.get(at..at + 4)?;
            Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
        };
        let (start, len) = (number(0)?, number(4)?);
        let run = delta.get(8..8 + len)?;
        state.get_mut(start..start.checked_add(len)?)?.copy_from_slice(run);
        delta = &delta[8 + len..];
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_from_what_differs() {
        let mut after = vec![0; 1_000];
        let none = between(&[], &after);
        assert!(none.is_empty());
        for at in [0, 63, 64, 500, 999] {
            after[at] = 7;
        }
        let delta = between(&[], &after);
        assert!(delta.len() < 300, "{}", delta.len());
        let mut state = vec![0; 1_000];
        apply(&mut state, &delta).unwrap();
        assert_eq!(state, after);
        let before = after.clone();
        after[130] = 1;
        after[999] = 0;
        apply(&mut state, &between(&before, &after)).unwrap();
        assert_eq!(state, after);
    }

    #[test]
    fn what_leads_out_or_is_cut_is_refused() {
        let delta = between(&[], &[1; 100]);
        for len in 1..delta.len() {
            assert!(apply(&mut [0; 100], &delta[..len]).is_none(), "{len}");
        }
        assert!(apply(&mut [0; 99], &delta).is_none());
        let far = [&u32::MAX.to_le_bytes()[..], &1_u32.to_le_bytes(), &[1]].concat();
        assert!(apply(&mut [0; 100], &far).is_none());
        let long = [&0_u32.to_le_bytes()[..], &u32::MAX.to_le_bytes(), &[1]].concat();
        assert!(apply(&mut [0; 100], &long).is_none());
    }
}
