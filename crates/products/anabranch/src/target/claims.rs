//! Hashes that servers state for a file for which nobody vouches, and whether they leave the file in doubt.

use std::collections::BTreeMap;

use anabranch_mirror::digests::Digests;
use anabranch_mirror::variants::Ballot;
use data_encoding::HEXLOWER;

/// The hashes of the whole file that one server states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The name of the server in messages.
    pub(crate) by: String,
    /// The origin of the server. Each origin has one vote.
    pub(crate) origin: String,
    pub(crate) root: Option<[u8; 32]>,
    pub(crate) digests: Digests,
}

/// The result of comparing the hashes that servers state with the file that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dissent {
    /// Notices about the servers whose hashes differ from the file's, one sentence each.
    pub(crate) notices: Vec<String>,
    /// The hashes that all servers state, if it is undecided which of them are right.
    pub(crate) contest: Option<String>,
}

impl Claim {
    fn contradicts(&self, root: &[u8; 32], digests: &Digests) -> bool {
        self.root.is_some_and(|told| told != *root) || self.digests.contradict(digests)
    }

    /// Whether any hash of the claim can be compared with a known hash of the file.
    fn is_comparable(&self, digests: &Digests) -> bool {
        let is_both = |(told, found): (Digests, Digests)| !told.is_empty() && !found.is_empty();
        self.root.is_some() || self.digests.each().into_iter().zip(digests.each()).any(is_both)
    }

    /// Returns the hashes of the claim as text: "BLAKE3 HEX", "SHA-256 HEX".
    fn hashes(&self) -> String {
        let root = self.root.map(|root| format!("BLAKE3 {}", HEXLOWER.encode(&root)));
        let digests = Some(self.digests.to_string()).filter(|_| !self.digests.is_empty());
        root.into_iter().chain(digests).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the kinds of digests that the `claims` contain.
pub(crate) fn kinds(claims: &[Claim]) -> Digests {
    claims.iter().fold(Digests::default(), |all, claim| all.or(claim.digests))
}

/// Compares the `claims` of servers that the user named with the hashes of the file that arrived.
///
/// Every server that states other hashes is named in a notice. The file is in doubt if at least two servers
/// state comparable hashes and no more than half of them state exactly this file's: a single server that is
/// wrong about itself must not keep the file of others from its place.
pub(crate) fn hold(claims: &[Claim], root: &[u8; 32], digests: &Digests) -> Dissent {
    // For each origin, whether all its claims agree with the file.
    let mut says: BTreeMap<&str, bool> = BTreeMap::new();
    let mut notices = Vec::new();
    for claim in claims.iter().filter(|claim| claim.is_comparable(digests)) {
        let is_other = claim.contradicts(root, digests);
        *says.entry(&claim.origin).or_insert(true) &= !is_other;
        if is_other {
            let (by, hashes) = (&claim.by, claim.hashes());
            notices.push(format!("{by} itself says that the file has the {hashes}, and what came has not"));
        }
    }
    let is_contested = says.len() > 1 && Ballot::of(says.values(), 0) != Ballot::Majority(&true);
    let contest = is_contested.then(|| {
        let each = claims.iter().map(|claim| format!("{} itself says {}", claim.by, claim.hashes()));
        each.collect::<Vec<_>>().join("; ")
    });
    Dissent { notices, contest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(origin: &str, root: u8) -> Claim {
        let digests = Digests::default();
        Claim { by: origin.into(), origin: origin.into(), root: Some([root; 32]), digests }
    }

    #[test]
    fn who_is_in_doubt() {
        let none = Digests::default();
        let is_contested = |roots: &[(&str, u8)]| {
            let claims: Vec<Claim> = roots.iter().map(|(origin, root)| claim(origin, *root)).collect();
            hold(&claims, &[1; 32], &none).contest.is_some()
        };
        assert!(!is_contested(&[]) && !is_contested(&[("a", 1)]) && !is_contested(&[("a", 1), ("b", 1)]));
        assert!(!is_contested(&[("a", 2)]), "one alone that is wrong about itself");
        assert!(!is_contested(&[("a", 2), ("a", 3), ("a", 1)]), "it has one vote, whatever it says");
        assert!(is_contested(&[("a", 1), ("b", 2)]), "two that differ");
        assert!(is_contested(&[("a", 3), ("b", 2)]), "what came is neither's");
        assert!(!is_contested(&[("a", 1), ("b", 2), ("c", 1)]), "one of three decides nothing");
        assert!(is_contested(&[("a", 1), ("b", 2), ("c", 2)]), "two of three say something else");
        assert!(is_contested(&[("a", 1), ("b", 2), ("b", 1)]), "who says two things says something else");
    }

    #[test]
    fn what_was_not_looked_at_counts_for_nothing() {
        let digests = Digests::of_sha256([7; 32]);
        let told = Claim { root: None, digests, ..claim("a", 0) };
        let dissent = hold(&[told.clone(), claim("b", 2)], &[1; 32], &Digests::default());
        assert_eq!((dissent.notices.len(), dissent.contest), (1, None));
        let dissent = hold(&[told, claim("b", 2)], &[1; 32], &digests);
        let says =
            format!("a itself says SHA-256 {}; b itself says BLAKE3 {}", "07".repeat(32), "02".repeat(32));
        assert_eq!(dissent.contest, Some(says));
    }
}
