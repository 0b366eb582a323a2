//! The failures of an image, for the person at the terminal.

use std::path::Path;

use anabranch_minicache::image::ImageError;

use crate::exit::Failure;
use crate::names::show;

/// Says what is wrong with the image at `path`, with its exit status.
pub(super) fn failure(path: &Path, error: &ImageError) -> Failure {
    let says = format!("{}: {error}", show(path));
    match error {
        ImageError::Layout(_) | ImageError::Short(..) | ImageError::Shared => Failure::usage(says).at(path),
        ImageError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let make = format!("`anabranch minicache make {} --size SIZE` makes it", show(path));
            Failure::usage(format!("{says}; {make}")).at(path)
        }
        ImageError::Busy => Failure::other(says).at(path),
        ImageError::Io(_) | ImageError::NoRoom(_) | ImageError::NoEntry | ImageError::Wrong(_) => {
            Failure::target(says).at(path)
        }
    }
}
