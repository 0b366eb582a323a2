//! Makes Metalinks of the offers: of one file, or of a directory with all files below it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use anabranch_http::server::document::METALINK_TYPE;
use anabranch_http::server::path::{Path, encode};
use anabranch_http::server::{PathLookup, ResourceRequest};
use anabranch_mirror::leaf_list::{self, LEAVES_MAX, LeafList};
use anabranch_mirror::metalink::{
    FILES_MAX, File, Hashes, METALINK_MAX, Metalink, Mirror, PRIORITY_LAST, is_safe_name, is_text,
};
use anabranch_mirror::url::Url;

use super::{CatalogSite, Content, Found, LEAVES_SUFFIX, METALINK_SUFFIX, encoded, root_text, text_resource};
use crate::filenames::show;

impl CatalogSite {
    /// Returns the Metalink of a file.
    ///
    /// # Errors
    /// Returns the reason why no Metalink can describe the file.
    pub(super) fn metalink(&self, index: usize, asked: &ResourceRequest<'_>) -> Result<String, String> {
        let offer = self.offer(index);
        // Characters that no Metalink may have (RFC 5854 section 4.1.2.1) are replaced in names too.
        let good = |c| if is_text(c) { c } else { '\u{fffd}' };
        let name: String = String::from_utf8_lossy(&offer.name).chars().map(good).collect();
        let name = Some(name).filter(|name| is_safe_name(name)).unwrap_or_else(|| root_text(offer));
        emit(vec![self.file_of(index, name, about(asked), asked)?])
    }

    /// Returns the Metalink of all files below a directory, with their names relative to it.
    ///
    /// # Errors
    /// Returns the reason why there is none: too many files, or a name that no Metalink can express. Such a
    /// file is not left out, because the directory would then be another.
    pub(super) fn metalink_of_all(
        &self,
        directory: &[u8],
        asked: &ResourceRequest<'_>,
    ) -> Result<String, String> {
        if let Some(why) = self.lacks_metalink(directory) {
            return Err(format!("no Metalink: {why}"));
        }
        let files = self.below(directory).iter().map(|index| {
            let relative = &self.paths[*index][directory.len() + 1..];
            let mut names = about(asked);
            names.extend(relative.split(|byte| *byte == b'/').map(<[u8]>::to_vec));
            self.file_of(*index, String::from_utf8_lossy(relative).into_owned(), names, asked)
        });
        emit(files.collect::<Result<_, _>>()?)
    }

    /// Returns why there can be no Metalink of all files below a directory, or `None` if there can.
    fn lacks_metalink(&self, directory: &[u8]) -> Option<String> {
        let below = self.below(directory);
        if below.len() > FILES_MAX {
            return Some(format!("{} files are below this, and one has {FILES_MAX} at most", below.len()));
        }
        let mut names = below.iter().map(|file| &self.paths[*file][directory.len() + 1..]);
        let bad = names.find(|name| !std::str::from_utf8(name).is_ok_and(is_safe_name))?;
        Some(format!("it cannot have the name {}", show(OsStr::from_bytes(bad))))
    }

    /// Returns the path of the Metalink of a directory on offer, encoded for a URL, without a slash in front.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub(crate) fn metalink_path(&self, index: usize) -> Result<String, String> {
        let directory = &self.paths[index];
        let path = [directory, METALINK_SUFFIX].concat();
        match self.find(&path, false) {
            Some(Found::MetalinkOfAll(of)) if of == *directory => {
                self.lacks_metalink(directory).map_or_else(|| Ok(encoded(&path)), Err)
            }
            _ => Err("a file of its name is on offer".to_owned()),
        }
    }

    /// Returns the Metalink at a path, and keeps it for the next request. It depends only on the path, the
    /// server's name in the request, and the catalog, which does not change.
    pub(super) fn kept_metalink(
        &self,
        asked: &ResourceRequest<'_>,
        make: impl FnOnce() -> Result<String, String>,
    ) -> PathLookup<Content> {
        let key = [asked.host.as_bytes(), &asked.path.names.join(&b'/')].join(&b' ');
        match self.texts.kept(key, make) {
            Ok(text) => PathLookup::Found(text_resource(text, METALINK_TYPE)),
            Err(why) => PathLookup::NotFound(why),
        }
    }

    /// Returns whether the Metalink of the directory is beside the path at which the directory is requested.
    pub(crate) fn has_metalink(&self, directory: &[u8], asked: &ResourceRequest<'_>) -> bool {
        let beside = self.find(&[&asked.path.names.join(&b'/'), METALINK_SUFFIX].concat(), false);
        matches!(beside, Some(Found::MetalinkOfAll(of)) if of == directory)
            && self.lacks_metalink(directory).is_none()
    }

    /// Returns the entry of a Metalink for a file that this server has at the path `names`.
    fn file_of(
        &self,
        index: usize,
        name: String,
        names: Vec<Vec<u8>>,
        asked: &ResourceRequest<'_>,
    ) -> Result<File, String> {
        let id = self.offer(index).id;
        // The bytes of one block give the root by themselves.
        let has_leaves = id.blocks() > 1 && LeafList::encoded_len(id.length) <= LEAVES_MAX as u64;
        let leaves = has_leaves.then(|| self.leaves_reference(index, &names, asked.path.names.len()));
        let path = Path { names, directory: false }.encode();
        let url = Url::parse(&format!("http://{}{path}", asked.host))
            .map_err(|e| format!("no Metalink: the Host of the request makes no URL: {e}"))?;
        Ok(File {
            name,
            size: Some(id.length),
            hashes: Hashes { blake3: Some(id.root), ..Hashes::default() },
            mirrors: vec![Mirror { url, priority: PRIORITY_LAST, location: None }],
            leaves,
            ..File::default()
        })
    }

    /// Returns the reference to a file's leaf list from a Metalink whose path has `depth` names.
    fn leaves_reference(&self, index: usize, names: &[Vec<u8>], depth: usize) -> String {
        let offer = self.offer(index);
        let beside = self.find(&[&names.join(&b'/'), LEAVES_SUFFIX].concat(), false);
        match beside {
            Some(Found::Leaves(found)) if self.offer(found).id == offer.id => {
                let names: Vec<String> = names[depth - 1..].iter().map(|name| encode(name)).collect();
                names.join("/") + leaf_list::SUFFIX
            }
            // A file of that name would be found there instead.
            _ => format!("/b3/{}{}", root_text(offer), leaf_list::SUFFIX),
        }
    }
}

fn emit(files: Vec<File>) -> Result<String, String> {
    let text = Metalink { files }.emit().map_err(|e| format!("no Metalink: {e}"))?;
    if text.len() > METALINK_MAX {
        return Err(format!(
            "no Metalink: it would have {} bytes, and {METALINK_MAX} are the most",
            text.len()
        ));
    }
    Ok(text)
}

/// Returns the path that a Metalink is about: the Metalink's own path without its suffix.
fn about(asked: &ResourceRequest<'_>) -> Vec<Vec<u8>> {
    let mut names = asked.path.names.clone();
    if let Some(last) = names.last_mut() {
        last.truncate(last.len().saturating_sub(METALINK_SUFFIX.len()));
    }
    names
}
