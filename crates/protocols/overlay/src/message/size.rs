//! The size of messages: what all of them have, and how many elements of a list fit into one.

/// The most bytes of a message: with two frame headers it fits where an mmTP request fits.
pub const MESSAGE_MAX: usize = 1_150;
/// The bytes before the fields of a message.
pub(super) const PREFIX: usize = 12;

/// Writes the number of elements, and as many elements as a message has room for.
pub(super) fn put_as_fit<T>(out: &mut Vec<u8>, all: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    let count_at = out.len();
    out.push(0);
    for one in all {
        let before = out.len();
        put(out, one);
        if out.len() > MESSAGE_MAX {
            out.truncate(before);
            break;
        }
        out[count_at] += 1;
    }
}
