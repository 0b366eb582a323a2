//! The compiled half of the Python module `anabranch`: requests, their transfers, readers and ranges.
//!
//! **Purpose.** It offers [`anabranch::Get`] to `python/anabranch`, which has what users of Python see:
//! functions with keywords, types and documentation. Reports and progress cross as JSON, so that they have
//! the fields of docs/json.md.
//!
//! **Threads.** A wait never holds the interpreter's lock. Between two waits Python's signals are handled, so
//! Ctrl-C stops a transfer and keeps its bytes.

mod own;
mod reader;
mod request;

use std::time::Duration;

use anabranch::{ErrorKind, ErrorPlace, Hint, Stop};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use own::Own;

pyo3::create_exception!(
    anabranch,
    Error,
    PyOSError,
    "A transfer failed. `kind` says what to do: usage, not_found, unreachable, corrupt, target, refused, \
     interrupted or system. `place` is the URL, path or address that it is about, or None."
);

/// The longest time between two looks at Python's signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Returns the word for a kind of error, as the `error_kind` of `--json` has it.
const fn word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Usage => "usage",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Unreachable => "unreachable",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Target => "target",
        ErrorKind::Refused => "refused",
        ErrorKind::Interrupted => "interrupted",
        _ => "system",
    }
}

/// Converts an error of the library.
fn raised(py: Python<'_>, error: &anabranch::Error) -> PyErr {
    let raised = Error::new_err(with_keywords(&error.to_string()));
    let value = raised.value(py);
    // Setting an attribute fails only for want of memory.
    let _ = value.setattr("kind", word(error.kind()));
    let _ = value.setattr("place", error.place().map(ErrorPlace::to_string));
    raised
}

/// Returns a message of the library with its settings replaced by the keywords of this module.
fn with_keywords(message: &str) -> String {
    let keyword = |hint: Hint| match hint {
        Hint::Checksum => "checksum",
        Hint::FromSource => "from_sources",
        Hint::Get => "call",
        Hint::Header => "headers",
        Hint::Each => "one call for each file",
        Hint::Read => "anabranch.open",
        Hint::ToDirectory | Hint::ToFile => "path",
        Hint::User => "auth",
        other => other.name(),
    };
    Hint::replace(message, keyword).into_owned()
}

/// Converts JSON of the library, whose numbers and texts cross without loss.
fn parsed<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

/// Converts a value of the library that has the form of docs/json.md.
fn object<'py>(py: Python<'py>, value: &serde_json::Value) -> PyResult<Bound<'py, PyAny>> {
    parsed(py, &value.to_string())
}

/// Converts a report, with its verdict in words.
fn report<'py>(py: Python<'py>, report: &anabranch::Report) -> PyResult<Bound<'py, PyAny>> {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    value["verdict"] = report.verdict().into();
    object(py, &value)
}

/// Stops the transfers to which it was given. Any thread may use it.
#[pyclass(name = "Stop", frozen, module = "anabranch")]
struct PyStop(Stop);

#[pymethods]
impl PyStop {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Stop::new().map(Self).map_err(|e| raised(py, &e))
    }

    /// Stops the transfers soon; the bytes that have arrived are kept.
    fn stop(&self) {
        self.0.stop();
    }

    /// Whether `stop` has been called.
    #[getter]
    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }
}

/// Shares threads and connections among transfers of this process.
#[pyclass(name = "Client", frozen, module = "anabranch")]
struct PyClient(Own<anabranch::Client>);

#[pymethods]
impl PyClient {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        anabranch::Client::new().map(|client| Self(Own::new(client))).map_err(|e| raised(py, &e))
    }
}

#[pymodule]
fn _anabranch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let error = py.get_type::<Error>();
    error.setattr("kind", "system")?;
    error.setattr("place", py.None())?;
    module.add("Error", error)?;
    module.add("controllers", anabranch::controllers().collect::<Vec<_>>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<PyStop>()?;
    module.add_class::<PyClient>()?;
    module.add_class::<request::Request>()?;
    module.add_class::<reader::Reader>()
}
