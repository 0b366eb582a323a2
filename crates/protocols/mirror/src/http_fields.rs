//! Reads HTTP field values that describe a file: its digests, its name, its validators, and links to mirrors.
//!
//! They come from servers and are only hints. A value that cannot be read counts as absent, and no value
//! causes a panic. Several lines of a field are one value, joined by commas (RFC 9110 §5.3).

use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER_PERMISSIVE};
use percent_encoding::percent_decode_str;

use crate::digests::Digests;
use crate::url::Url;

/// The most bytes of a field value; a longer one counts as absent.
pub const FIELD_MAX: usize = 64 * 1024;
/// The most links that are used from one field.
pub const LINKS_MAX: usize = 256;
/// The priority of a mirror without a stated priority, which is the lowest (RFC 5854 §4.2.16.2, RFC 6249
/// §3.1).
pub const PRIORITY_LAST: u32 = 999_999;

/// The media type of a Metalink (RFC 5854 §7).
const METALINK: &str = "application/metalink4+xml";
/// The media type of OpenPGP signatures (RFC 3156).
pub(crate) const SIGNATURE: &str = "application/pgp-signature";

/// Reads `Repr-Digest` (RFC 9530 §3), a dictionary of byte sequences (RFC 8941 §3.2, §3.3.5). A field that is
/// not such a dictionary is ignored, as RFC 8941 §4.2 requires. Of the algorithms in its registry (RFC 9530
/// §7.2) only `sha-256` and `sha-512` are active; SHA-384 is not registered.
#[must_use]
pub fn repr_digest(value: &str) -> Digests {
    read_dictionary(value).unwrap_or_default()
}

fn read_dictionary(value: &str) -> Option<Digests> {
    let mut digests = Digests::default();
    for member in parts(bounded(value)?, ',')? {
        // Parameters come after the value; neither a token nor base64 has a semicolon.
        let item = parts(member, ';')?.into_iter().next()?.trim_matches([' ', '\t']);
        let (key, item) = item.split_once('=').unwrap_or((item, ""));
        let is_key = key.starts_with(|c: char| c.is_ascii_lowercase() || c == '*')
            && key.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'));
        if !is_key {
            return None;
        }
        let bytes = item.strip_prefix(':').and_then(|item| item.strip_suffix(':'));
        match (key, bytes) {
            ("sha-256", Some(text)) => digests.sha256 = Some(base64(text)?.try_into().ok()?),
            ("sha-512", Some(text)) => digests.sha512 = Some(base64(text)?.try_into().ok()?),
            ("sha-256" | "sha-512", None) => return None,
            _ => {}
        }
    }
    Some(digests)
}

/// Reads the older field `Digest` (RFC 3230 §4.3.2, algorithms of RFC 5843). A value of the wrong length is
/// ignored. Old servers sent the base64 of the hexadecimal digits, as in the examples of RFC 6249; such a
/// value is read, too.
#[must_use]
pub fn digest(value: &str) -> Digests {
    let mut digests = Digests::default();
    for instance in bounded(value).unwrap_or_default().split(',') {
        let Some((algorithm, text)) = instance.trim().split_once('=') else { continue };
        let Some(bytes) = base64(text) else { continue };
        let bytes = match HEXLOWER_PERMISSIVE.decode(&bytes) {
            Ok(inner) if matches!(inner.len(), 32 | 64) && bytes.len() == 2 * digest_len(algorithm) => inner,
            _ => bytes,
        };
        match digest_len(algorithm) {
            32 => digests.sha256 = digests.sha256.or(bytes.try_into().ok()),
            64 => digests.sha512 = digests.sha512.or(bytes.try_into().ok()),
            _ => {}
        }
    }
    digests
}

/// Returns the bytes of a digest of this algorithm; 0 for an algorithm that is not used.
fn digest_len(algorithm: &str) -> usize {
    match algorithm.to_ascii_lowercase().as_str() {
        "sha-256" | "id-sha-256" => 32,
        "sha-512" | "id-sha-512" => 64,
        _ => 0,
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    // RFC 8941 §4.2.7 asks for values without padding to be read, too.
    BASE64.decode(text).or_else(|_| BASE64_NOPAD.decode(text)).ok()
}

/// A link to another resource (RFC 8288).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The target.
    pub url: Url,
    /// The relation types, in lower case.
    pub relations: Vec<String>,
    /// The expected media type of the target, in lower case, without parameters.
    pub media_type: Option<String>,
    /// The priority of a mirror: 1 is the best, [`PRIORITY_LAST`] if not stated (`pri`, RFC 6249 §3.1).
    pub priority: u32,
    /// The country of a mirror, as two lower-case letters (`geo`, RFC 6249 §3.2).
    pub location: Option<String>,
}

