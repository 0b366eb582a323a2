//! Names the settings that messages mention, by which a reader can change the outcome.

use std::borrow::Cow;

macro_rules! hints {
    ($($(#[$doc:meta])+ $hint:ident = $name:literal,)+) => {
        /// A setting that a message mentions: a setting of this crate or of `anabranch-network`. Errors,
        /// notices and warnings have the name of its method in back-quotes: `` choose another `to_file` ``. A
        /// program whose users set it in another way [replaces](Self::replace) the name by its own, as the
        /// `anabranch` command does by its options. A program may match on all hints: when one is added, the
        /// compiler reports that the program has no name for it yet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Hint {
            $($(#[$doc])+ $hint,)+
        }

        impl Hint {
            /// All hints.
            pub const ALL: &'static [Self] = &[$(Self::$hint),+];

            /// Returns the name of the setting in messages, where it stands between back-quotes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$hint => $name,)+
                }
            }
        }
    };
}

hints! {
    /// [`Get::ca_file`](crate::Get::ca_file).
    CaFile = "ca_file",
    /// [`Get::checksum`](crate::Get::checksum).
    Checksum = "checksum",
    /// [`Get::class`](crate::Get::class).
    Class = "class",
    /// [`Get::each`](crate::Get::each).
    Each = "each",
    /// [`Get::from_source`](crate::Get::from_source).
    FromSource = "from_source",
    /// The [`Get`](crate::Get) that failed: the message says to run this request again.
    Get = "Get",
    /// [`Get::groups`](crate::Get::groups).
    Groups = "groups",
    /// [`Get::header`](crate::Get::header).
    Header = "header",
    /// [`Serve::http`](crate::Serve::http).
    Http = "http",
    /// The file with the key of a member of a network:
    /// [`Place::with_key`](crate::network::Place::with_key).
    Key = "key",
    /// The keyring, by which signatures are checked: [`Get::keyring`](crate::Get::keyring).
    Keyring = "keyring",
    /// [`Get::limit`](crate::Get::limit).
    Limit = "limit",
    /// [`Serve::listen`](crate::Serve::listen).
    Listen = "listen",
    /// [`MirrorList::make`](crate::mirror_list::MirrorList::make).
    MakeMirrorList = "MirrorList::make",
    /// [`Get::netrc`](crate::Get::netrc).
    Netrc = "netrc",
    /// The node of a network that this machine represents: [`Place::new`](crate::network::Place::new).
    Node = "node",
    /// [`Download::overwrite`](crate::Download::overwrite).
    Overwrite = "overwrite",
    /// [`MakeMirrorList::piece_bytes`](crate::mirror_list::MakeMirrorList::piece_bytes).
    PieceBytes = "piece_bytes",
    /// [`Get::proxy`](crate::Get::proxy).
    Proxy = "proxy",
    /// [`Serve::publish`](crate::Serve::publish).
    Publish = "publish",
    /// [`Get::read`](crate::Get::read).
    Read = "read",
    /// The file or the server where a rendezvous of a network keeps its state.
    State = "state",
    /// [`Get::to_directory`](crate::Get::to_directory).
    ToDirectory = "to_directory",
    /// [`Get::to_file`](crate::Get::to_file).
    ToFile = "to_file",
    /// [`Get::user`](crate::Get::user).
    User = "user",
    /// [`Get::via`](crate::Get::via).
    Via = "via",
}

impl Hint {
    /// Returns the settings that a message names, in their order.
    pub fn named_in(message: &str) -> impl Iterator<Item = Self> {
        pieces(message).filter_map(|(_, hint)| hint)
    }

    /// Replaces each setting that a message names, including the back-quotes, by the text that `name` returns
    /// for it.
    ///
    /// ```
    /// use anabranch::Hint;
    ///
    /// let said = Hint::replace("f is there: choose another `to_file`", |hint| match hint {
    ///     Hint::ToFile => "name",
    ///     other => other.name(),
    /// });
    /// assert_eq!(said, "f is there: choose another name");
    /// ```
    pub fn replace(message: &str, name: impl Fn(Self) -> &'static str) -> Cow<'_, str> {
        if Self::named_in(message).next().is_none() {
            return Cow::Borrowed(message);
        }
        Cow::Owned(pieces(message).flat_map(|(text, hint)| [text, hint.map_or("", &name)]).collect())
    }
}

/// Splits a message into pieces, each with the setting that is named after it.
fn pieces(message: &str) -> impl Iterator<Item = (&str, Option<Hint>)> {
    let mut rest = Some(message);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let named = text.match_indices('`').find_map(|(at, _)| {
            let (name, after) = text[at + 1..].split_once('`')?;
            let hint = Hint::ALL.iter().copied().find(|hint| hint.name() == name)?;
            Some((&text[..at], hint, after))
        });
        let Some((before, hint, after)) = named else { return Some((text, None)) };
        rest = Some(after);
        Some((before, Some(hint)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_in_back_quotes_stay() {
        let replace = |message| Hint::replace(message, |_| "--to");
        assert_eq!(replace("`to_file` or `via`"), "--to or --to");
        assert_eq!(replace("a`b` and `via`` `c"), "a`b` and --to` `c");
        assert_eq!(replace("it`s `to_file`, naïve`"), "it`s --to, naïve`");
        assert!(matches!(replace("`to_files`"), Cow::Borrowed("`to_files`")));
    }

    #[test]
    fn all_are_there_once() {
        for (n, hint) in Hint::ALL.iter().copied().enumerate() {
            assert_eq!(Hint::named_in(&format!("`{}`", hint.name())).collect::<Vec<_>>(), [hint]);
            assert!(Hint::ALL[..n].iter().all(|before| *before != hint), "{hint:?}");
        }
    }
}
