//! Documents that are made when they are requested. Those that take long to make are kept for further
//! requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::monitor::lock;

/// The largest number of bytes of documents in memory, being sent or kept. Beyond it, the answer is 503: come
/// back later.
const BYTES_MAX: usize = 64 << 20;
/// The largest number of bytes of documents that are kept; `KEPT_MAX` is the largest number of documents.
const KEPT_BYTES_MAX: usize = 32 << 20;
const KEPT_MAX: usize = 64;

/// A document. Its bytes are counted until it is dropped.
#[derive(Clone)]
pub(crate) struct Text(Arc<Counted>);

struct Counted {
    bytes: Vec<u8>,
    /// The counter of the bytes of all documents.
    sum: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Text {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Returns whether the document may be sent. If it is the only one, it may always be sent.
    pub(crate) fn is_permitted(&self) -> bool {
        self.0.sum.load(Ordering::Relaxed) - self.0.bytes.len() <= BYTES_MAX
    }
}

/// The counter of all documents of a site, and the documents that are kept, the latest first.
#[derive(Default)]
pub(crate) struct Texts {
    sum: Arc<AtomicUsize>,
    kept: Mutex<VecDeque<(Vec<u8>, Text)>>,
}

impl Texts {
    /// Makes a document for one request.
    pub(crate) fn make(&self, text: String) -> Text {
        let (bytes, sum) = (text.into_bytes(), Arc::clone(&self.sum));
        sum.fetch_add(bytes.len(), Ordering::Relaxed);
        Text(Arc::new(Counted { bytes, sum }))
    }

    /// Returns the document with this key. If it is not kept, `make` makes it; only one is made at a time.
    ///
    /// # Errors
    /// The errors of `make`.
    pub(crate) fn kept<E>(&self, key: Vec<u8>, make: impl FnOnce() -> Result<String, E>) -> Result<Text, E> {
        let mut kept = lock(&self.kept);
        let found = kept.iter().position(|(its, _)| *its == key).and_then(|at| kept.remove(at));
        let text = match found {
            Some((_, text)) => text,
            None => self.make(make()?),
        };
        kept.push_front((key, text.clone()));
        let mut room = KEPT_BYTES_MAX;
        let fits = |(key, text): &(Vec<u8>, Text)| {
            let bytes = key.len() + text.bytes().len();
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        };
        let count = kept.iter().take(KEPT_MAX).map(fits).take_while(|fits| *fits).count();
        kept.truncate(count);
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of these documents are made when they are requested in turn; each has `len` bytes.
    fn made(texts: &Texts, keys: &[u8], len: usize) -> usize {
        let mut made = 0;
        for key in keys {
            let text = texts.kept(vec![*key], || {
                made += 1;
                Ok::<_, ()>(char::from(*key).to_string().repeat(len))
            });
            let text = text.expect("it can be made");
            assert!(text.bytes().len() == len && text.bytes().iter().all(|byte| byte == key));
        }
        made
    }

    #[test]
    fn what_was_asked_for_lately_is_not_made_again() {
        let texts = Texts::default();
        assert_eq!(made(&texts, b"aabab", 1_000), 2);
        assert_eq!(texts.kept(b"none".to_vec(), || Err("why")).err(), Some("why"));
        assert_eq!(made(&texts, b"ab", 1_000), 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let texts = Texts::default();
        let many: Vec<u8> = (0..100).collect();
        assert_eq!(made(&texts, &many, 10), 100);
        assert_eq!(texts.sum.load(Ordering::Relaxed), KEPT_MAX * 10);
        assert_eq!(made(&texts, &[99, 99 - KEPT_MAX as u8], 10), 1);
        // Only two of these documents fit at a time. A document that does not fit alone is not kept.
        let large = KEPT_BYTES_MAX / 2 - 1;
        assert_eq!(made(&texts, b"xyxz", large), 3);
        assert!(texts.sum.load(Ordering::Relaxed) <= KEPT_BYTES_MAX);
        assert_eq!(made(&texts, b"++", KEPT_BYTES_MAX + 1), 2);
        assert_eq!(texts.sum.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_sent_is_counted_until_it_is_dropped() {
        let texts = Texts::default();
        let first = texts.make("x".repeat(BYTES_MAX));
        assert!(first.is_permitted(), "one is always possible");
        let second = texts.make("y".into());
        assert!(second.is_permitted() && first.is_permitted());
        let third = texts.make("z".into());
        assert!(!third.is_permitted(), "come back later");
        drop(first);
        assert!(third.is_permitted());
    }
}
