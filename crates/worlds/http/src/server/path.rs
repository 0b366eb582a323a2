//! Parses, decodes and encodes the paths of requests (RFC 3986 §3.3).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// A path as a list of names. No name is empty, `.` or `..`, and none contains `/` or a NUL byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The names, decoded; they may be any bytes.
    pub names: Vec<Vec<u8>>,
    /// Whether the path ends in a slash, as `/` itself does.
    pub directory: bool,
}

impl Path {
    /// Parses a path. Returns `None` if it is invalid or has a name that no file can have.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('/')?;
        if text.is_empty() {
            return Some(Self { names: Vec::new(), directory: true });
        }
        let (text, directory) = match text.strip_suffix('/') {
            Some(text) => (text, true),
            None => (text, false),
        };
        let names = text.split('/').map(decode).collect::<Option<_>>()?;
        Some(Self { names, directory })
    }

    /// Returns the path as text. Equal paths have equal texts.
    #[must_use]
    pub fn encode(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| encode(name)).collect();
        let end = if self.directory && !names.is_empty() { "/" } else { "" };
        format!("/{}{end}", names.join("/"))
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                (digit(bytes.next()?)? * 16 + digit(bytes.next()?)?) as u8
            }
            byte => byte,
        });
    }
    let is_name = !matches!(&name[..], b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, b'/' | 0));
    is_name.then_some(name)
}

/// Encodes a name for a URL: percent-encodes all but the unreserved characters of RFC 3986 §2.3.
#[must_use]
pub fn encode(name: &[u8]) -> String {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    percent_encode(name, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_are_names() {
        let names = |text| Path::parse(text).map(|path| (path.names.join(&b"|"[..]), path.directory));
        let some = |text: &str, directory| Some((text.as_bytes().to_vec(), directory));
        assert_eq!(names("/"), some("", true));
        assert_eq!(names("/a"), some("a", false));
        assert_eq!(names("/a/"), some("a", true));
        assert_eq!(names("/a/b%20c"), some("a|b c", false));
        assert_eq!(names("/%e2%82%AC"), some("€", false));
        assert_eq!(names("/.../..a"), some("...|..a", false));
        for none in [
            "",
            "a",
            "//",
            "/a//b",
            "///",
            "/../etc/passwd",
            "/a/..",
            "/a/../b",
            "/%2e%2e/x",
            "/.%2E/x",
            "/a%2fb",
            "/..%2fx",
            "/a%00",
            "/%",
            "/%4",
            "/%4g",
            "/%-1",
            "/%+1",
            "/.",
            "/./a",
            "*",
        ] {
            assert_eq!(Path::parse(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn names_survive_and_nothing_leaves(text in "[/.%a2efF0\\\\é-]{0,30}") {
            if let Some(path) = Path::parse(&text) {
                let again = Path::parse(&path.encode());
                prop_assert_eq!(again.as_ref(), Some(&path));
                for name in &path.names {
                    prop_assert!(!name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/'));
                }
            }
        }

        #[test]
        fn every_name_has_a_form(name in proptest::collection::vec(1..=255_u8, 1..40)) {
            let is_name = name != b"." && name != b".." && !name.contains(&b'/');
            let path = Path::parse(&format!("/{}", encode(&name)));
            prop_assert_eq!(path, is_name.then_some(Path { names: vec![name], directory: false }));
        }
    }
}
