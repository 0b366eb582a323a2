//! A request, and what is done with it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anabranch::{Control, Event, Get, Mode, Ranges, Rate, Stop};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::reader::Reader;
use crate::{PyClient, PyStop, SIGNALS_EVERY, object, raised, report, with_keywords};

/// Names a content, its sources, and how to fetch it.
#[pyclass(frozen, module = "anabranch")]
pub(crate) struct Request(Get);

#[pymethods]
impl Request {
    /// Makes a request of the sources and of options: the keywords of `anabranch.get`. Options that are
    /// `None` have their defaults.
    #[new]
    #[pyo3(signature = (sources, **options))]
    fn new(py: Python<'_>, sources: Vec<String>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut get = Get::new(sources).map_err(|e| raised(py, &e))?;
        for (name, value) in options.into_iter().flatten() {
            if !value.is_none() {
                get = set(get, name.extract()?, &value)?;
            }
        }
        Ok(Self(get))
    }

    /// Fetches into a path, as the command does, and returns the report. `listener` is called with the name
    /// and the value of each event; an exception of it stops the transfer.
    #[pyo3(signature = (path, overwrite, listener, stop))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        path: Option<PathBuf>,
        overwrite: bool,
        listener: Option<Py<PyAny>>,
        stop: Option<&PyStop>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stop = stop.map_or_else(Stop::new, |stop| Ok(stop.0.clone())).map_err(|e| raised(py, &e))?;
        let download = self.0.to_output(path).overwrite(overwrite).stopped_by(&stop);
        // On another thread, while this one handles the signals of Python, also where there is nothing to
        // tell.
        let (ended, thrown) = py.detach(|| {
            thread::scope(|scope| {
                let (sender, events) = channel();
                let running = scope.spawn(move || {
                    download.run(|event| {
                        // The other end waits until the transfer has ended.
                        let _ = sender.send(event);
                        Control::Continue
                    })
                });
                let mut thrown = None;
                loop {
                    let heard = match events.recv_timeout(SIGNALS_EVERY) {
                        Err(RecvTimeoutError::Disconnected) => break,
                        _ if thrown.is_some() => continue,
                        Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals()),
                        Ok(event) => Python::attach(|py| heard(py, listener.as_ref(), &event)),
                    };
                    if let Err(error) = heard {
                        stop.stop();
                        thrown = Some(error);
                    }
                }
                (running.join(), thrown)
            })
        });
        let failed = |_| PyRuntimeError::new_err("the thread of a transfer has panicked");
        let ended = ended.map_err(failed)?;
        match (ended, thrown) {
            (_, Some(error)) => Err(error),
            (Ok(done), None) => report(py, &done),
            (Err(error), None) => Err(raised(py, &error)),
        }
    }

    /// Reads the file in order while it arrives.
    fn read(&self, py: Python<'_>) -> PyResult<Reader> {
        Reader::start(&self.0).map_err(|e| raised(py, &e))
    }

    /// Fetches ranges of the file, each from its first byte to the one before its last, in one transfer.
    /// Returns the bytes of each, and the report.
    fn ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, u64)>,
    ) -> PyResult<(Vec<Bound<'py, PyBytes>>, Bound<'py, PyAny>)> {
        let ranges: Vec<Range<u64>> = ranges.into_iter().map(|(from, to)| from..to).collect();
        let done = self.parts(py, &ranges)?;
        let bytes = done.bytes.iter().map(|bytes| PyBytes::new(py, bytes)).collect();
        Ok((bytes, report(py, &done.report)?))
    }

    /// Returns the length of the file in bytes.
    fn length(&self, py: Python<'_>) -> PyResult<u64> {
        let first_byte = 0..1;
        Ok(self.parts(py, &[first_byte])?.length)
    }
}