impl Link {
    /// Whether the target is a mirror, which has the same bytes (RFC 6249 §3).
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.relations.iter().any(|relation| relation == "duplicate")
    }

    /// Whether the target is a Metalink that describes the file (RFC 6249 §4.1).
    #[must_use]
    pub fn is_metalink(&self) -> bool {
        self.relations.iter().any(|relation| relation == "describedby")
            && self.media_type.as_deref() == Some(METALINK)
    }

    /// Whether the target is an OpenPGP signature of the file (RFC 6249 §5).
    #[must_use]
    pub fn is_signature(&self) -> bool {
        self.relations.iter().any(|relation| relation == "describedby")
            && self.media_type.as_deref() == Some(SIGNATURE)
    }
}

/// Reads `Link` (RFC 8288 §3) and resolves relative targets against `base`. Links whose target is neither
/// `http` nor `https`, and links about another resource (`anchor`), are left out. If a part of the value is
/// not a link, that part and the rest are ignored.
#[must_use]
pub fn links(value: &str, base: &Url) -> Vec<Link> {
    let mut links = Vec::new();
    for link in bounded(value).and_then(|value| parts(value, ',')).unwrap_or_default() {
        let link = link.trim();
        if link.is_empty() {
            continue;
        }
        let Some((target, parameters)) = link.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
            break;
        };
        if let Some(link) = read_link(target.trim(), parameters, base) {
            links.push(link);
        }
        if links.len() == LINKS_MAX {
            break;
        }
    }
    links
}

fn read_link(target: &str, parameters: &str, base: &Url) -> Option<Link> {
    let url = base.join(target).ok()?;
    let mut link =
        Link { url, relations: Vec::new(), media_type: None, priority: PRIORITY_LAST, location: None };
    for parameter in parts(parameters, ';')? {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = unquote(value.trim());
        match name.trim().to_ascii_lowercase().as_str() {
            "anchor" => return None,
            // The first `rel` parameter counts (RFC 8288 §3.3).
            "rel" if link.relations.is_empty() => {
                link.relations = value.split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
            }
            "type" if link.media_type.is_none() => {
                let bare = value.split(';').next().unwrap_or_default();
                link.media_type = Some(bare.trim().to_ascii_lowercase());
            }
            "pri" => link.priority = priority(&value),
            "geo" => link.location = location(&value),
            _ => {}
        }
    }
    Some(link)
}

/// Reads a priority of RFC 5854 and RFC 6249. A text that is not one has the lowest priority.
pub(crate) fn priority(text: &str) -> u32 {
    text.trim().parse().ok().filter(|n| (1..=PRIORITY_LAST).contains(n)).unwrap_or(PRIORITY_LAST)
}

/// Reads a country code of ISO 3166-1 alpha-2 in lower case. Only the form is checked.
pub(crate) fn location(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    (text.len() == 2 && text.bytes().all(|b| b.is_ascii_lowercase())).then_some(text)
}

/// An entity tag (RFC 9110 §8.8.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ETag {
    /// Whether the tag is weak: two representations with this tag mean the same, but their bytes may differ.
    pub weak: bool,
    /// The tag with its quotes, as in `If-Range`.
    pub text: String,
}

impl ETag {
    /// Reads an entity tag. A tag without quotes is not accepted, although some servers send one.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let value = bounded(value)?.trim();
        let (weak, text) = value.strip_prefix("W/").map_or((false, value), |text| (true, text));
        let inner = text.strip_prefix('"')?.strip_suffix('"')?;
        let good = |c: char| c != '"' && c > ' ' && c != '\x7f';
        inner.chars().all(good).then(|| Self { weak, text: text.to_owned() })
    }

    /// Returns the tag if it is strong. Then representations with this tag have the same bytes, and it may be
    /// used in `If-Range`.
    #[must_use]
    pub fn strong(&self) -> Option<&str> {
        (!self.weak).then_some(&self.text)
    }
}

/// Reads the file name in `Content-Disposition` (RFC 6266 §4.3): `filename*` (RFC 8187) if it is in UTF-8, or
/// else `filename`. The result is not checked: it may be empty, or contain slashes.
#[must_use]
pub fn disposition_name(value: &str) -> Option<Vec<u8>> {
    let (mut plain, mut extended) = (None, None);
    for parameter in parts(bounded(value)?, ';')?.into_iter().skip(1) {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let value = unquote(value.trim());
        match name.trim().to_ascii_lowercase().as_str() {
            "filename" if plain.is_none() => plain = Some(value.into_bytes()),
            "filename*" if extended.is_none() => {
                let text = value.split_once('\'').filter(|(set, _)| set.eq_ignore_ascii_case("utf-8"));
                let text = text.and_then(|(_, rest)| rest.split_once('\''));
                extended = text.map(|(_, text)| percent_decode_str(text).collect());
            }
            _ => {}
        }
    }
    extended.or(plain)
}

