//! OpenPGP signatures of a file: where they are looked for. Whoever sends them, the user's keyring decides.

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
        while self.asked_for_signatures < self.urls.len() {
            let number = self.asked_for_signatures;
            self.asked_for_signatures += 1;
            let others = self.named[..number].iter().filter(|is_named| !**is_named).count();
            if !self.named[number] && others >= BESIDE_MAX {
                continue;
            }
            let there = SUFFIXES.iter().filter_map(|suffix| self.urls[number].sibling(suffix).ok());
            for url in there.collect::<Vec<_>>() {
                self.ask_for_signature(&url, number);
            }
        }
    }

    /// Asks for one; `number`: of the URL for which it may be.
    pub(super) fn ask_for_signature(&mut self, url: &Url, number: usize) {
        if self.signatures.are_wanted() {
            let max = SIGNATURE_MAX;
            self.ask(ProbeKind::Signature, url, RequestKind::Document { max }, Some(number));
        }
    }
}