impl Request {
    /// Fetches ranges on another thread, while this one handles the signals of Python.
    fn parts(&self, py: Python<'_>, ranges: &[Range<u64>]) -> PyResult<Ranges> {
        let stop = Stop::new().map_err(|e| raised(py, &e))?;
        let done = py.detach(|| {
            thread::scope(|scope| {
                let (sender, ended) = channel();
                let stop = &stop;
                scope.spawn(move || {
                    // The other end waits until it has this.
                    let _ = sender.send(self.0.get_ranges_stopped_by(ranges, stop));
                });
                loop {
                    match ended.recv_timeout(SIGNALS_EVERY) {
                        Err(RecvTimeoutError::Timeout) => {
                            Python::attach(|py| py.check_signals()).inspect_err(|_| stop.stop())?;
                        }
                        done => return Ok::<_, PyErr>(done),
                    }
                }
            })
        })?;
        let failed = |_| PyRuntimeError::new_err("the thread of a transfer has panicked");
        done.map_err(failed)?.map_err(|e| raised(py, &e))
    }
}

/// Sets one option of a request.
fn set(get: Get, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Get> {
    let py = value.py();
    let rate = |value: &Bound<'_, PyAny>| -> PyResult<Rate> {
        let rate: f64 = value.extract()?;
        if rate >= 1.0 && rate.is_finite() {
            return Ok(Rate::from_bytes(rate as u64));
        }
        Err(PyValueError::new_err(format!("limit={rate}: give the bytes a second, at least 1")))
    };
    Ok(match name {
        "checksum" => get.checksum(value.extract::<String>()?.parse().map_err(|e| raised(py, &e))?),
        "checksum_list" => match value.extract::<String>() {
            Ok(url) if url.starts_with("http://") || url.starts_with("https://") => get.checksum_url(url),
            _ => get.checksum_list(value.extract::<PathBuf>()?),
        },
        "keyring" => get.keyring(value.extract::<PathBuf>()?),
        "from_sources" => value.extract::<Vec<String>>()?.into_iter().fold(get, Get::from_source),
        "via" => match value.extract::<String>() {
            Ok(interface) => get.via(interface),
            Err(_) => value.extract::<Vec<String>>()?.into_iter().fold(get, Get::via),
        },
        "mode" => {
            let mode: String = value.extract()?;
            let found = Mode::NAMES.iter().find(|(name, _)| *name == mode);
            let unknown = || format!("mode={mode:?}: \"aggregate\", \"backup\" or \"sequential\"");
            get.mode(found.ok_or_else(|| PyValueError::new_err(unknown()))?.1)
        }
        "state_dir" => get.state_dir(value.extract::<PathBuf>()?),
        "limit" => get.limit(rate(value)?),
        "background" => {
            if value.extract()? {
                get.background()
            } else {
                get
            }
        }
        "controller" => get.controller(value.extract::<String>()?),
        "headers" => {
            let fields: std::collections::BTreeMap<String, String> = value.extract()?;
            fields.into_iter().fold(get, |get, (name, value)| get.header(name, value))
        }
        "auth" => {
            let (name, password): (String, String) = value.extract()?;
            get.user(name, password)
        }
        "netrc" => get.netrc(value.extract::<PathBuf>()?),
        "proxy" => get.proxy(value.extract::<String>()?),
        "ca_file" => get.ca_file(value.extract::<PathBuf>()?),
        "insecure" => get.insecure(value.extract()?),
        "timeout" => get.timeout(seconds(value)?),
        "progress_every" => get.progress_every(seconds(value)?),
        "client" => get.client(value.cast::<PyClient>()?.get().0.get()?),
        _ => return Err(PyTypeError::new_err(format!("there is no option '{name}'"))),
    })
}

/// Reads a time in seconds.
fn seconds(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds: f64 = value.extract()?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is no time in seconds")))
}

/// Handles the signals of Python, and calls the listener with an event.
fn heard(py: Python<'_>, listener: Option<&Py<PyAny>>, event: &Event) -> PyResult<()> {
    py.check_signals()?;
    let Some(listener) = listener else { return Ok(()) };
    let (name, value) = match event {
        Event::Progress(progress) => {
            ("progress", object(py, &serde_json::to_value(progress).unwrap_or_default())?)
        }
        Event::Notice(text) => ("note", with_keywords(text).into_pyobject(py)?.into_any()),
        Event::Warning(text) => ("warning", with_keywords(text).into_pyobject(py)?.into_any()),
        Event::Banned { source, reason } => ("banned", (source, reason).into_pyobject(py)?.into_any()),
        _ => return Ok(()),
    };
    listener.call1(py, (name, value)).map(drop)
}
