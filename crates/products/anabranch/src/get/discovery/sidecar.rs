//! Looks for hashes that lie beside a file on its server.

use anabranch_algo::{Span, Time};
use anabranch_http::client::{FetchId, RequestKind};
use anabranch_mirror::leaf_list::{self, HEAD_BYTES, LeafList};
use anabranch_mirror::metalink::METALINK_MAX;

use super::patience::{LEAVES_FOR, PACE_FROM};
use super::{Command, Discovery, EARLY_LEAVES_MAX, LINE_MAX, Probe, ProbeKind, SUMS_MAX};

/// The most URLs beside which hashes are looked for.
const BESIDE_MAX: usize = 4;
/// The name that distributions give to the list of hashes of all files in a directory.
const SUMS_NAME: &str = "SHA256SUMS";
/// The suffix that is appended to the URL of a file for its Metalink.
const METALINK_SUFFIX: &str = ".meta4";
/// The largest size of a leaf list from a server, in bytes: the list of a file of 32 GiB. Lists that may be
/// longer than [`EARLY_LEAVES_MAX`] are requested one after the other, so this bounds the memory for all of
/// them.
pub(super) const OFFERED_LEAVES_MAX: usize = (64 << 20) + HEAD_BYTES;
impl Probe {
    /// Returns whether the probe asks for a leaf list that may be longer than [`EARLY_LEAVES_MAX`].
    pub(super) fn is_long_list(&self) -> bool {
        let is_early = self.what == RequestKind::Document { max: EARLY_LEAVES_MAX };
        self.kind == ProbeKind::Leaves && !is_early
    }

    /// Returns the deadline of a leaf list that has begun to arrive. Each byte that arrives extends the
    /// deadline, in proportion to the length of the list.
    pub(super) fn leaves_until(&self) -> Option<Time> {
        let begun = self.begun.filter(|_| self.kind == ProbeKind::Leaves)?;
        // Before the head is complete, the length of the list is unknown and counts as unlimited.
        let all = leaf_list::announced(&self.body).map_or(u64::MAX, |id| LeafList::encoded_len(id.length));
        let part = u128::from(LEAVES_FOR.as_nanos()) * self.body.len() as u128 / u128::from(all.max(1));
        let paced = Span::from_nanos(u64::try_from(part).unwrap_or(u64::MAX).min(LEAVES_FOR.as_nanos()));
        Some(begun + paced.max(PACE_FROM))
    }
}

