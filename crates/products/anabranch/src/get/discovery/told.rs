//! What a server says of a file itself, as it was said.

use anabranch_mirror::leaf_list::LeafList;
use anabranch_mirror::metalink::{self, Metalink};
use anabranch_mirror::url::Url;

/// What a server says.
pub(super) enum Told {
    /// In a Metalink.
    Listed(Box<metalink::File>),
    /// In a leaf list.
    Leaves(LeafList),
    /// The root, in a line of `b3sum`.
    Root([u8; 32]),
}

/// What a Metalink that a server offers beside the file at `url` says of that: its only file, or the only one
/// that is said to be there, or the only one of that name.
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
