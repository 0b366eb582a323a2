//! The list of publications that a rendezvous tells page by page: the question for a page, and the page.
//!
//! A page says where the next one begins. The rendezvous keeps nothing between two pages: the
//! [`Position`] comes back with the next question, and what it holds is all that is needed to go on.

use super::size::{MESSAGE_MAX, PREFIX, put_as_fit};
use crate::bytes::{FieldError, Reader};
use crate::publication::{Key, Scope, SignedPublication};

/// The bytes of a page beside its position and its publications: whether there is a position, and the number
/// of publications.
const PAGE_HEAD: usize = 2;

/// A place in the list of publications. The default is its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The part of the list that the page is from, as the store of the rendezvous numbers it. It is 0 if the
    /// rendezvous keeps the list itself.
    pub cursor: u64,
    /// The page begins behind this key in the order of the part; `None`: it begins with the first one.
    pub after: Option<Key>,
}

/// The question for a page of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// The scope whose publications are asked for; `None`: those of all scopes.
    pub scope: Option<Scope>,
    /// The place where the page begins.
    pub from: Position,
}

/// A page of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The place where the next page begins; `None` if this page is the last one.
    pub next: Option<Position>,
    /// The publications of the page. A page that is not the last one may have none.
    pub publications: Vec<SignedPublication>,
}

impl Position {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.cursor.to_be_bytes());
        out.push(u8::from(self.after.is_some()));
        if let Some(key) = &self.after {
            key.put(out);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        let (cursor, has_key) = (reader.u64()?, reader.flag()?);
        let after = if has_key { Some(Key::read(reader)?) } else { None };
        Ok(Self { cursor, after })
    }

    /// Returns the number of bytes of the position in a message.
    fn len(&self) -> usize {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        bytes.len()
    }
}

impl PageRequest {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.scope.is_some()));
        if let Some(scope) = &self.scope {
            scope.put(out);
        }
        self.from.put(out);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        let scope = if reader.flag()? { Some(Scope::read(reader)?) } else { None };
        Ok(Self { scope, from: Position::read(reader)? })
    }
}

impl Page {
    /// Makes a page of the first of `found` that fit into a message. They are of the part `cursor` of the
    /// list, in order. If all of them fit, the next page begins at `rest`.
    pub(crate) fn of<'a>(
        found: impl IntoIterator<Item = &'a SignedPublication>,
        cursor: u64,
        rest: Option<Position>,
    ) -> Self {
        let rest_bytes = rest.as_ref().map_or(0, Position::len);
        let mut page = Self { next: rest, publications: Vec::new() };
        let mut used = PREFIX + PAGE_HEAD;
        let mut last = None;
        for signed in found {
            let mut bytes = Vec::new();
            signed.put(&mut bytes);
            let here = Position { cursor, after: Some(Key::of(&signed.publication)) };
            used += bytes.len();
            // Whichever position ends the page, there is room for it.
            if used + here.len().max(rest_bytes) > MESSAGE_MAX {
                page.next = last;
                return page;
            }
            page.publications.push(signed.clone());
            last = Some(here);
        }
        page
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.next.is_some()));
        if let Some(next) = &self.next {
            next.put(out);
        }
        put_as_fit(out, &self.publications, |out, signed| signed.put(out));
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        let next = if reader.flag()? { Some(Position::read(reader)?) } else { None };
        let count = reader.byte()?;
        let publications = (0..count).map(|_| SignedPublication::read(reader)).collect::<Result<_, _>>()?;
        Ok(Self { next, publications })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Body, Message};
    use crate::publication::LABEL_MAX;
    use crate::publication::tests::{key, publication};

    fn signed(label_bytes: usize, number: u16) -> SignedPublication {
        let mut it = publication(&format!("s/{}", "x".repeat(label_bytes)));
        it.port = number;
        key().sign("d", it)
    }

    /// Follows the pages of a list, and returns all publications and the number of pages.
    fn all_pages(list: &[SignedPublication]) -> (Vec<SignedPublication>, usize) {
        let (mut told, mut pages, mut from) = (Vec::new(), 0, 0);
        loop {
            let page = Page::of(&list[from..], 7, None);
            let bytes = Message { call: 1, body: Body::Listed(page.clone()) }.to_bytes();
            assert!(bytes.len() <= MESSAGE_MAX);
            let read = Message::parse(&bytes).map(|message| message.body);
            assert_eq!(read, Ok(Body::Listed(page.clone())), "all of it is in the message");
            pages += 1;
            from += page.publications.len();
            assert!(!page.publications.is_empty(), "a page has one at least");
            told.extend(page.publications);
            match page.next {
                None => return (told, pages),
                Some(next) => assert_eq!(next.after, told.last().map(|it| Key::of(&it.publication))),
            }
        }
    }

    #[test]
    fn pages_have_what_fits_and_together_all() {
        for label_bytes in [1, 20, LABEL_MAX] {
            let list: Vec<_> = (0..40).map(|number| signed(label_bytes, number)).collect();
            let (told, pages) = all_pages(&list);
            assert_eq!(told, list);
            assert!(pages >= 40 / 9, "{pages}");
        }
    }

    #[test]
    fn there_is_room_for_the_place_behind_all() {
        let far = Key::of(&signed(LABEL_MAX, 9).publication);
        let rest = Position { cursor: u64::MAX, after: Some(far) };
        let list: Vec<_> = (0..9).map(|number| signed(1, number)).collect();
        for count in 0..list.len() {
            let page = Page::of(&list[..count], 3, Some(rest.clone()));
            let bytes = Message { call: 1, body: Body::Listed(page.clone()) }.to_bytes();
            assert!(bytes.len() <= MESSAGE_MAX);
            let is_all = page.publications.len() == count;
            assert_eq!(page.next == Some(rest.clone()), is_all, "{count}");
            assert_eq!(Message::parse(&bytes).map(|message| message.body), Ok(Body::Listed(page)));
        }
    }
}
