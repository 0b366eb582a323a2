//! The errors of calls, as aria2 has them.

use serde_json::{Value, json};

/// aria2's code for all errors of its methods.
const ERROR: i64 = 1;
pub(super) const PARSE_ERROR: i64 = -32_700;
pub(super) const INVALID_REQUEST: i64 = -32_600;
pub(super) const INVALID_PARAMS: i64 = -32_602;

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(super) code: i64,
    pub(super) message: String,
}

impl Failure {
    /// Makes an error of a method.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { code: ERROR, message: message.into() }
    }

    pub(super) fn value(&self) -> Value {
        json!({"code": self.code, "message": self.message})
    }

    /// Returns the status of the HTTP answer, as aria2 has it.
    pub(super) const fn http_status(&self) -> u16 {
        match self.code {
            PARSE_ERROR | INVALID_PARAMS => 500,
            _ => 400,
        }
    }
}
