//! Looks for OpenPGP signatures of the file. Any server may send one: the user's keyring decides.

use anabranch_http::client::RequestKind;
use anabranch_mirror::url::Url;

use super::{Discovery, ProbeKind};
use crate::openpgp::SIGNATURE_MAX;

/// URLs of others than the user beside which they are looked for at most.
const BESIDE_MAX: usize = 4;
/// What is appended to a file's name for its signature.
const SUFFIXES: [&str; 2] = [".asc", ".sig"];

impl Discovery<'_> {
    /// Looks beside the URLs that are known by now.
    pub(super) fn look_for_signatures(&mut self) {
        while self.beside.asked_for_signatures < self.mirrors.len() {
            let number = self.beside.asked_for_signatures;
            self.beside.asked_for_signatures += 1;
            let others = self.mirrors[..number].iter().filter(|mirror| !mirror.named).count();
            if !self.mirrors[number].named && others >= BESIDE_MAX {
                continue;
            }
            let there = SUFFIXES.iter().filter_map(|suffix| self.mirrors[number].url.sibling(suffix).ok());
            for url in there.collect::<Vec<_>>() {
                self.ask_for_signature(&url, number);
            }
        }
    }

    /// Asks for one; `number`: of the URL for which it may be.
    pub(super) fn ask_for_signature(&mut self, url: &Url, number: usize) {
        if self.documents.signatures.are_wanted() {
            let max = SIGNATURE_MAX;
            self.ask(ProbeKind::Signature, url, RequestKind::Document { max }, Some(number));
        }
    }
}
