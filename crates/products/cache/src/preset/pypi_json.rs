//! Pages of a Python index in JSON (PEP 691), rewritten member by member: a page may have megabytes, and is
//! never held as a tree.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Returns the link to a file through the cache; `None` if it leads elsewhere.
type Links<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns a page whose `files` have other URLs: `link` gets each URL, with its SHA-256 behind `#sha256=` if
/// the page says one. Returns `None` if the text is no page.
pub(super) fn rewrite_json(text: &str, link: Links<'_>) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut json = serde_json::Deserializer::from_str(text);
    Page { link, out: &mut out }.deserialize(&mut json).ok()?;
    json.end().ok()?;
    Some(out)
}

/// The object that is the page.
struct Page<'a> {
    link: Links<'a>,
    out: &'a mut String,
}

impl<'de> DeserializeSeed<'de> for Page<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Page<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of an index")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut separator = '{';
        while let Some(name) = members.next_key::<String>()? {
            self.out.push(separator);
            separator = ',';
            self.out.push_str(&Value::String(name.clone()).to_string());
            self.out.push(':');
            match &*name {
                "files" => members.next_value_seed(Files { link: self.link, out: self.out })?,
                _ => self.out.push_str(members.next_value::<&RawValue>()?.get()),
            }
        }
        self.out.push_str(if separator == '{' { "{}" } else { "}" });
        Ok(())
    }
}

/// The array of files.
struct Files<'a> {
    link: Links<'a>,
    out: &'a mut String,
}

impl<'de> DeserializeSeed<'de> for Files<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Files<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the files of an index")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut files: A) -> Result<(), A::Error> {
        let mut separator = '[';
        while let Some(file) = files.next_element::<&RawValue>()? {
            self.out.push(separator);
            separator = ',';
            match rewritten(file.get(), self.link) {
                Some(file) => self.out.push_str(&file),
                None => self.out.push_str(file.get()),
            }
        }
        self.out.push_str(if separator == '[' { "[]" } else { "]" });
        Ok(())
    }
}

/// Returns a file with another URL; `None` if it keeps its own.
fn rewritten(file: &str, link: Links<'_>) -> Option<String> {
    let mut members: BTreeMap<&str, &RawValue> = serde_json::from_str(file).ok()?;
    let url: String = serde_json::from_str(members.get("url")?.get()).ok()?;
    let hashes: Option<BTreeMap<String, String>> =
        members.get("hashes").and_then(|hashes| serde_json::from_str(hashes.get()).ok());
    let hash = hashes.and_then(|hashes| hashes.get("sha256").map(|hex| format!("#sha256={hex}")));
    let link = link(&format!("{url}{}", hash.unwrap_or_default()))?;
    let bare = Value::String(link.split('#').next()?.to_owned()).to_string();
    let bare = RawValue::from_string(bare).ok()?;
    members.insert("url", &bare);
    serde_json::to_string(&members).ok()
}
