//! What servers themselves say of the file, and which of their statements count.
//!
//! A server that sends wrong bytes can send wrong hashes too. So a server's hash counts only if more than
//! half of the origins that the user named and that answered give the same value. If the user named only one
//! origin, that origin is its own authority, also for the mirrors that it introduces. Statements of servers
//! that the user did not name never count.

use std::collections::BTreeSet;

use anabranch_mirror::digests::{DIGEST_KINDS, Digests};
use anabranch_mirror::http_fields;
use anabranch_mirror::leaf_list::LeafList;
use anabranch_mirror::metalink::{File, Hashes};
use anabranch_mirror::variants::Ballot;
use anabranch_mirror::verified_pool::can_check_pieces;

use super::resolution::without_pieces;
use super::told::Told;
use super::{Discovery, Expected};
use crate::VouchedBy;
use crate::get::origin::{host, origin, origin_text};
use crate::target::Claim;

/// A value that more than half of the voters give, and the hosts of these voters.
type Quorum<T> = (T, Vec<String>);

impl Discovery<'_> {
    /// Whether neither a hash of the user's nor a signature tells which bytes are right, so that the files of
    /// mirrors are only compared with each other.
    pub(super) fn is_hashless(&self) -> bool {
        let Expected { id, digests } = self.wanted.said;
        let is_listed = |file: &File| {
            let Hashes { blake3, digests } = &file.hashes;
            blake3.is_some() || !digests.is_empty() || file.pieces.is_some()
        };
        let is_listed = self.documents.metalink.as_ref().is_some_and(is_listed);
        id.is_none() && digests.is_empty() && !is_listed && !self.documents.signatures.are_wanted()
    }

    /// Whether hashes that servers give would be used: the user gives no content id, checksum or Metalink.
    pub(super) fn wants_claims(&self) -> bool {
        let Expected { id, digests } = self.wanted.said;
        id.is_none() && digests.is_empty() && self.documents.metalink.is_none()
    }

    /// Returns the indices of the URLs that vote: for each origin, the first URL that the user named and for
    /// which `is_of_use` holds. If there is none, chooses among the URLs that the user did not name in the
    /// same way.
    pub(super) fn first_of_use(&self, is_of_use: impl Fn(usize) -> bool) -> Vec<usize> {
        let all = |named: bool| (0..self.mirrors.len()).filter(move |n| self.mirrors[*n].named == named);
        let of = |named: bool| {
            let mut origins = BTreeSet::new();
            let useful = all(named).filter(|number| is_of_use(*number));
            useful.filter(|number| origins.insert(origin_text(&self.mirrors[*number].url))).collect()
        };
        let named: Vec<usize> = of(true);
        if named.is_empty() { of(false) } else { named }
    }

    /// Returns the indices of the URLs that the user named at the origin of URL `number`.
    fn of_same_origin(&self, number: usize) -> impl Iterator<Item = usize> {
        let own = origin(&self.mirrors[number].url);
        (0..self.mirrors.len())
            .filter(move |other| self.mirrors[*other].named && origin(&self.mirrors[*other].url) == own)
    }

    /// Returns the value that more than half of the voters give. `of` reads the values that the server of a
    /// URL gives. An origin that gives two different values counts as silent.
    fn quorum<T: PartialEq + Clone>(&self, of: impl Fn(&Self, usize) -> Vec<T>) -> Option<Quorum<T>> {
        let is_heard = |number: usize| self.mirrors[number].named && self.mirrors[number].head.is_some();
        let voters = self.first_of_use(is_heard);
        let mut said: Vec<(usize, T)> = Vec::new();
        for voter in &voters {
            let mut says = self.of_same_origin(*voter).flat_map(|number| of(self, number));
            let Some(value) = says.next() else { continue };
            if says.all(|other| other == value) {
                said.push((*voter, value));
            }
        }
        let silent = voters.len() - said.len();
        let value = Ballot::of(said.iter().map(|(_, value)| value.clone()), silent).majority()?;
        let hosts =
            said.iter().filter(|(_, its)| *its == value).map(|(voter, _)| host(&self.mirrors[*voter].url));
        let hosts = hosts.collect();
        Some((value, hosts))
    }

    /// Returns what the server of URL `number` says, except statements about a file of another length.
    fn told(&self, number: usize, length: u64) -> impl Iterator<Item = &Told> {
        let its = self.documents.told.iter().filter(move |(by, _)| *by == number).map(|(_, told)| told);
        its.filter(move |told| told.length.is_none_or(|its| its == length))
    }

    /// Returns the length on which more than half of the voters agree in documents beside the file.
    pub(super) fn told_length(&self) -> Option<u64> {
        let told = |this: &Self, number: usize| {
            let its = this.documents.told.iter().filter(|(by, _)| *by == number);
            its.filter_map(|(_, told)| told.length).collect()
        };
        self.quorum(told).map(|(length, _)| length)
    }

    /// Returns the hashes on which more than half of the voters agree: the strongest such kind of hash, and
    /// all other kinds on which exactly the same voters agree.
    pub(super) fn told_by_servers(&mut self, length: u64) -> Told {
        let mut told = Told::default();
        let mut by = None::<Vec<String>>;
        let mut are_same = |hosts: &Vec<String>| by.get_or_insert_with(|| hosts.clone()) == hosts;
        let root = self.quorum(|this, n| this.told(n, length).filter_map(|told| told.root).collect());
        told.root = root.filter(|(_, hosts)| are_same(hosts)).map(|(root, _)| root);
        let pieces =
            self.quorum(|this, n| this.told(n, length).filter_map(|told| told.pieces.clone()).collect());
        match pieces.filter(|(_, hosts)| told.root.is_none() || are_same(hosts)) {
            Some((pieces, _)) if !can_check_pieces(pieces.bytes) => {
                self.says.notices.push(without_pieces(pieces.bytes));
            }
            Some((pieces, hosts)) if are_same(&hosts) => told.pieces = Some(pieces),
            _ => {}
        }
        if let Some((digests, hosts)) = self.told_digests(length)
            && are_same(&hosts)
        {
            told.digests = digests;
        }
        Told { by: by.map(VouchedBy::Hosts), ..told }
    }

    /// Returns the digests of the first kind that has a majority, together with the digests of other kinds on
    /// which the same voters agree.
    fn told_digests(&self, length: u64) -> Option<Quorum<Digests>> {
        let mut kinds = (0..DIGEST_KINDS)
            .filter_map(|kind| self.quorum(|this, number| this.digests(number, length, kind).collect()));
        let (mut all, hosts) = kinds.next()?;
        for (other, _) in kinds.filter(|(_, its)| *its == hosts) {
            all = all.or(other);
        }
        Some((all, hosts))
    }

    /// Returns the digests of this kind that the server of URL `number` gives in its `Repr-Digest` header
    /// field (RFC 9530) or in a Metalink.
    fn digests(&self, number: usize, length: u64, kind: usize) -> impl Iterator<Item = Digests> {
        // A header field that describes a file of another length is ignored.
        let head =
            self.mirrors[number].head.as_ref().filter(|head| head.length.is_none_or(|its| its == length));
        let field = head.and_then(|head| head.repr_digest.as_deref());
        let listed = self.told(number, length).map(|told| told.digests);
        let all = field.map(http_fields::repr_digest).into_iter().chain(listed);
        all.map(move |all| all.each()[kind]).filter(|digest| !digest.is_empty())
    }

    /// Takes a leaf list from a server that gives this root hash.
    pub(super) fn told_leaves(&mut self, root: &[u8; 32]) -> Option<LeafList> {
        let mut lists = self.documents.told.iter_mut().map(|(_, told)| &mut told.leaves);
        lists.find_map(|leaves| leaves.take_if(|leaves| leaves.id().root == *root))
    }

    /// Returns all hashes of the whole file that servers of URLs that the user named give, except mirrors
    /// that lost the vote. The file is compared with these hashes at its end.
    pub(super) fn claims(&self, length: u64) -> Vec<Claim> {
        let mut all = Vec::new();
        let counts = |number: &usize| self.mirrors[*number].named && !self.says.outvoted.contains(number);
        for number in (0..self.mirrors.len()).filter(counts) {
            let (by, origin) = (host(&self.mirrors[number].url), origin_text(&self.mirrors[number].url));
            let claim = |root, digests| Claim { by: by.clone(), origin: origin.clone(), root, digests };
            let roots = self.told(number, length).filter_map(|told| told.root);
            all.extend(roots.map(|root| claim(Some(root), Digests::default())));
            let digests = (0..DIGEST_KINDS).flat_map(|kind| self.digests(number, length, kind));
            all.extend(digests.map(|digests| claim(None, digests)));
        }
        all.sort_by(|a, b| (&a.by, &a.origin).cmp(&(&b.by, &b.origin)));
        all.dedup();
        all
    }
}
