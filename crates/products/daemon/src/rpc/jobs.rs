//! Methods that add and change jobs.

use std::collections::BTreeSet;

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use super::params::Params;
use super::{Call, Failure};
use crate::gid::Gid;
use crate::job::{Job, Options, Source};
use crate::options::{self, Fate, Scope, is_true};
use crate::queue::{How, NewJob, Queue, Refusal};

impl Call<'_> {
    pub(super) fn add_uri(&mut self, params: Params<'_>) -> Result<Value, Failure> {
        let uris = params.texts(0)?;
        let options = self.new_options(params.object_if_any(1)?)?;
        let index = params.position(2)?;
        if uris.is_empty() {
            return Err(Failure::new("URI is not provided."));
        }
        let source = self.source(&uris)?;
        self.add(source, options, index).map(|gid| json!(gid))
    }

    pub(super) fn add_metalink(&mut self, params: Params<'_>) -> Result<Value, Failure> {
        let encoded: String = params.text(0)?.split_ascii_whitespace().collect();
        let options = self.new_options(params.object_if_any(1)?)?;
        let index = params.position(2)?;
        let unread = || Failure::new("Could not parse Metalink XML document.");
        let text = BASE64.decode(encoded.as_bytes()).map_err(|_| unread())?;
        let source = Source::Metalink(String::from_utf8(text).map_err(|_| unread())?);
        let check = self.daemon.check(&source);
        check.map_err(|why| Failure::new(format!("Could not parse Metalink XML document. {why}")))?;
        self.add(source, options, index).map(|gid| json!([gid]))
    }

    pub(super) fn add_torrent(&self, params: Params<'_>) -> Result<Value, Failure> {
        params.text(0)?;
        Err(Failure::new(NO_TORRENTS))
    }

    /// Returns the source that URIs name.
    fn source(&self, uris: &[&str]) -> Result<Source, Failure> {
        for uri in uris {
            check_scheme(uri)?;
        }
        let source = Source::Uris(uris.iter().map(|uri| (*uri).to_owned()).collect());
        self.daemon.check(&source).map_err(Failure::new)?;
        Ok(source)
    }

    /// Reads the options of a new job. Global options are their defaults.
    fn new_options(&self, given: Option<&Map<String, Value>>) -> Result<Options, Failure> {
        let given = given.map(|given| options::read(given, |scope| scope != Scope::Daemon)).transpose();
        let given = given.map_err(|e| Failure::new(e.to_string()))?.unwrap_or_default();
        let is_of_jobs = |name: &String| options::named(name).is_some_and(|known| known.scope == Scope::Job);
        let global = self.daemon.look(|state| state.options.clone());
        let mut options: Options = global.into_iter().filter(|(name, _)| is_of_jobs(name)).collect();
        options.extend(given);
        self.daemon.base().destination(&options).map_err(Failure::new)?;
        Ok(options)
    }

    fn add(&mut self, source: Source, mut options: Options, index: Option<usize>) -> Result<Gid, Failure> {
        let is_paused = is_true(&options, "pause");
        options.remove("pause");
        let wanted = options
            .remove("gid")
            .map(|text| Gid::read(&text).ok_or_else(|| Failure::new(format!("Invalid GID {text}"))));
        let wanted = wanted.transpose()?;
        let new = NewJob { source, options, is_paused, index };
        let (added, ticket) = self.daemon.change(|queue| match wanted {
            Some(gid) => queue.add(new, gid).then_some(gid).ok_or(Some(gid)),
            None => {
                let gid = free_gid(queue).ok_or(None)?;
                queue.add(new, gid);
                Ok(gid)
            }
        });
        self.owes(ticket);
        added.map_err(|used| match used {
            Some(gid) => Failure::new(format!("GID#{gid} is already used.")),
            None => Failure::new("The system has no random numbers."),
        })
    }

    /// Returns the identifier that a parameter names.
    pub(super) fn gid(&self, params: Params<'_>) -> Result<Gid, Failure> {
        let text = params.text(0)?;
        let range = Gid::beginning_with(text).ok_or_else(|| Failure::new(format!("Invalid GID {text}")))?;
        match self.daemon.look(|state| state.queue.within(range))[..] {
            [gid] => Ok(gid),
            [] => Err(Failure::new(format!("GID {text} is not found"))),
            _ => Err(Failure::new(format!("GID {text} is not unique"))),
        }
    }

    /// Changes a job, and returns its identifier. `refused` is what its state does not allow.
    pub(super) fn for_job(
        &mut self,
        params: Params<'_>,
        change: impl FnOnce(&mut Queue, Gid) -> Result<(), Refusal>,
        refused: impl FnOnce(Gid) -> String,
    ) -> Result<Value, Failure> {
        let gid = self.gid(params)?;
        let (result, ticket) = self.daemon.change(|queue| change(queue, gid));
        self.owes(ticket);
        result.map(|()| json!(gid)).map_err(|_| Failure::new(refused(gid)))
    }

    pub(super) fn for_all(&mut self, change: impl FnOnce(&mut Queue)) -> Result<Value, Failure> {
        let ((), ticket) = self.daemon.change(change);
        self.owes(ticket);
        Ok(json!("OK"))
    }

    pub(super) fn remove_result(&mut self, params: Params<'_>) -> Result<Value, Failure> {
        let refused = |gid| format!("Could not remove download result of GID#{gid}");
        self.for_job(params, Queue::remove_result, refused).map(|_| json!("OK"))
    }

    pub(super) fn change_position(&mut self, params: Params<'_>) -> Result<Value, Failure> {
        let gid = self.gid(params)?;
        let by = params.integer(1)?;
        let how = match params.text(2)? {
            "POS_SET" => How::Set,
            "POS_CUR" => How::Current,
            "POS_END" => How::End,
            _ => return Err(Failure::new("Illegal argument.")),
        };
        let (result, ticket) = self.daemon.change(|queue| queue.change_position(gid, by, how));
        self.owes(ticket);
        let refused = |_| Failure::new(format!("GID#{gid} not found in the waiting queue."));
        result.map(|index| json!(index)).map_err(refused)
    }

    pub(super) fn change_uri(&mut self, params: Params<'_>) -> Result<Value, Failure> {
        let gid = self.gid(params)?;
        let file = params.integer_from(1, 1)?;
        let (removed, added) = (params.texts(2)?, params.texts(3)?);
        let index = params.position(4)?;
        if file != 1 {
            return Err(Failure::new("fileIndex is out of range"));
        }
        let cannot = || Failure::new(format!("Cannot remove URIs from GID#{gid}"));
        let old = self.daemon.look(|state| state.queue.job(gid).cloned()).ok_or_else(cannot)?;
        let Source::Uris(mut uris) = old.source else { return Err(cannot()) };
        let mut count = 0;
        for uri in removed {
            if let Some(at) = uris.iter().position(|known| known == uri) {
                uris.remove(at);
                count += 1;
            }
        }
        let index = index.unwrap_or(uris.len()).min(uris.len());
        uris.splice(index..index, added.iter().map(|uri| (*uri).to_owned()));
        if uris.is_empty() {
            return Err(Failure::new("No URI would be left: remove the download instead."));
        }
        let new = self.source(&uris.iter().map(String::as_str).collect::<Vec<_>>())?;
        let changes = count > 0 || !added.is_empty();
        let (result, ticket) =
            self.daemon.change(|queue| queue.change(gid, changes, |source, _| *source = new));
        self.owes(ticket);
        result.map_err(|_| cannot())?;
        Ok(json!([count, added.len()]))
    }

    pub(super) fn change_option(&mut self, params: Params<'_>) -> Result<Value, Failure> {
        let gid = self.gid(params)?;
        let given = options::read(params.object(1)?, |scope| scope != Scope::Daemon);
        let mut given = given.map_err(|e| Failure::new(e.to_string()))?;
        // What a job is called and whether it runs have methods of their own.
        given.remove("gid");
        given.remove("pause");
        let cannot = || Failure::new(format!("Cannot change option for GID#{gid}"));
        let job = self.daemon.look(|state| state.queue.job(gid).cloned()).ok_or_else(cannot)?;
        let mut new = job.options.clone();
        new.extend(given);
        self.daemon.base().destination(&new).map_err(Failure::new)?;
        let restarts = needs_restart(&job, &new);
        let options = new.clone();
        let (result, ticket) =
            self.daemon.change(|queue| queue.change(gid, restarts, |_, options| *options = new));
        self.owes(ticket);
        result.map_err(|_| cannot())?;
        self.daemon.look(|state| {
            state.transfer(gid).into_iter().for_each(|transfer| transfer.set_limit(&options));
        });
        Ok(json!("OK"))
    }
}

