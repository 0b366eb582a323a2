//! Checks the options of a request with a destination, and runs the request.

use anabranch_mirror::url::Url;

use super::locators::{FileAlone, Locators};
use super::reassembly_buffer::ReassemblyBuffer;
use super::request::{Request, span};
use super::settings::Settings;
use super::transfer::Transfer;
use super::{each, fetch};
use crate::checksum::KnownHash;
use crate::event::Observer;
use crate::target::Output;
use crate::{Control, Error, Event, Report, Result, Stop};

/// Holds a [`Get`](crate::Get) with a destination. It is [run](Self::run) on this thread or
/// [started](Self::start) on another.
///
/// Bytes that arrive are kept in `NAME.part`, with a journal beside it. `NAME` appears at the end, whole and
/// verified as far as [`Report::verified`] and [`Report::verified_by`] say. A whole file that fails only the
/// hash of its own server is kept as `NAME.unverified`. After a failure or a stop, an equal request resumes.
/// If two downloads to one path run at once, the second fails with
/// [`ErrorKind::Target`](crate::ErrorKind::Target).
#[derive(Clone)]
pub struct Download {
    named: Locators,
    settings: Settings,
    output: Output,
    overwrite: bool,
    adopts: bool,
    stop: Option<Stop>,
}

impl Download {
    pub(super) const fn new(named: Locators, settings: Settings, output: Output) -> Self {
        Self { named, settings, output, overwrite: false, adopts: false, stop: None }
    }

    /// Overwrites the destination if it exists, and its part file if the part belongs to another content.
    #[must_use]
    pub const fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Continues a file at the destination that another program has begun, as `curl -C -` does. The file must
    /// be shorter than the content, and a leaf list or a Metalink must have hashes of its blocks or pieces.
    /// The file becomes `NAME.part`, and the parts that these hashes do not prove are fetched again. Without
    /// such hashes, or if no block is right, the transfer fails with
    /// [`ErrorKind::Target`](crate::ErrorKind::Target), and the file stays.
    #[must_use]
    pub const fn adopt(mut self, adopt: bool) -> Self {
        self.adopts = adopt;
        self
    }

    /// Ends with [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) when `stop` is used, by a signal
    /// handler or another thread.
    #[must_use]
    pub fn stopped_by(mut self, stop: &Stop) -> Self {
        self.stop = Some(stop.clone());
        self
    }

    /// Runs the transfer on this thread until it ends. `listener` receives the events; the last event is
    /// [`Event::Finished`], whose report is also returned if the transfer succeeded. When the listener
    /// answers [`Control::Stop`], the transfer stops soon and then fails with
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted).
    ///
    /// # Errors
    /// See [`Error`]. The bytes that have arrived are kept, unless no hash and no version can tell whether
    /// they are right.
    pub fn run(self, mut listener: impl FnMut(Event) -> Control) -> Result<Report> {
        let stop = self.stop.clone().map_or_else(Stop::new, Ok)?;
        self.run_until(stop, None, &mut listener)
    }

    /// Starts the transfer on a separate thread. Dropping the handle stops it; see [`Transfer`].
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if no thread can be started. Errors of the request are
    /// reported by the transfer itself.
    pub fn start(self) -> Result<Transfer> {
        // The handle stops only this transfer, and no other operation that uses the caller's `Stop`.
        let stop = self.stop.as_ref().map_or_else(Stop::new, Stop::below)?;
        let client = self.settings.client.clone();
        Transfer::spawn(stop.clone(), client.as_ref(), move |listener| self.run_until(stop, None, listener))
    }

    pub(super) fn run_until(
        self,
        stop: Stop,
        reader: Option<ReassemblyBuffer>,
        listener: &mut dyn FnMut(Event) -> Control,
    ) -> Result<Report> {
        let every = span(self.settings.progress_every);
        let mut observer = Observer::new(listener, stop, every);
        let settings = match self.settings.clone().with_list(&self.named.origins, &mut observer) {
            Ok(settings) => settings,
            Err(error) => return fetch::failed(error, &mut observer),
        };
        let this = Self { settings, ..self };
        this.run_with(reader, &mut observer)
    }

    fn run_with(self, reader: Option<ReassemblyBuffer>, observer: &mut Observer<'_>) -> Result<Report> {
        if self.settings.is_each {
            let directory = self.output.outer().to_owned();
            let files = if reader.is_some() { Err(needs_a_directory()) } else { self.each() };
            return each::fetch(files, Self::request, &directory, observer);
        }
        match self.request() {
            Ok((request, locators)) => fetch::fetch(&Request { reader, ..request }, locators, observer),
            Err(error) => fetch::failed(error, observer),
        }
    }

    /// Returns a download for each URL alone.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if an option or a name is for one file only, or the
    /// destination is not a directory.
    fn each(self) -> Result<Vec<(Url, Self)>> {
        let files = self.named.each()?;
        if !self.output.needs_name(false) {
            return Err(needs_a_directory());
        }
        let settings = self.settings.clone().of_each(files.len())?;
        let all = Self { named: Locators::default(), settings, ..self };
        let of = |FileAlone { url, named, name, checksum }: FileAlone| {
            let mut one = Self { named, ..all.clone() };
            if let Some(name) = name {
                one.output = all.output.called(&name)?;
            }
            if let Some(checksum) = checksum {
                one.settings.checksum = Some(KnownHash::Is(checksum));
            }
            Ok((url, one))
        };
        files.into_iter().map(of).collect()
    }

    /// Checks every option; returns the request and the names of its content.
    pub(super) fn request(self) -> Result<(Request, Locators)> {
        let Self { named, settings, output, overwrite: force, adopts, .. } = self;
        let request = settings.request(&named)?;
        Ok((Request { output, force, adopts, ..request }, named))
    }
}

/// Returns the error for several files whose destination can take only one.
fn needs_a_directory() -> Error {
    Error::usage(
        "`each` fetches several files, which go into a directory: end its name with a slash, or leave it out",
    )
}
