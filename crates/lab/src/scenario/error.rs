//! What is wrong with a scenario: where, what, and what to write instead.

use std::fmt;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file, as it was named; empty if there is none.
    pub file: String,
    /// The line in it, from 1, if it is known.
    pub line: Option<usize>,
    /// The key it is about, dotted: `flow.mp.paths.0.via`. Empty if it is about none.
    pub key: String,
    /// What is wrong and what to do, as a sentence that names the key.
    pub what: String,
}

impl ScenarioError {
    /// About `key`.
    pub(crate) fn at(key: impl Into<String>, what: impl fmt::Display) -> Self {
        let key = key.into();
        let what = format!("{key}: {what}");
        Self { file: String::new(), line: None, key, what }
    }
    /// A sentence of its own that names `key` itself.
    pub(crate) fn of(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { file: String::new(), line: None, key: key.into(), what: what.into() }
    }
    /// In this file.
    pub(crate) fn in_file(mut self, file: &str) -> Self {
        file.clone_into(&mut self.file);
        self
    }
    /// In this case.
    pub(crate) fn in_case(mut self, case: &str) -> Self {
        self.what = format!("case `{case}`: {}", self.what);
        self
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", _) => {}
            (file, None) => write!(f, "{file}: ")?,
            (file, Some(line)) => write!(f, "{file}:{line}: ")?,
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for ScenarioError {}

/// At most so many names are listed where none is near.
const LISTED_MAX: usize = 24;

/// Which of `names` was probably meant by `word`; none if nothing is near.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let letters = word.chars().count();
    let far = |name: &str| {
        let low = name.to_lowercase();
        // The beginning of a name, or a name with something behind it, is meant as that name.
        if letters >= 3 && (low.starts_with(&word) || (low.len() >= 3 && word.starts_with(&low))) {
            1
        } else {
            distance(&word, &low)
        }
    };
    let best = names.into_iter().map(|name| (far(name), name)).min_by_key(|(far, _)| *far);
    let near =
        |far: usize, name: &str| far <= (letters.max(name.chars().count()) / 3).max(1) && far < letters;
    best.filter(|(far, name)| near(*far, name)).map(|(_, name)| name)
}

/// ": did you mean `x`?" or the list of what there is.
pub(crate) fn hint<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    if let Some(near) = nearest(word, names.iter().copied()) {
        return format!(": did you mean `{near}`?");
    }
    match names.len() {
        0 => "; there are none".into(),
        n if n > LISTED_MAX => format!("; there are {}, … ({n})", names[..LISTED_MAX].join(", ")),
        _ => format!("; there are {}", names.join(", ")),
    }
}

/// That there is no `what` of this name, and which was probably meant.
pub(crate) fn missing<'a>(what: &str, name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    format!("there is no {what} `{name}`{}", hint(name, names))
}

/// How many letters to insert, delete, replace or swap with their neighbour (optimal string alignment).
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
        assert_eq!(nearest("x", []), None);
        assert_eq!(hint("rtae", keys), ": did you mean `rate`?");
        assert_eq!(hint("zz", ["a", "b"]), "; there are a, b");
        assert_eq!(hint("zz", []), "; there are none");
    }

    #[test]
    fn distances() {
        for (a, b, far) in [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("lia", "olia", 1)] {
            assert_eq!((distance(a, b), distance(b, a)), (far, far), "{a} {b}");
        }
    }
}
