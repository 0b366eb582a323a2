//! aria2's JSON-RPC: texts in, texts out. It knows no socket.
//!
//! `params` has what methods take of their parameters, with aria2's words about what is wrong. `names` has
//! the names of methods, and `methods` the table of them; `jobs`, `lists` and `globals` what they do; `view`
//! how a job is shown.

mod failure;
mod globals;
mod jobs;
mod lists;
mod methods;
mod names;
mod params;
#[cfg(test)]
mod tests;
mod view;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::journal::Ticket;
use crate::queue::Notice;
use crate::token::Token;
pub use failure::Failure;
use failure::{INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR};
pub use names::{METHODS, NOTIFICATIONS};
use params::Params;

/// The answer to a text, and what the server must know of it.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The text of the answer.
    pub text: String,
    /// The status of the answer over HTTP.
    pub http_status: u16,
    /// The changes that must be written before the answer is sent.
    pub ticket: Option<Ticket>,
    /// Whether a call had the token.
    pub is_authorized: bool,
    /// Whether a call had none or a wrong one, so that the answer should be late.
    pub is_unauthorized: bool,
    /// Whether the daemon is to end.
    pub ends: bool,
}

/// The methods of a daemon, for those who have the token.
#[derive(Clone)]
pub struct Rpc {
    daemon: Daemon,
    token: Token,
}

/// One text that is being answered.
struct Call<'a> {
    daemon: &'a Daemon,
    token: &'a Token,
    reply: Reply,
}

impl Rpc {
    /// Makes the methods of a daemon.
    #[must_use]
    pub const fn new(daemon: Daemon, token: Token) -> Self {
        Self { daemon, token }
    }

    /// Returns the daemon.
    #[must_use]
    pub const fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Whether `token` is the secret.
    #[must_use]
    pub fn admits(&self, token: &str) -> bool {
        self.token.is(token)
    }

    /// Answers a text: one call, or a list of them.
    #[must_use]
    pub fn answer(&self, text: &[u8]) -> Reply {
        let mut call = Call { daemon: &self.daemon, token: &self.token, reply: Reply::default() };
        let (answer, status) = match serde_json::from_slice(text) {
            Ok(Value::Array(all)) => {
                let answers = all.iter().filter(|one| one.is_object()).map(|one| call.answer(one).0);
                (Value::Array(answers.collect()), 200)
            }
            Ok(one) => call.answer(&one),
            Err(_) => {
                let failure = Failure { code: PARSE_ERROR, message: "Parse error.".to_owned() };
                (response(&Value::Null, Err(failure.clone())), failure.http_status())
            }
        };
        Reply { text: serde_json::to_string(&answer).unwrap_or_default(), http_status: status, ..call.reply }
    }
}

impl Call<'_> {
    /// Answers one call. Returns the answer and its status over HTTP.
    fn answer(&mut self, request: &Value) -> (Value, u16) {
        let invalid = || Failure { code: INVALID_REQUEST, message: "Invalid Request.".to_owned() };
        let id = request.get("id").cloned();
        let result = match (&id, request.get("method"), request.get("params")) {
            (None, ..) => Err(invalid()),
            (_, _, Some(params)) if !params.is_array() => {
                Err(Failure { code: INVALID_PARAMS, message: "Invalid params.".to_owned() })
            }
            (_, Some(Value::String(method)), params) => {
                let params = params.and_then(Value::as_array);
                self.call(method, params.map_or(&[], Vec::as_slice), false)
            }
            _ => Err(invalid()),
        };
        let status = result.as_ref().err().map_or(200, Failure::http_status);
        (response(&id.unwrap_or(Value::Null), result), status)
    }

    /// Runs a method. `is_nested` says whether `system.multicall` does.
    fn call(&mut self, method: &str, params: &[Value], is_nested: bool) -> Result<Value, Failure> {
        match method {
            "system.listMethods" => return Ok(json!(METHODS)),
            "system.listNotifications" => return Ok(json!(NOTIFICATIONS)),
            "system.multicall" if is_nested => {
                return Err(Failure::new("Recursive system.multicall forbidden."));
            }
            "system.multicall" => return self.multicall(Params::new(params)),
            _ => {}
        }
        let given = params.first().and_then(Value::as_str).and_then(|first| first.strip_prefix("token:"));
        if !given.is_some_and(|token| self.token.is(token)) {
            self.reply.is_unauthorized = true;
            return Err(Failure::new("Unauthorized"));
        }
        self.reply.is_authorized = true;
        self.run(method, Params::new(&params[1..]))
    }

    /// Runs several methods. Each has a list with its result, or its error.
    fn multicall(&mut self, params: Params<'_>) -> Result<Value, Failure> {
        let answer = |one: &Value| {
            let Some(call) = one.as_object() else {
                return Failure::new("system.multicall expected struct.").value();
            };
            let Some(method) = call.get("methodName").and_then(Value::as_str) else {
                return Failure::new("Missing methodName.").value();
            };
            let params = call.get("params").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            match self.call(method, params, true) {
                Ok(result) => Value::Array(vec![result]),
                Err(failure) => failure.value(),
            }
        };
        Ok(Value::Array(params.list(0)?.iter().map(answer).collect()))
    }

    /// Notes a change that the answer must wait for.
    fn owes(&mut self, ticket: Ticket) {
        self.reply.ticket = self.reply.ticket.max(Some(ticket));
    }
}

/// Makes an answer. A result may be long, so it is not copied.
fn response(id: &Value, result: Result<Value, Failure>) -> Value {
    let (key, value) = match result {
        Ok(result) => ("result", result),
        Err(failure) => ("error", failure.value()),
    };
    let mut answer = json!({"id": id, "jsonrpc": "2.0"});
    answer[key] = value;
    answer
}

/// Returns the text that tells listeners of a job.
#[must_use]
pub fn notification(notice: Notice, gid: crate::gid::Gid) -> String {
    let method = match notice {
        Notice::Start => "aria2.onDownloadStart",
        Notice::Pause => "aria2.onDownloadPause",
        Notice::Stop => "aria2.onDownloadStop",
        Notice::Complete => "aria2.onDownloadComplete",
        Notice::Error => "aria2.onDownloadError",
    };
    json!({"jsonrpc": "2.0", "method": method, "params": [{"gid": gid}]}).to_string()
}

/// Returns the text of an answer that says that its changes could not be written. `text` is the answer that
/// would have been sent.
#[must_use]
pub fn unwritten(text: &str, why: &str) -> String {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let failed = |one: &Value| response(&one["id"], Err(Failure::new(why)));
    match answer.as_array() {
        Some(all) => Value::Array(all.iter().map(failed).collect()).to_string(),
        None => failed(&answer).to_string(),
    }
}