/// Whether a transfer must begin anew to obey these options. Its own limit can change while it runs.
fn needs_restart(job: &Job, new: &Options) -> bool {
    let names: BTreeSet<&String> = job.options.keys().chain(new.keys()).collect();
    let is_obeyed = |name: &str| {
        name != "max-download-limit" && options::named(name).is_some_and(|known| known.fate == Fate::Obeyed)
    };
    names.into_iter().any(|name| is_obeyed(name) && job.options.get(name) != new.get(name))
}

/// Returns an identifier that no job has.
fn free_gid(queue: &Queue) -> Option<Gid> {
    loop {
        #[expect(clippy::disallowed_methods, reason = "aria2's identifiers are random")]
        let number = getrandom::u64().ok()?;
        if let Some(gid) = Gid::new(number).filter(|gid| queue.job(*gid).is_none()) {
            return Some(gid);
        }
    }
}

const NO_TORRENTS: &str =
    "BitTorrent is not spoken here: give the http or https URIs of the file, or a Metalink.";

/// Checks that a URI is of a kind that is fetched here. The path of a file would be read as a Metalink, so
/// it must not come from a request.
fn check_scheme(uri: &str) -> Result<(), Failure> {
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
    match scheme.as_str() {
        "http" | "https" if uri.as_bytes()[scheme.len()..].starts_with(b"://") => Ok(()),
        "anabranch" => Ok(()),
        "magnet" => Err(Failure::new(NO_TORRENTS)),
        "ftp" | "sftp" | "ftps" => {
            Err(Failure::new(format!("Only http and https are spoken here, and {uri} is {scheme}.")))
        }
        _ => Err(Failure::new(format!("Unrecognized URI or unsupported protocol: {uri}"))),
    }
}
