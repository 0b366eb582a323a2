//! `anabranch proxy client`.

use anabranch_proxy::client::start;
use anabranch_proxy::config::{self, ConfigError};
use anabranch_proxy::{Reloader, Running};

use super::status::Page;
use super::{Role, unusable, wrong};
use crate::exit::Outcome;
use crate::state_dir::state_dir;

/// The client.
pub(super) struct Client;

impl Role<config::Client> for Client {
    fn completed(&self, settings: config::Client) -> config::Client {
        let state_dir = settings.state_dir.clone().or_else(state_dir);
        config::Client { state_dir, ..settings }
    }

    fn check(&self, settings: &config::Client) -> Result<(), ConfigError> {
        settings.check()
    }

    fn page(&self, settings: &config::Client) -> Outcome<Option<Page>> {
        Page::new(settings.status, "client", settings.state_dir.as_deref())
    }

    fn start(&self, settings: &config::Client) -> Outcome<Running> {
        start(settings.options().map_err(unusable)?).map_err(wrong)
    }

    fn reload(&self, reloader: &Reloader, settings: &config::Client) -> Outcome {
        reloader.reload(&settings.options().map_err(unusable)?).map_err(wrong)
    }
}
