//! What the user or servers say of a file.

use anabranch_mirror::digests::Digests;
use anabranch_mirror::leaf_list::LeafList;
use anabranch_mirror::metalink::{self, Hashes, Metalink, Pieces};
use anabranch_mirror::url::Url;

use crate::VouchedBy;

/// What the user, one server, or most servers say of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) length: Option<u64>,
    pub(super) root: Option<[u8; 32]>,
    pub(super) digests: Digests,
    pub(super) pieces: Option<Pieces>,
    pub(super) leaves: Option<LeafList>,
    /// The voucher for these hashes; `None` if they are the word of one server only.
    pub(super) by: Option<VouchedBy>,
}

impl Told {
    /// Whether no hash is known that tells which bytes are right.
    pub(super) const fn has_no_hash(&self) -> bool {
        self.root.is_none() && self.digests.is_empty() && self.pieces.is_none()
    }
}

impl From<metalink::File> for Told {
    fn from(file: metalink::File) -> Self {
        let Hashes { digests, blake3 } = file.hashes;
        Self { length: file.size, root: blake3, digests, pieces: file.pieces, ..Self::default() }
    }
}

impl From<LeafList> for Told {
    fn from(leaves: LeafList) -> Self {
        let id = leaves.id();
        Self { length: Some(id.length), root: Some(id.root), leaves: Some(leaves), ..Self::default() }
    }
}

/// Returns what a server's Metalink says of the file at `url`: the only file of the Metalink, else the only
/// one that lists `url`, else the only one with the file name of `url`.
pub(super) fn its_file(metalink: Metalink, url: &Url) -> Option<metalink::File> {
    let mut files = metalink.files;
    if files.len() == 1 {
        return files.pop();
    }
    let name = url.file_name();
    let is_there =
        |file: &metalink::File| file.mirrors.iter().any(|mirror| mirror.url.as_str() == url.as_str());
    let is_named = |file: &metalink::File| Some(file.file_name().as_bytes()) == name.as_deref();
    let only = |fits: &dyn Fn(&metalink::File) -> bool| {
        let first = files.iter().position(fits)?;
        (!files[first + 1..].iter().any(fits)).then_some(first)
    };
    let found = only(&is_there).or_else(|| only(&is_named))?;
    Some(files.swap_remove(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_files_only_the_one_that_fits_is_meant() {
        let file = |name: &str, url: &str| {
            format!("<file name=\"{name}\"><size>1</size><url>http://h/{url}</url></file>")
        };
        let found = |files: &[String], url: &str| {
            let list =
                format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{}</metalink>", files.concat());
            let list = Metalink::parse(list.as_bytes()).expect("a Metalink");
            its_file(list, &Url::parse(url).expect("a URL")).map(|file| file.name)
        };
        let both = [file("a/README", "a/README"), file("b/README", "b/README")];
        assert_eq!(found(&both, "http://h/b/README").as_deref(), Some("b/README"), "it is there");
        assert_eq!(found(&both, "http://other/README"), None, "either may be meant");
        assert_eq!(found(&both, "http://h/c"), None);
        let named = [file("a/README", "x"), file("b/c", "y")];
        assert_eq!(found(&named, "http://other/README").as_deref(), Some("a/README"), "by its name");
        assert_eq!(found(&both[..1], "http://other/z").as_deref(), Some("a/README"), "the only one");
    }
}
