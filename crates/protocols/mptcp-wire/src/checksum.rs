//! The Internet checksum (RFC 1071) and what Multipath TCP makes of it (RFC 8684 section 3.3.1).

/// A checksum being computed: the ones' complement sum of 16-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternetChecksum {
    sum: u64,
    /// Whether an odd number of bytes was added.
    is_odd: bool,
}

impl InternetChecksum {
    /// Adds bytes, which continue those before.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.is_odd
            && let Some((&low, rest)) = bytes.split_first()
        {
            self.sum += u64::from(low);
            (self.is_odd, bytes) = (false, rest);
        }
        // Four bytes at once: 2³² of them fit into the sum.
        let mut chunks = bytes.chunks_exact(4);
        for chunk in &mut chunks {
            if let Ok(word) = chunk.try_into() {
                self.sum += u64::from(u32::from_be_bytes(word));
            }
        }
        self.fold();
        let mut rest = chunks.remainder().iter();
        while let Some(&high) = rest.next() {
            self.sum += u64::from(high) << 8;
            match rest.next() {
                Some(&low) => self.sum += u64::from(low),
                None => self.is_odd = true,
            }
        }
    }

    fn fold(&mut self) {
        while self.sum > 0xffff {
            self.sum = (self.sum & 0xffff) + (self.sum >> 16);
        }
    }

    /// The checksum: the complement of the sum. Over data that includes a right checksum it is 0.
    #[must_use]
    pub fn finish(mut self) -> u16 {
        self.fold();
        !(self.sum as u16)
    }
}

/// The checksum of a mapping: over a pseudo-header of its numbers, then the data. The data sequence number
/// counts in full, however much of it is sent; a DATA_FIN counts in `data_bytes` and has no byte.
#[must_use]
pub fn dss_checksum<'a>(
    data_seq: u64,
    subflow_seq: u32,
    data_bytes: u16,
    data: impl IntoIterator<Item = &'a [u8]>,
) -> u16 {
    let mut checksum = dss_pseudo_header(data_seq, subflow_seq, data_bytes);
    for part in data {
        checksum.add(part);
    }
    checksum.finish()
}

/// The checksum of [`dss_checksum`] before the data, for data that comes in pieces.
#[must_use]
pub fn dss_pseudo_header(data_seq: u64, subflow_seq: u32, data_bytes: u16) -> InternetChecksum {
    let mut checksum = InternetChecksum::default();
    checksum.add(&data_seq.to_be_bytes());
    checksum.add(&subflow_seq.to_be_bytes());
    checksum.add(&data_bytes.to_be_bytes());
    checksum
}
