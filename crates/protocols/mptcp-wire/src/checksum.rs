//! The Internet checksum (RFC 1071) and the checksum of a DSS, which uses it (RFC 8684 section 3.3.1).

/// A checksum being computed: the ones' complement sum of 16-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternetChecksum {
    sum: u64,
    /// Whether the number of bytes added so far is odd.
    is_odd: bool,
}

impl InternetChecksum {
    /// Adds bytes that follow those added before.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.is_odd
            && let Some((&low, rest)) = bytes.split_first()
        {
            self.sum += u64::from(low);
            (self.is_odd, bytes) = (false, rest);
        }
        // Words of four bytes are added at once; 2³² of them fit into the sum.
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

    /// Returns the checksum, the complement of the sum. Over data that includes a right checksum it is 0.
    #[must_use]
    pub fn finish(mut self) -> u16 {
        self.fold();
        !(self.sum as u16)
    }
}

/// Returns the checksum of a mapping: over a pseudo-header of its numbers, then the data. The data sequence
/// number counts in full, even if only 32 bits of it are sent. A DATA_FIN counts in `data_bytes` and has no
/// byte.
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

/// Returns the checksum of [`dss_checksum`] before the data is added, for data that comes in pieces.
#[must_use]
pub fn dss_pseudo_header(data_seq: u64, subflow_seq: u32, data_bytes: u16) -> InternetChecksum {
    let mut checksum = InternetChecksum::default();
    checksum.add(&data_seq.to_be_bytes());
    checksum.add(&subflow_seq.to_be_bytes());
    checksum.add(&data_bytes.to_be_bytes());
    checksum
}
