//! A [`Get`] with a destination: what is checked when a transfer begins, and how it is run.

use std::sync::Arc;

use anabranch_algo::control::Algorithm;
use anabranch_http::client::Options;
use anabranch_mirror::url::Url;

use super::controllers::unknown_controller;
use super::locators::Locators;
use super::reassembly_buffer::ReassemblyBuffer;
use super::request::{Request, local_ends, sources, span};
use super::{Get, Transfer, each, fetch};
use crate::checksum::{KnownHash, ListedHash};
use crate::event::Observer;
use crate::openpgp::Keyring;
use crate::target::Output;
use crate::{Control, Error, Event, Report, Result, Stop};

/// A [`Get`] with a destination: to be [run](Self::run) on this thread or [started](Self::start) on its own.
///
/// What arrives is kept in `NAME.part`, with a journal beside it, and `NAME` appears at the end, whole and
/// verified as far as [`Report::verified`] and [`Report::verified_by`] say. A whole file that only the hash
/// of its own server calls wrong is kept as `NAME.unverified`. After a failure or a stop the same request
/// resumes. Of two downloads to the same path at the same time the second fails with [`Error::Target`].
#[derive(Clone)]
pub struct Download {
    pub(super) get: Get,
    pub(super) output: Output,
    overwrite: bool,
    adopts: bool,
    stop: Option<Stop>,
}

impl Download {
    pub(super) const fn new(get: Get, output: Output) -> Self {
        Self { get, output, overwrite: false, adopts: false, stop: None }
    }

    /// Overwrites the destination if it exists, and a part of another content that is in its place.
    #[must_use]
    pub const fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Goes on with a file at the destination that another program has begun, as `curl -C -` does: it is
    /// shorter than what is to come, and blocks of it are proven by hashes of blocks or pieces, of a leaf list
    /// or a Metalink. It becomes `NAME.part`, and what is not proven comes anew. Without such hashes, or if
    /// none of its blocks is right, the transfer fails with [`Error::Target`], and the file stays.
    #[must_use]
    pub const fn adopt(mut self, adopt: bool) -> Self {
        self.adopts = adopt;
        self
    }

    /// Ends with [`Error::Interrupted`] when `stop` is used, by a signal handler or another thread.
    #[must_use]
    pub fn stopped_by(mut self, stop: &Stop) -> Self {
        self.stop = Some(stop.clone());
        self
    }

    /// Runs the transfer on this thread until it ends. `listener` hears what happens; the last event is
    /// [`Event::Finished`], whose report is also returned if all went well. When the listener answers
    /// [`Control::Stop`], the transfer ends soon, in order, with [`Error::Interrupted`].
    ///
    /// # Errors
    /// See [`Error`]. What arrived is kept, unless nobody can tell whether it is right.
    pub fn run(self, mut listener: impl FnMut(Event) -> Control) -> Result<Report> {
        let stop = self.stop.clone().map_or_else(Stop::new, Ok)?;
        self.run_until(stop, None, &mut listener)
    }

    /// Starts the transfer on a thread of its own. Dropping the handle stops it; see [`Transfer`].
    ///
    /// # Errors
    /// [`Error::System`] if there can be no thread. What is wrong with the request is what the transfer ends
    /// with.
    pub fn start(self) -> Result<Transfer> {
        // The handle stops this transfer, not what else the caller's `Stop` is for.
        let stop = self.stop.as_ref().map_or_else(Stop::new, Stop::below)?;
        Transfer::spawn(stop.clone(), move |listener| self.run_until(stop, None, listener))
    }

    pub(super) fn run_until(
        self,
        stop: Stop,
        reader: Option<ReassemblyBuffer>,
        listener: &mut dyn FnMut(Event) -> Control,
    ) -> Result<Report> {
        let every = span(self.get.progress_every);
        let mut observer = Observer::new(listener, stop, every);
        if self.get.is_each {
            let directory = self.output.outer().to_owned();
            let files = if reader.is_some() { Err(needs_a_directory()) } else { self.each() };
            return each::fetch(files, Self::request, &directory, &mut observer);
        }
        match self.request() {
            Ok((request, locators)) => fetch::fetch(&Request { reader, ..request }, locators, &mut observer),
            Err(error) => fetch::failed(error, &mut observer),
        }
    }