fn bounded(value: &str) -> Option<&str> {
    (value.len() <= FIELD_MAX).then_some(value)
}

/// Splits at each `separator` that is neither in a quoted string nor in `<…>`. Returns `None` if a quoted
/// string does not end.
fn parts(value: &str, separator: char) -> Option<Vec<&str>> {
    let (mut parts, mut from, mut quoted, mut escaped, mut pointed) = (Vec::new(), 0, false, false, false);
    for (at, char) in value.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' if !pointed => quoted = !quoted,
            '<' if !quoted => pointed = true,
            '>' if !quoted => pointed = false,
            char if char == separator && !quoted && !pointed => {
                parts.push(&value[from..at]);
                from = at + char.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&value[from..]);
    (!quoted).then_some(parts)
}

/// Returns the value of a parameter, which is a token or a quoted string (RFC 9110 §5.6.4).
fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let (mut out, mut chars) = (String::new(), inner.chars());
    while let Some(char) = chars.next() {
        match char {
            '"' => break,
            '\\' => out.extend(chars.next()),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::Digest as _;

    fn base() -> Url {
        Url::parse("http://www.example.com/dir/example.ext").unwrap()
    }

    /// The examples of RFC 6266 §5, and other values that servers send.
    #[test]
    fn names_of_files() {
        for (value, name) in [
            ("Attachment; filename=example.html", Some(&b"example.html"[..])),
            ("INLINE; FILENAME= \"an example.html\"", Some(b"an example.html")),
            ("attachment; filename*= UTF-8''%e2%82%ac%20rates", Some("€ rates".as_bytes())),
            ("attachment; filename=\"EUR\"; filename*=utf-8'en'%e2%82%ac", Some("€".as_bytes())),
            ("attachment; filename=a; filename*=iso-8859-1''%A3", Some(b"a")),
            ("attachment; filename=\"a\\\"b;c\"; size=1", Some(b"a\"b;c")),
            ("attachment; filename=\"../x\"", Some(b"../x")),
            ("attachment", None),
            ("attachment; filename=\"open", None),
            ("", None),
        ] {
            assert_eq!(disposition_name(value).as_deref(), name, "{value}");
        }
    }

    /// The example of RFC 9530, appendix B.1: a file with `{"hello": "world"}` and a line feed.
    #[test]
    fn the_digests_of_rfc_9530() {
        let file = b"{\"hello\": \"world\"}\n";
        let want = Digests {
            sha256: Some(sha2::Sha256::digest(file).into()),
            sha384: None,
            sha512: Some(sha2::Sha512::digest(file).into()),
        };
        let sha256 = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
        let sha512 = "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+\
                      pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:";
        assert_eq!(repr_digest(&format!("{sha256},\t {sha512}")), want);
        assert_eq!(repr_digest(sha256), Digests { sha512: None, ..want });
        assert_eq!(repr_digest(&sha512.replace("512", "384")), Digests::default(), "not registered");
        // Digests of other kinds, with parameters, with a quoted comma, and one kind twice: the last one
        // counts.
        let zeros = format!("sha-256=:{}:", BASE64.encode(&[0; 32]));
        let more = format!("md5=:AAAA:, {zeros};a=1;b=\"x,y\", unixsum=30637, x, {sha256};q");
        assert_eq!(repr_digest(&more), Digests { sha512: None, ..want });
        assert_eq!(
            repr_digest(&sha256.replace("=:", ":").replace("sha-256:", "sha-256=:")).sha256,
            want.sha256
        );
    }

    #[test]
    fn digests_that_are_none_say_nothing() {
        for bad in [
            "",
            "sha-256=RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=",
            "sha-256=:RK/0:",
            "sha-256=:!!!!:",
            "sha-256",
            "SHA-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:",
            "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:, sha-512=:x:",
            "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:;a=\"",
        ] {
            assert!(repr_digest(bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn the_older_digest() {
        let of = Digests::of_sha256(sha2::Sha256::digest(b"x").into());
        let text = BASE64.encode(&of.sha256.unwrap());
        assert_eq!(digest(&format!("md5=AAAA, SHA-256={text}")), of);
        assert_eq!(digest(&format!("sha-256={text},SHA=AAAA,")), of);
        assert_eq!(digest("SHA-256=AAAA"), Digests::default());
        // The example of RFC 6249 §1.1.
        let said = "SHA-256=MWVkMWQxYTRiMzk5MDQ0MzI3NGU5NDEyZTk5OWY1ZGFmNzgyZTJlODYz\
                    YjRjYzFhOTlmNTQwYzI2M2QwM2U2MQ==";
        let hex = b"1ed1d1a4b3990443274e9412e999f5daf782e2e863b4cc1a99f540c263d03e61";
        assert_eq!(digest(said).sha256.unwrap()[..], HEXLOWER_PERMISSIVE.decode(hex).unwrap());
    }

    /// The examples of RFC 6249 §1.1, §3 and §4.
    #[test]
    fn the_links_of_rfc_6249() {
        let value = "<http://www2.example.com/example.ext>; rel=duplicate, \
                     <ftp://ftp.example.com/example.ext>; rel=duplicate, \
                     <http://example.com/example.ext.torrent>; rel=describedby; \
                     type=\"application/x-bittorrent\", \
                     <http://example.com/example.ext.meta4>; rel=describedby; \
                     type=\"application/metalink4+xml\", \
                     <http://example.com/example.ext.asc>; rel=describedby; \
                     type=\"application/pgp-signature\", \
                     <http://mirror.example.net/example.ext>; rel=duplicate; pri=1; geo=GB; pref";
        let links = links(value, &base());
        let seen: Vec<_> =
            links.iter().map(|l| (l.url.as_str(), l.is_duplicate(), l.is_metalink())).collect();
        let want = [
            ("http://www2.example.com/example.ext", true, false),
            ("http://example.com/example.ext.torrent", false, false),
            ("http://example.com/example.ext.meta4", false, true),
            ("http://example.com/example.ext.asc", false, false),
            ("http://mirror.example.net/example.ext", true, false),
        ];
        assert_eq!(seen, want);
        assert_eq!((links[4].priority, links[4].location.as_deref()), (1, Some("gb")));
        assert_eq!((links[0].priority, &links[0].location), (PRIORITY_LAST, &None));
    }

    #[test]
    fn links_of_all_forms() {
        let value = "</a,b;c>;REL=\"x duplicate\";title=\"a, <b>; \\\"c\";rel=other ; Pri = 0, , \
                     <e.meta4>; rel=DescribedBy; type=\"Application/Metalink4+XML; v=1\", \
                     <http://x/y>; rel=duplicate; anchor=\"/other\", <http://[>; rel=duplicate, \
                     <//cdn.example.net/z>, nonsense, <http://x/never>; rel=duplicate";
        let links = links(value, &base());
        let seen: Vec<_> = links.iter().map(|l| l.url.as_str()).collect();
        assert_eq!(
            seen,
            [
                "http://www.example.com/a,b;c",
                "http://www.example.com/dir/e.meta4",
                "http://cdn.example.net/z"
            ]
        );
        assert!(links[0].is_duplicate() && links[1].is_metalink() && !links[2].is_duplicate());
        assert_eq!(links[0].relations, ["x", "duplicate"]);
        assert_eq!(links[0].priority, PRIORITY_LAST);
        let many = "<http://x/>;rel=duplicate,".repeat(1_000);
        assert_eq!(self::links(&many, &base()).len(), LINKS_MAX);
        assert!(self::links(&many.repeat(10), &base()).is_empty());
    }

    #[test]
    fn entity_tags() {
        let tag = ETag::parse(" \"thvDyvhfIqlvFe+A9MYgxAfm1q5=\" ").unwrap();
        assert_eq!(tag.strong(), Some("\"thvDyvhfIqlvFe+A9MYgxAfm1q5=\""));
        let weak = ETag::parse("W/\"1\"").unwrap();
        assert_eq!((weak.strong(), &*weak.text), (None, "\"1\""));
        assert!(ETag::parse("\"\"").is_some());
        for bad in ["", "x", "\"", "w/\"1\"", "W/1", "\"a\"b\"", "\"a b\"", "\"a\r\nX: y\""] {
            assert_eq!(ETag::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(
            text in "\\PC{0,80}",
            odd in "[<>;,=\"\\\\: a-z/-]{0,80}",
            start in 0..4_usize,
        ) {
            let start = ["", "sha-256=:", "<http://h/>;rel=\"", "W/\""][start];
            for text in [text, odd] {
                let text = format!("{start}{text}");
                let _ = (repr_digest(&text), digest(&text), ETag::parse(&text));
                let links = links(&text, &base());
                prop_assert!(links.iter().all(|link| (1..=PRIORITY_LAST).contains(&link.priority)));
            }
        }

        #[test]
        fn digests_there_and_back(sha256: [u8; 32]) {
            let text = BASE64.encode(&sha256);
            prop_assert_eq!(repr_digest(&format!("sha-256=:{text}:")).sha256, Some(sha256));
            prop_assert_eq!(digest(&format!("SHA-256={text}")).sha256, Some(sha256));
        }
    }
}
