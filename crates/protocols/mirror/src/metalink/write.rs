//! Writes a Metalink of version 4.

use std::fmt::Write as _;

use anabranch_mmtp::id::LENGTH_MAX;
use data_encoding::HEXLOWER;
use quick_xml::escape::escape;

use super::{
    FILES_MAX, File, MIRRORS_MAX, Metalink, MetalinkError, MetalinkErrorKind, NAMESPACE_4, PIECES_MAX,
    PRIORITY_LAST, check_pieces, is_reference, is_safe_name,
};
use crate::http_fields::SIGNATURE;
use crate::leaf_list::MEDIA_TYPE;

pub(super) fn write(metalink: &Metalink) -> Result<String, MetalinkError> {
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<metalink xmlns=\"{NAMESPACE_4}\">\n  \
         <generator>anabranch/{}</generator>\n",
        env!("CARGO_PKG_VERSION")
    );
    let bad = |kind| MetalinkError { line: 0, kind };
    match metalink.files.len() {
        0 => return Err(bad(MetalinkErrorKind::Empty)),
        1..=FILES_MAX => {}
        _ => return Err(bad(MetalinkErrorKind::TooMany("files", FILES_MAX))),
    }
    for file in &metalink.files {
        check(file).map_err(bad)?;
        // Writing to a String does not fail.
        let _ = write_file(&mut out, file);
    }
    out.push_str("</metalink>\n");
    Ok(out)
}

/// Checks the values that the types allow but a reader would refuse.
fn check(file: &File) -> Result<(), MetalinkErrorKind> {
    if !is_safe_name(&file.name) {
        return Err(MetalinkErrorKind::Name(file.name.clone()));
    }
    if let Some(size) = file.size.filter(|size| *size > LENGTH_MAX) {
        return Err(MetalinkErrorKind::Size(size.to_string()));
    }
    if file.mirrors.len() > MIRRORS_MAX {
        return Err(MetalinkErrorKind::TooMany("mirrors", MIRRORS_MAX));
    }
    if let Some(pieces) = &file.pieces {
        if pieces.bytes == 0 {
            return Err(MetalinkErrorKind::PieceBytes("0".into()));
        }
        if pieces.hashes.len() > PIECES_MAX {
            return Err(MetalinkErrorKind::TooMany("piece hashes", PIECES_MAX));
        }
    }
    if let Some(leaves) = file.leaves.as_deref().filter(|leaves| !is_reference(leaves)) {
        return Err(MetalinkErrorKind::Leaves(leaves.into()));
    }
    check_pieces(file)
}

fn write_file(out: &mut String, file: &File) -> std::fmt::Result {
    writeln!(out, "  <file name=\"{}\">", escape(file.name.as_str()))?;
    if let Some(size) = file.size {
        writeln!(out, "    <size>{size}</size>")?;
    }
    let blake3 = file.hashes.blake3.as_ref().map(|root| ("blake3", root.as_slice()));
    for (kind, hash) in file.hashes.digests.iter().chain(blake3) {
        writeln!(out, "    <hash type=\"{kind}\">{}</hash>", HEXLOWER.encode(hash))?;
    }
    if let Some(pieces) = &file.pieces {
        writeln!(out, "    <pieces length=\"{}\" type=\"{}\">", pieces.bytes, pieces.hashes.kind())?;
        for hash in pieces.hashes.iter() {
            writeln!(out, "      <hash>{}</hash>", HEXLOWER.encode(hash))?;
        }
        writeln!(out, "    </pieces>")?;
    }
    if let Some(signature) = &file.signature {
        writeln!(out, "    <signature mediatype=\"{SIGNATURE}\">{}</signature>", escape(signature.as_str()))?;
    }
    let absolute = file.mirrors.iter().map(|m| (m.url.as_str(), m.priority, m.location.as_deref()));
    let relative =
        file.relative_mirrors.iter().map(|(reference, priority)| (reference.as_str(), *priority, None));
    for (place, priority, location) in absolute.chain(relative) {
        out.push_str("    <url");
        if let Some(location) = location {
            write!(out, " location=\"{}\"", escape(location))?;
        }
        if priority < PRIORITY_LAST {
            write!(out, " priority=\"{}\"", priority.max(1))?;
        }
        writeln!(out, ">{}</url>", escape(place))?;
    }
    if let Some(leaves) = &file.leaves {
        writeln!(out, "    <metaurl mediatype=\"{MEDIA_TYPE}\">{}</metaurl>", escape(leaves.as_str()))?;
    }
    writeln!(out, "  </file>")
}
