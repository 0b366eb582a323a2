//! Finds the name that a wrong one was meant to be, for messages about keys and commands that do not exist.

/// Returns the name of `names` that `word` probably means; `None` if no name is near.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let letters = word.chars().count();
    let far = |name: &str| {
        let low = name.to_lowercase();
        // The beginning of a name means that name, and so does a name with more letters after it.
        if letters >= 3 && (low.starts_with(&word) || (low.len() >= 3 && word.starts_with(&low))) {
            1
        } else {
            distance(&word, &low)
        }
    };
    let best = names.into_iter().map(|name| (far(name), name));
    let best = best.min_by_key(|(far, name)| (*far, distance(&word, &name.to_lowercase())));
    let near =
        |far: usize, name: &str| far <= (letters.max(name.chars().count()) / 3).max(1) && far < letters;
    best.filter(|(far, name)| near(*far, name)).map(|(_, name)| name)
}

/// Counts the letters to insert, delete, replace or swap with their neighbour (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            rows[i][j] = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant() {
        let keys = ["rate", "delay", "jitter", "queue", "mark_above", "reorder_by"];
        assert_eq!(nearest("rtae", keys), Some("rate"));
        assert_eq!(nearest("Rate", keys), Some("rate"));
        assert_eq!(nearest("dealy", keys), Some("delay"));
        assert_eq!(nearest("mark", keys), Some("mark_above"));
        assert_eq!(nearest("queue_bytes", keys), Some("queue"));
        assert_eq!(nearest("bandwidth", keys), None);
        assert_eq!(nearest("pair-fle", ["pair", "pair-file"]), Some("pair-file"));
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn distances() {
        for (a, b, far) in [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("lia", "olia", 1)] {
            assert_eq!((distance(a, b), distance(b, a)), (far, far), "{a} {b}");
        }
    }
}
