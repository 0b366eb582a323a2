//! `anabranch proxy server`.

use proxy::policy::Policy;
use proxy::server::{Admission, Options, start};

use super::args::Server;
use super::view::View;
use super::{run, state, wrong};
use crate::exit::Outcome;

/// Runs a server until a signal ends it.
pub(super) fn server(args: &Server) -> Outcome {
    let view = View { json: args.json, quiet: args.quiet };
    let begun = || {
        let admission = if args.plain {
            Admission::Networks(args.from.clone())
        } else {
            let state = state(args.state_dir.as_ref())?;
            Admission::Keys { pair: state.pair, clients: state.clients }
        };
        let policy = Policy::new(&args.allow, &args.deny);
        start(Options { listen: args.listen, policy, ..Options::new(admission) }).map_err(wrong)
    };
    view.end(begun().and_then(|server| run(server, &view)))
}
