//! Holds the scenarios that are part of the program, with their traces: those of the repository at build
//! time.

include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// Prefix of the path of a trace that is part of the program.
pub const PREFIX: &str = "built-in:";

/// Returns the text of the built-in scenario with this name.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    find(SCENARIOS, name)
}

/// Returns the names of the built-in scenarios, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|(name, _)| *name)
}

/// Returns the text of a built-in trace by its path in scenarios: `traces/NAME.trace`.
#[must_use]
pub fn trace(path: &str) -> Option<&'static str> {
    find(TRACES, path.strip_prefix("traces/")?.strip_suffix(".trace")?)
}

fn find(all: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    all.iter().find(|(other, _)| *other == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_repository_is_in_the_program() {
        assert!(names().count() > 20);
        assert!(text("bench-a").is_some_and(|text| text.contains("title = ")));
        assert!(trace("traces/saw-1-5.trace").is_some());
        assert_eq!(
            (text("nosuch"), trace("saw-1-5.trace"), trace("traces/nosuch.trace")),
            (None, None, None)
        );
    }
}