    /// A download of each URL, as if it were alone.
    ///
    /// # Errors
    /// [`Error::Usage`] if what is asked for is of one file.
    fn each(self) -> Result<Vec<(Url, Self)>> {
        let Self { get, output, .. } = &self;
        let files = get.locators.each()?;
        if !output.needs_name(false) {
            return Err(needs_a_directory());
        }
        if !get.from.is_empty() {
            return Err(Error::usage(
                "`from_source` is of one content, and with `each` every URL has its own",
            ));
        }
        if matches!(get.checksum, Some(KnownHash::Is(_))) && files.len() > 1 {
            return Err(Error::usage(
                "`checksum` has the hash of one file, and with `each` every URL is a file of its own: give a \
                 list of hashes, such as SHA256SUMS",
            ));
        }
        let checksum = get.checksum.clone().map(KnownHash::loaded).transpose()?;
        let get = Get { checksum, locators: Locators::default(), ..self.get.clone() };
        let all = Self { get, ..self };
        let of = |(url, locators)| {
            let all = all.clone();
            (url, Self { get: Get { locators, ..all.get }, ..all })
        };
        Ok(files.into_iter().map(of).collect())
    }

    /// The same with every option checked.
    pub(super) fn request(self) -> Result<(Request, Locators)> {
        let Self { get, output, overwrite, adopts, .. } = self;
        let (via, limits) = local_ends(&get.via, get.limit)?;
        let algorithm =
            Algorithm::by_name(&get.controller).ok_or_else(|| unknown_controller(&get.controller))?;
        let ListedHash { digests, name: listed_name } =
            KnownHash::of_file(get.checksum.as_ref(), || get.locators.file_names())?;
        let request = Request {
            from: sources(&get.from).map_err(Error::usage)?,
            via,
            output,
            reader: None,
            algorithm,
            groups: get.groups,
            timeout: span(get.timeout),
            force: overwrite,
            adopts,
            digests,
            listed_name,
            keyring: get.keyring.map(|path| Keyring::open(&path)).transpose()?.map(Arc::new),
            // What one transfer knows of names is nothing of the next.
            http: Options {
                resolver: get.http.resolver.anew(),
                limits,
                idle_timeout: get.http.idle_timeout.max(get.timeout),
                ..get.http
            },
            history: get.history,
            #[cfg(any(test, feature = "soak"))]
            room: None,
        };
        Ok((request, get.locators))
    }
}

/// Several files are to go where only one can.
fn needs_a_directory() -> Error {
    Error::usage(
        "`each` fetches several files, which go into a directory: end its name with a slash, or leave it out",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anabranch_algo::control::ALGORITHMS;

    use super::*;
    use crate::get::{controllers, slow_starts};

    #[test]
    fn a_server_may_be_silent_for_as_long_as_the_whole_transfer() {
        for (timeout, idle) in [(5, 30), (60, 60), (90, 90)] {
            let get = Get::new(["http://a.example/f"]).expect("a URL").timeout(Duration::from_secs(timeout));
            let (request, _) = get.to_file("f").request().expect("a request");
            assert_eq!(request.http.idle_timeout, Duration::from_secs(idle));
        }
    }

    #[test]
    fn every_controller_can_be_asked_for_and_others_are_told_the_names() {
        let request = |name: &str| {
            let get = Get::new(["http://a/f"]).expect("a URL").controller(name);
            get.to_file("f").request().map(drop)
        };
        for controller in controllers() {
            assert_eq!(request(controller), Ok(()));
            for start in slow_starts() {
                assert_eq!(request(&format!("{controller}+{start}")), Ok(()));
            }
        }
        let Err(Error::Usage(why)) = request("bogus") else { panic!("there is none of that name") };
        let first = ALGORITHMS[0].name;
        assert!(why.contains(&format!("controller bogus: there are {first}, ")), "{why}");
        assert!(why.contains(" lia, ") && why.contains("hystart"), "{why}");
    }
}
