//! Checks whether all URLs that the user named are of one file.
//!
//! The URLs of a request are taken to be of one file. Mirrors rename files, so different names alone prove
//! nothing. But if names and contents both differ, a user does not expect one of the files under the name of
//! another. If the names are the same, a mirror with different content has another version. A hash of the
//! user's, or a name that the user gives the file, says that all URLs are of one file.

use anabranch_mirror::url::Url;

use super::{Discovery, Probed};
use crate::get::origin::{host, origin};
use crate::{Error, Result};

impl Discovery<'_> {
    /// Returns the host of URL `number`, or the whole URL if several URLs have that host.
    pub(super) fn label(&self, number: usize) -> String {
        let name = host(&self.mirrors[number].url);
        let is_another = |(other, mirror): (usize, &Probed)| other != number && host(&mirror.url) == name;
        match self.mirrors.iter().enumerate().any(is_another) {
            true => self.mirrors[number].url.to_string(),
            false => name,
        }
    }

    /// Refuses URLs that have different names and different files, unless the user gives a name or a hash.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if there are two such URLs.
    pub(super) fn refuse_different_files(&self) -> Result<()> {
        if self.wanted.is_name_given || !self.wants_claims() {
            return Ok(());
        }
        let here = |number: &usize| self.mirrors[*number].named && self.mirrors[*number].head.is_some();
        let all: Vec<usize> = (0..self.mirrors.len()).filter(here).collect();
        for (place, one) in all.iter().enumerate() {
            for other in &all[place + 1..] {
                let (a, b) = (&self.mirrors[*one].url, &self.mirrors[*other].url);
                if let Some(how) = self.difference(*one, *other).filter(|_| are_names_different(a, b)) {
                    return Err(Error::usage(format!(
                        "{a} and {b} are different files ({how}): `each` fetches every URL as a file of its \
                         own; if they are one, give it a name with `to_file`, or its hash with `checksum`"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Describes how the files of two URLs differ; returns `None` if no difference is known.
    fn difference(&self, one: usize, other: usize) -> Option<String> {
        let length = |number: usize| self.mirrors[number].head.as_ref()?.length;
        if let (Some(a), Some(b)) = (length(one), length(other))
            && a != b
        {
            return Some(format!("of {a} and {b} bytes"));
        }
        let begins = self.mirrors[one].opening.zip(self.mirrors[other].opening);
        begins.filter(|(a, b)| a != b).map(|_| "the first 13 KiB differ".to_owned())
    }
}

/// Whether two URLs give their files different names. A URL that ends in a slash gives no name. On one server
/// different queries make different names; on different servers a query may be a token of the client.
fn are_names_different(a: &Url, b: &Url) -> bool {
    let names = (a.last_component(), b.last_component());
    let is_other_query = origin(a) == origin(b) && a.path() == b.path() && a.as_str() != b.as_str();
    is_other_query || !names.0.is_empty() && !names.1.is_empty() && names.0 != names.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_parts_of_urls_are_the_names_of_their_files() {
        for (a, b, are_different) in [
            ("http://a/f.iso", "http://b/x/f.iso", false),
            ("http://a/f.iso", "http://a/old/f.iso", false),
            ("http://a/f.iso", "http://b/f%2Eiso", false),
            ("http://a/f.iso?key=1", "http://b/f.iso?key=2", false),
            ("http://a/get?f=1", "http://a/get?f=2", true),
            ("http://a/f.iso", "http://a/g.iso", true),
            ("http://a/f.iso", "http://b/F.iso", true),
            ("http://a/f.iso", "http://b/", false),
        ] {
            let [one, other] = [a, b].map(|text| Url::parse(text).expect("a URL"));
            assert_eq!(are_names_different(&one, &other), are_different, "{a} {b}");
        }
    }
}