impl Discovery<'_> {
    /// Checks the head of a leaf list as soon as it is complete, and cancels the request if the list is of no
    /// use. `more` is the number of bytes that have just arrived.
    pub(super) fn look_at_head(&mut self, id: FetchId, more: usize) {
        let Some(probe) = self.asking.asked.get(&id).filter(|probe| probe.kind == ProbeKind::Leaves) else {
            return;
        };
        let had = probe.body.len() - more;
        if had >= HEAD_BYTES || probe.body.len() < HEAD_BYTES {
            return;
        }
        let wanted = self.wanted.said.id;
        let is_useless = match leaf_list::announced(&probe.body) {
            Ok(of) => wanted.is_some_and(|id| id != of),
            Err(e) => {
                self.says.notices.push(format!("a leaf list is left out: {e}"));
                true
            }
        };
        if is_useless {
            self.asking.commands.push(Command::Cancel(id));
            self.asking.asked.remove(&id);
        }
    }

    /// Looks for hashes beside the first URLs, because the user gave no Metalink.
    pub(super) fn look_beside(&mut self) {
        let Some(first) = self.mirrors.first().map(|mirror| mirror.url.clone()) else { return };
        // If the content id is known, any server's leaf list will do, because it must give that root hash.
        // Otherwise the list itself would tell which bytes are right: then only the first URL's server is
        // asked at first, and no server if the user says which bytes are right.
        let is_wanted = self.wants_claims();
        let askable = if self.wanted.said.id.is_some() { BESIDE_MAX } else { usize::from(is_wanted) };
        let lists =
            self.mirrors.iter().take(askable).filter_map(|mirror| mirror.url.sibling(leaf_list::SUFFIX).ok());
        self.beside.lists_of_leaves.extend(lists.enumerate().map(|(number, url)| (url, Some(number))));
        if let Ok(url) = first.sibling(leaf_list::B3SUM_SUFFIX)
            && is_wanted
        {
            self.ask(ProbeKind::Line, &url, RequestKind::Document { max: LINE_MAX }, Some(0));
        }
        // Such a list proves nothing unless the user trusts it, so it is only offered.
        if is_wanted
            && self.is_hashless()
            && first.file_name().is_some()
            && let Ok(url) = first.join(SUMS_NAME)
        {
            self.ask(ProbeKind::Sums, &url, RequestKind::Document { max: SUMS_MAX }, Some(0));
        }
        if let Ok(url) = first.sibling(METALINK_SUFFIX) {
            self.ask(ProbeKind::List, &url, RequestKind::Document { max: METALINK_MAX }, Some(0));
        }
    }

    /// Looks for documents of this kind beside the URLs of the other voters, after one was found beside a
    /// URL, to learn whether servers agree. If nothing lies beside the first URL, the other servers are not
    /// asked, because usually they have nothing either.
    pub(super) fn look_beside_others(&mut self, kind: ProbeKind) {
        if !self.wants_claims() || self.beside.asked_of_all.contains(&kind) {
            return;
        }
        self.beside.asked_of_all.push(kind);
        let suffix = match kind {
            ProbeKind::Leaves => leaf_list::SUFFIX,
            ProbeKind::Line => leaf_list::B3SUM_SUFFIX,
            ProbeKind::List => METALINK_SUFFIX,
            ProbeKind::Mirror(_) | ProbeKind::Signature | ProbeKind::Sums => return,
        };
        let firsts = self.first_of_use(|number| self.mirrors[number].named);
        for number in firsts.into_iter().filter(|number| *number > 0).take(BESIDE_MAX - 1) {
            let Ok(url) = self.mirrors[number].url.sibling(suffix) else { continue };
            let max = if kind == ProbeKind::Line { LINE_MAX } else { METALINK_MAX };
            match kind {
                // `ask_more` requests the list, with a limit that follows from the file's length.
                ProbeKind::Leaves => self.beside.lists_of_leaves.push((url, Some(number))),
                _ => self.ask(kind, &url, RequestKind::Document { max }, Some(number)),
            }
        }
    }

    /// Takes over a leaf list that has arrived, from the server of URL `by` or (`is_users`) from the user. If
    /// the root hash is known, the list is used only if it gives this root hash. If the content id is known
    /// and the list is used, the requests for other lists are cancelled.
    pub(super) fn leaves_came(&mut self, bytes: &[u8], by: Option<usize>, is_users: bool) {
        let root = self.wanted.said.id.map(|id| id.root);
        let root = root.or_else(|| self.documents.metalink.as_ref()?.hashes.blake3);
        match (LeafList::parse(bytes), by) {
            // This list gives another root hash; another list may give the right one.
            (Ok(leaves), _) if root.is_some_and(|root| root != leaves.id().root) => {}
            (Ok(leaves), _) if root.is_some() || is_users => self.documents.leaves = Some(leaves),
            (Ok(leaves), Some(number)) => self.documents.told.push((number, leaves.into())),
            // A Metalink of the user names this leaf list, but gives no root hash that the list could be
            // checked against, so the list is not used.
            (Ok(_), None) => {}
            (Err(e), _) => self.says.notices.push(format!("a leaf list is left out: {e}")),
        }
        if self.wanted.said.id.is_some() && self.documents.leaves.is_some() {
            let more: Vec<FetchId> = self
                .asking
                .asked
                .iter()
                .filter(|(_, q)| q.kind == ProbeKind::Leaves)
                .map(|(id, _)| *id)
                .collect();
            for id in more {
                self.asking.commands.push(Command::Cancel(id));
                self.asking.asked.remove(&id);
            }
            self.beside.lists_of_leaves.clear();
            self.beside.long_leaves.clear();
        }
    }
}
