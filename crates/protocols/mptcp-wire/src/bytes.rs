//! Reads and writes big-endian numbers in byte strings of any length.

/// Reads from the front of a byte string. Each method returns `None` if too few bytes are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }
    pub(crate) const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Writes one option: kind and length first; `finish` fills in the length.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.out.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }
    /// Sets the second byte to the number of bytes that were written, and returns that number.
    pub(crate) fn finish(self) -> Option<usize> {
        *self.out.get_mut(1)? = u8::try_from(self.len).ok()?;
        Some(self.len)
    }
}
