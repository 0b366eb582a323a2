//! `anabranch get`: turns options into a [`Get`], its events into the view, and its error into an exit
//! status.

mod input_list;
mod to_stdout;

use std::io::BufRead as _;
use std::path::Path;
use std::time::Duration;

use anabranch::get::Groups;
use anabranch::{Control, Event, Get, Report, Stop};
use anabranch_mmtp::uri::Uri;
use anabranch_overlay::publication::Scope;

use crate::args::{self, KnownHash};
use crate::exit::{Failure, Outcome};
use crate::signals::stop_on_signals;
use crate::state_dir::state_dir;
use crate::stdout;
use crate::view::{Mode, Summary, View};

/// The largest number of names that are read from standard input.
const LINES_MAX: usize = 10_000;

/// Fetches the content that `args` name.
///
/// # Errors
/// If the content was not fetched; the error has the exit status of [`crate::exit`] that scripts rely on.
pub fn get(args: &args::Get) -> Outcome {
    let is_stdout = args.output.as_deref() == Some(Path::new("-"));
    if is_stdout && args.http.print_uri {
        return Err(Failure::usage("--print-uri and --output - both write to standard output"));
    }
    if is_stdout && args.json {
        return Err(Failure::usage(
            "--json and --output - both write to standard output: without --json, progress goes to standard \
             error; ./- is a file of that name",
        ));
    }
    let mode = Mode::of(args.json, args.quiet);
    let mut view = View::new(mode);
    let mut report = Report::default();
    let mut listener = |event| match event {
        Event::Finished(last) => report = *last,
        event => view.draw(&event),
    };
    let result = request(args, mode).and_then(|(get, stop)| {
        if is_stdout {
            return to_stdout::write(&get, &stop, listener);
        }
        let download = get
            .to_output(args.output.clone())
            .overwrite(args.force)
            .adopt(args.http.continue_at.is_some())
            .stopped_by(&stop);
        let run = download.run(|event| {
            listener(event);
            Control::Continue
        });
        run.map(drop).map_err(Failure::from)
    });
    if is_stdout {
        report.target = "standard output".to_owned();
    }
    let failure = result.as_ref().err();
    view.finish(&Summary::new(&report, failure));
    if args.http.print_uri && result.is_ok() {
        stdout::print(uri(&args.what, &report)?)?;
    }
    result
}

/// Returns the line with the URI of the content that has arrived.
fn uri(what: &[String], report: &Report) -> Outcome<String> {
    if let Some(given) = what.iter().find(|name| name.parse::<Uri>().is_ok()) {
        return Ok(format!("{given}\n"));
    }
    let id = report.content.as_deref().filter(|id| id.starts_with("b3:"));
    let (id, length) = id.zip(report.last.total_bytes).ok_or_else(|| {
        Failure::other("what has come has no URI: it is a directory, and its files have one each")
    })?;
    Ok(format!("anabranch:{id}?len={length}\n"))
}

/// Makes the request that the options describe, and the stop that signals use.
fn request(args: &args::Get, mode: Mode) -> Outcome<(Get, Stop)> {
    let http = &args.http;
    let mut get = named(args)?
        .controller(&args.cc)
        .groups(if args.disjoint { Groups::None } else { args.groups.clone() })
        .timeout(Duration::from_secs(args.timeout))
        .insecure(http.insecure)
        .progress_every(mode.interval().unwrap_or(Duration::MAX));
    get = args.from.iter().fold(get, |get, source| get.from_source(source.to_string()));
    get = if args.background { get.background() } else { get };
    get = args.links.limit.into_iter().fold(get, Get::limit);
    get = args.links.via.iter().fold(get, |get, via| get.via(via.to_string())).mode(args.links.mode);
    get = state_dir().into_iter().fold(get, Get::state_dir);
    let fields = http.header.iter().flat_map(|argument| &argument.0);
    get = fields.fold(get, |get, (name, value)| get.header(name, value));
    get = http.user()?.into_iter().fold(get, |get, (name, password)| get.user(name, password));
    get = http.netrc().into_iter().fold(get, Get::netrc);
    get = http.proxy.iter().fold(get, Get::proxy);
    get = http.cacert.iter().fold(get, Get::ca_file);
    get = match &http.checksum {
        Some(KnownHash::Is(checksum)) => get.checksum(*checksum),
        Some(KnownHash::In(list)) => get.checksum_list(list),
        Some(KnownHash::At(url)) => get.checksum_url(url),
        None => get,
    };
    get = if args.each { get.each() } else { get };
    get = http.keyring.iter().fold(get, Get::keyring);
    get = anabranch::cache_dir().filter(|_| !http.no_history).into_iter().fold(get, Get::history);
    // Signals are caught only now, so that Ctrl-C ends the process at once while it reads names from standard
    // input.
    Ok((get, stop_on_signals()?))
}

/// Makes a request for the content that the arguments name.
fn named(args: &args::Get) -> Outcome<Get> {
    // The environment only says that this machine is in a network, so not every argument is a name there. A
    // URI is a name if it names no source and `--from` is not given, because then only the network can know
    // sources.
    let is_name = |what: &str| match what.parse::<Uri>() {
        Ok(uri) => uri.from.is_empty() && uri.mirrors.is_empty() && args.from.is_empty(),
        Err(_) if what.contains("://") || Path::new(what).exists() => false,
        // A name that is wrong after its scope is treated as a name, so that the error describes the mistake.
        Err(_) => what.split_once('/').is_some_and(|(scope, _)| scope.parse::<Scope>().is_ok()),
    };
    let by_environment = || args.network.is_named() && matches!(&args.what[..], [what] if is_name(what));
    if let Some(list) = &args.http.input_file {
        return Ok(Get::wanted_files(input_list::read(list)?)?);
    }
    if args.network.domain.is_none() && !by_environment() {
        return Ok(with_class(Get::new(names(&args.what)?)?, args)?);
    }
    match &args.what[..] {
        [name] => {
            let get = Get::name(&args.network.place()?, name)?;
            Ok(with_class(get, args)?)
        }
        _ => Err(Failure::usage("with --domain one name is fetched, SCOPE/LABEL or a URI")),
    }
}

/// Sets the class of the request, if `--class` is given.
fn with_class(get: Get, args: &args::Get) -> anabranch::Result<Get> {
    match &args.class.class {
        Some(class) => get.class(class),
        None => Ok(get),
    }
}

/// Returns the names that were given; replaces `-` by the lines of standard input.
fn names(given: &[String]) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for name in given {
        if name != "-" {
            names.push(name.clone());
            continue;
        }
        for line in std::io::stdin().lock().lines().take(LINES_MAX) {
            let line = line.map_err(|e| Failure::usage(format!("reading standard input: {e}")))?;
            let line = line.trim_start_matches('\u{feff}').trim();
            if line.starts_with('<') {
                return Err(Failure::usage(
                    "standard input has a Metalink, it seems, and - stands for a list of names: name \
                     /dev/stdin instead",
                ));
            }
            if !line.is_empty() && !line.starts_with('#') {
                names.push(line.to_owned());
            }
        }
    }
    if names.is_empty() {
        return Err(Failure::usage("nothing to fetch: standard input has no URI and no URL"));
    }
    Ok(names)
}
