//! Builds a catalog: finds the files, hashes them, and makes the manifests of directories.

use std::path::PathBuf;

use anabranch_mmtp::collection::{Collection, Entry};
use anabranch_mmtp::tree::Outboard;

use super::{Body, Catalog, Warnings, cache, hash, walk};
use crate::filenames::show;
use crate::hashing::HashJob;
use crate::{Error, ErrorKind, Result};

/// The settings for building a catalog.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    /// The directory where hashes are kept between starts; `None` if they are not kept.
    pub(crate) cache: Option<PathBuf>,
    /// The progress of hashing, by which it can also be stopped.
    pub(crate) job: HashJob,
    /// The files that are skipped, and why.
    pub(crate) warnings: Warnings,
}

impl Builder {
    /// Hashes `paths` and all files below them, on all processors. This takes long; [`HashJob::watch`]
    /// reports the progress.
    ///
    /// # Errors
    /// If a named path does not exist, is not readable, or is neither a file nor a directory. If there are
    /// too many files below it. [`ErrorKind::Interrupted`] if the job is stopped.
    pub(crate) fn build(&self, paths: &[PathBuf]) -> Result<Catalog> {
        let roots =
            paths.iter().map(|path| walk(path, &self.job, &self.warnings)).collect::<Result<Vec<_>>>()?;
        let sum = roots.iter().flat_map(|root| &root.files).map(|file| file.length).sum();
        self.job.set_total(sum);
        let mut catalog = Catalog::default();
        for (named, root) in roots.into_iter().enumerate() {
            let hashed = hash::all(&self.job, self.cache.as_deref(), &root.files);
            if self.job.is_stopped() {
                return Err(Error::interrupted("interrupted while hashing"));
            }
            let mut entries = Vec::new();
            for (file, hashed) in root.files.into_iter().zip(hashed) {
                let (outboard, identity) = match hashed {
                    Ok(hashed) => hashed,
                    Err(e) if root.directory => {
                        self.warnings.add(format!("skipped {}: {e}", show(&file.path)));
                        continue;
                    }
                    Err(e) => return Err(ErrorKind::System.cannot("read", &file.path, e)),
                };
                if root.directory {
                    entries.push(Entry {
                        path: file.relative.clone(),
                        executable: file.executable,
                        id: outboard.id(),
                    });
                }
                catalog.add((named, file.relative), file.path, false, outboard, Body::File(identity));
            }
            if root.directory {
                let manifest = Collection::new(entries)
                    .map_err(|e| ErrorKind::System.cannot("offer", &root.path, e))?
                    .encode();
                let outboard = Outboard::of_bytes(&manifest);
                catalog.add((named, Vec::new()), root.path, true, outboard, Body::Memory(manifest));
            }
        }
        if let Some(dir) = &self.cache {
            cache::prune(dir);
        }
        Ok(catalog)
    }
}
