//! Fields of fixed widths, read one after the other. All integers are big-endian.

/// Why bytes are not the expected fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldError {
    /// The bytes are too few.
    Truncated,
    /// A field has a value that makes no sense.
    Value,
}

/// A reader, which holds the bytes that have not been read yet.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], FieldError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(FieldError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FieldError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(FieldError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, FieldError> {
        Ok(self.take::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FieldError> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FieldError> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FieldError> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, FieldError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FieldError::Value),
        }
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, FieldError> {
        let count = self.byte()?;
        std::str::from_utf8(self.bytes(usize::from(count))?).map_err(|_| FieldError::Value)
    }
}
