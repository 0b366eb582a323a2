//! OpenPGP signatures of a file: where they are looked for. Whoever sends them, the user's keyring decides.

use std::sync::Arc;

use anabranch_http::client::RequestKind;
use mirror::url::Url;

use super::{Discovery, ProbeKind};
use crate::get::request::Request;
use crate::openpgp::{Keyring, SIGNATURE_MAX, Signed};
use crate::{Error, Result};

/// URLs beside which they are looked for at most.
const BESIDE_MAX: usize = 4;
/// What is appended to a file's name for its signature.
const SUFFIXES: [&str; 2] = [".asc", ".sig"];
/// Signatures that are kept at most.
const SIGNATURES_MAX: usize = 16;

/// Those that came, and by whose key one of them has to be.
pub(super) struct Signatures {
    /// None: they are not looked for.
    keyring: Option<Arc<Keyring>>,
    /// URLs beside which they have been looked for.
    asked: usize,
    came: Vec<Vec<u8>>,
}

impl Signatures {
    pub(super) fn of(request: &Request) -> Self {
        Self { keyring: request.keyring.clone(), asked: 0, came: Vec::new() }
    }

    /// One has come, from anywhere.
    pub(super) fn add(&mut self, signature: Vec<u8>) {
        let is_new = !signature.is_empty() && !self.came.contains(&signature);
        if self.keyring.is_some() && is_new && self.came.len() < SIGNATURES_MAX {
            self.came.push(signature);
        }
    }

    /// What the file has to be signed by, if the user says so.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no signature.
    pub(super) fn take(&mut self) -> Result<Option<Signed>> {
        let Some(keyring) = self.keyring.clone() else { return Ok(None) };
        if self.came.is_empty() {
            return Err(Error::not_found(
                "there is no OpenPGP signature of the file: neither in a Metalink, nor named by a server, nor \
                 beside it (.asc, .sig)",
            ));
        }
        Ok(Some(Signed::new(keyring, std::mem::take(&mut self.came))))
    }
}

impl Discovery<'_> {
    /// Looks beside the URLs that are known by now.
    pub(super) fn look_for_signatures(&mut self) {
        while self.signatures.asked < self.urls.len().min(BESIDE_MAX) {
            let number = self.signatures.asked;
            self.signatures.asked += 1;
            let there = SUFFIXES.iter().filter_map(|suffix| self.urls[number].sibling(suffix).ok());
            for url in there.collect::<Vec<_>>() {
                self.ask_for_signature(&url, number);
            }
        }
    }

    /// Asks for one; `number`: of the URL for which it may be.
    pub(super) fn ask_for_signature(&mut self, url: &Url, number: usize) {
        if self.signatures.keyring.is_some() {
            let max = SIGNATURE_MAX;
            self.ask(ProbeKind::Signature, url, RequestKind::Document { max }, Some(number));
        }
    }
}
