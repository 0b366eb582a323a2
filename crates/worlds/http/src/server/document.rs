//! Pages that list directories, and media types.

use std::fmt::Write as _;

/// The media type of a Metalink (RFC 5854 §5).
pub const METALINK_TYPE: &str = "application/metalink4+xml";
/// The media type of a page that lists a directory.
pub const LIST_TYPE: &str = "text/html; charset=utf-8";
/// The media type of contents whose type is unknown.
pub const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Extensions of file names, and their media types.
const TYPES: &[(&str, &str)] = &[
    ("css", "text/css"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("meta4", METALINK_TYPE),
    ("mkv", "video/x-matroska"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain; charset=utf-8"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

/// Returns the media type that a file's name suggests.
#[must_use]
pub fn media_type(name: &[u8]) -> &'static str {
    let extension = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    let found = TYPES.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known.as_bytes()));
    // A name without a dot has no extension.
    found.filter(|_| extension.len() < name.len()).map_or(UNKNOWN_TYPE, |(_, media_type)| media_type)
}

/// One row of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingEntry {
    /// The link: a relative reference, percent-encoded.
    pub href: String,
    /// The name to show.
    pub name: String,
    /// The size to show.
    pub size: String,
    /// The link to the Metalink of the entry; `None` for a directory.
    pub metalink: Option<String>,
}

/// Returns an HTML page with a list. It has no script, no style and no image, only relative links. `up` adds
/// a link to the directory above, `metalink` a link to the Metalink of the whole list, `more` a link to the
/// next page.
#[must_use]
pub fn listing(
    title: &str,
    rows: &[ListingEntry],
    up: bool,
    metalink: Option<&str>,
    more: Option<&str>,
) -> String {
    let title = escape(title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title></head>\n\
         <body>\n<h1>{title}</h1>\n<table>\n"
    );
    if up {
        page += "<tr><td><a href=\"../\">../</a></td></tr>\n";
    }
    for row in rows {
        let (href, name, size) = (escape(&row.href), escape(&row.name), escape(&row.size));
        let _ = write!(page, "<tr><td><a href=\"{href}\">{name}</a></td><td align=\"right\">{size}</td>");
        if let Some(metalink) = &row.metalink {
            let _ = write!(page, "<td><a href=\"{}\">metalink</a></td>", escape(metalink));
        }
        page += "</tr>\n";
    }
    page += "</table>\n";
    for (to, what) in [(more, "more"), (metalink, "metalink")] {
        if let Some(to) = to {
            let _ = writeln!(page, "<p><a href=\"{}\">{what}</a></p>", escape(to));
        }
    }
    page + "</body>\n</html>\n"
}

/// Escapes text for HTML and XML, for an element or an attribute in double quotes. Characters that XML 1.0
/// §2.2 forbids become U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\t' | '\n' | '\r' => {
                // Unescaped, they would become spaces in an attribute.
                let _ = write!(escaped, "&#{};", u32::from(char));
            }
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_suggest_types() {
        assert_eq!(media_type(b"a.b.PDF"), "application/pdf");
        assert_eq!(media_type(b"a.tar.gz"), "application/gzip");
        for unknown in [&b"pdf"[..], b"", b".", b"a.", b"a.\xff", b"a.exe"] {
            assert_eq!(media_type(unknown), UNKNOWN_TYPE);
        }
    }

    proptest! {
        #[test]
        fn nothing_escapes(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'']));
            prop_assert!(!escaped.chars().any(char::is_control));
        }
    }
}
