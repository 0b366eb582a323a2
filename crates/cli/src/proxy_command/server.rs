//! `anabranch proxy server`.

use anabranch_proxy::config::{self, ConfigError};
use anabranch_proxy::server::start;
use anabranch_proxy::{Reloader, Running};

use super::status::Page;
use super::{Role, unusable, wrong};
use crate::exit::Outcome;
use crate::state_dir::state_dir;

/// The server.
pub(super) struct Server;

impl Role<config::Server> for Server {
    fn completed(&self, settings: config::Server) -> config::Server {
        let state_dir = settings.state_dir.clone().or_else(state_dir);
        config::Server { state_dir, ..settings }
    }

    fn check(&self, settings: &config::Server) -> Result<(), ConfigError> {
        settings.check()
    }

    fn page(&self, settings: &config::Server) -> Outcome<Option<Page>> {
        Page::new(settings.status, "server", settings.state_dir.as_deref())
    }

    fn start(&self, settings: &config::Server) -> Outcome<Running> {
        start(settings.options().map_err(unusable)?).map_err(wrong)
    }

    fn reload(&self, reloader: &Reloader, settings: &config::Server) -> Outcome {
        reloader.reload(&settings.options().map_err(unusable)?).map_err(wrong)
    }
}
