//! The parameters of a method, with aria2's words about what is wrong with them.

use serde_json::{Map, Value};

use super::failure::Failure;

/// The parameters of a method, without the token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Params<'a>(&'a [Value]);

impl<'a> Params<'a> {
    pub(super) const fn new(params: &'a [Value]) -> Self {
        Self(params)
    }

    fn required<T>(self, at: usize, read: impl FnOnce(&'a Value) -> Option<T>) -> Result<T, Failure> {
        let missing = || Failure::new(format!("The parameter at {at} is required but missing."));
        read(self.0.get(at).ok_or_else(missing)?).ok_or_else(|| wrong_type(at))
    }

    fn optional<T>(self, at: usize, read: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>, Failure> {
        self.0.get(at).map(|value| read(value).ok_or_else(|| wrong_type(at))).transpose()
    }

    /// Returns a text.
    pub(super) fn text(self, at: usize) -> Result<&'a str, Failure> {
        self.required(at, Value::as_str)
    }

    /// Returns a list.
    pub(super) fn list(self, at: usize) -> Result<&'a [Value], Failure> {
        self.required(at, |value| value.as_array().map(Vec::as_slice))
    }

    /// Returns the texts of a list; what is no text is left out, as aria2 does.
    pub(super) fn texts(self, at: usize) -> Result<Vec<&'a str>, Failure> {
        Ok(self.list(at)?.iter().filter_map(Value::as_str).collect())
    }

    /// Returns the texts of a list that may be missing.
    pub(super) fn texts_if_any(self, at: usize) -> Result<Option<Vec<&'a str>>, Failure> {
        let list = self.optional(at, Value::as_array)?;
        Ok(list.map(|list| list.iter().filter_map(Value::as_str).collect()))
    }

    /// Returns an object.
    pub(super) fn object(self, at: usize) -> Result<&'a Map<String, Value>, Failure> {
        self.required(at, Value::as_object)
    }

    /// Returns an object that may be missing.
    pub(super) fn object_if_any(self, at: usize) -> Result<Option<&'a Map<String, Value>>, Failure> {
        self.optional(at, Value::as_object)
    }

    /// Returns an integer.
    pub(super) fn integer(self, at: usize) -> Result<i64, Failure> {
        self.required(at, Value::as_i64)
    }

    /// Returns an integer of at least `min`.
    pub(super) fn integer_from(self, at: usize, min: i64) -> Result<i64, Failure> {
        let number = self.integer(at)?;
        if number < min {
            return Err(Failure::new(format!(
                "The integer parameter at {at} has invalid value: the value must be greater than or equal to \
                 {min}."
            )));
        }
        Ok(number)
    }

    /// Returns the position of a new job, which may be missing.
    pub(super) fn position(self, at: usize) -> Result<Option<usize>, Failure> {
        match self.optional(at, Value::as_i64)? {
            None => Ok(None),
            Some(position) => usize::try_from(position)
                .map(Some)
                .map_err(|_| Failure::new("Position must be greater than or equal to 0.")),
        }
    }
}

fn wrong_type(at: usize) -> Failure {
    Failure::new(format!("The parameter at {at} has wrong type."))
}
