//! Looks for OpenPGP signatures of the file. Any server may send one: the user's keyring decides.

use anabranch_http::client::RequestKind;
use anabranch_mirror::url::Url;

use super::{Discovery, ProbeKind};
use crate::openpgp::SIGNATURE_MAX;

/// The most URLs not named by the user beside which signatures are looked for.
const BESIDE_MAX: usize = 4;
/// The suffixes that are appended to the URL of a file for its signature.
const SUFFIXES: [&str; 2] = [".asc", ".sig"];

impl Discovery<'_> {
    /// Looks for signatures beside all URLs that are known by now.
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

    /// Requests a signature of the file of URL `number`, if signatures are wanted.
    pub(super) fn ask_for_signature(&mut self, url: &Url, number: usize) {
        if self.documents.signatures.are_wanted() {
            let max = SIGNATURE_MAX;
            self.ask(ProbeKind::Signature, url, RequestKind::Document { max }, Some(number));
        }
    }
}
