//! Stores of chunks as casync and desync have them: `HEX4/HEX64.cacnk`, where `HEX64` is the SHA-512/256
//! of the chunk *before* it is compressed, and `HEX4` its first four digits. A chunk whose name has no
//! extension is not compressed, and its name is verified here. A compressed one is verified by the client.

use super::target::{StorePath, TargetKind, UNKNOWN_TYPE};
use crate::digest::{Digest, HashKind};

pub(super) fn kind(path: &StorePath<'_>) -> Option<(TargetKind, &'static str)> {
    if path.directory {
        return None;
    }
    let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
    let kind = match &names[..] {
        [.., prefix, name] if prefix.len() == 4 && name.starts_with(prefix) => {
            let (hex, extension) = name.split_once('.').unwrap_or((name, ""));
            let digest = Digest::from_hex(HashKind::Sha512Of256, hex)?;
            match extension {
                "" => TargetKind::Object(digest),
                _ => TargetKind::Unchanging,
            }
        }
        [.., name] if [".caibx", ".caidx"].iter().any(|end| name.ends_with(end)) => TargetKind::File,
        _ => return None,
    };
    Some((kind, UNKNOWN_TYPE))
}
