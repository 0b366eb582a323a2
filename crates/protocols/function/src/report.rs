//! Says what a function has done: lines `NAME NUMBER`.

/// The text of a report, in a place of fixed size. A line that has no room is left out.
#[derive(Debug)]
pub struct Report<'a> {
    place: &'a mut [u8],
    len: usize,
}

impl<'a> Report<'a> {
    /// Begins a report.
    #[must_use]
    pub const fn new(place: &'a mut [u8]) -> Self {
        Self { place, len: 0 }
    }

    /// Returns the length of the text, bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether nothing was said.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a line. The name has no space.
    pub fn number(&mut self, name: &str, mut number: u64) {
        let (mut digits, mut at) = ([0_u8; 20], 20);
        while number > 0 || at == digits.len() {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        let before = self.len;
        if !(self.push(name.as_bytes()) && self.push(b" ") && self.push(&digits[at..]) && self.push(b"\n")) {
            self.len = before;
        }
    }

    /// Adds bytes if they have room.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let place = self.place.get_mut(self.len..self.len + bytes.len());
        let Some(place) = place else { return false };
        place.copy_from_slice(bytes);
        self.len += bytes.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_or_missing() {
        let mut place = [0; 20];
        let mut report = Report::new(&mut place);
        assert!(report.is_empty());
        report.number("a", 0);
        report.number("flows", 1_234_567_890_123);
        report.number("b", 305);
        assert_eq!(report.len(), 10);
        assert_eq!(&place[..10], b"a 0\nb 305\n");
    }
}
