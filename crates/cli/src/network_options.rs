//! The options that say where this machine is in a publish/subscribe network.

use std::io;
use std::path::{Path, PathBuf};

use anabranch::network::{Place, ScopeKey};
use anabranch_net::private_file::read_secret;
use clap::{Args, ValueHint};

use crate::exit::{Failure, Outcome};
use crate::names::show;

/// The environment variable that has the same meaning as `--domain`.
pub(crate) const DOMAIN: &str = "ANABRANCH_DOMAIN";
/// The environment variable that has the same meaning as `--node`.
pub(crate) const NODE: &str = "ANABRANCH_NODE";

/// The most bytes of a file with a key; a key has a line or two.
pub(crate) const KEY_BYTES_MAX: u64 = 64 * 1024;

/// The options that say where this machine is in a network.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Network options")]
pub struct Network {
    /// The file of the publish/subscribe network that this machine is a member of (see anabranch net new).
    /// Without this option: as the environment variable ANABRANCH_DOMAIN says
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub domain: Option<PathBuf>,

    /// Which of its nodes this machine is. Without this option: as ANABRANCH_NODE says, or the one that has
    /// an address of this machine
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
}

/// The class of a transfer in a network.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Network options")]
pub struct Class {
    /// Have the paths and the mark (DSCP) of this class of transfers, as [class.NAME] in the network's file
    /// says. Without this option: of no class
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,
}

impl Network {
    /// Whether a network is named, by an option or by the environment.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.domain.is_some() || std::env::var_os(DOMAIN).is_some()
    }

    /// Finds out where this machine is in the network.
    ///
    /// # Errors
    /// 2 if no network is named, its file makes no sense, or this machine is no node of it.
    pub fn place(&self) -> Outcome<Place> {
        let file = self.domain.clone().or_else(|| std::env::var_os(DOMAIN).map(PathBuf::from));
        let file = file.ok_or_else(|| {
            Failure::usage("no network is named: give --domain FILE; anabranch net new makes one to try")
        })?;
        let node = self.node.clone().or_else(|| std::env::var(NODE).ok());
        Ok(Place::new(&file, node.as_deref())?)
    }
}

/// Reads the secret key of a scope.
///
/// # Errors
/// 2 if the file does not exist, or other users can read it.
pub(crate) fn scope_key(file: &Path) -> Outcome<ScopeKey> {
    let shown = show(file);
    let text = read_secret(file, KEY_BYTES_MAX).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            Failure::usage(format!("there is no key {shown}: `anabranch net key {shown}` makes one"))
        }
        _ => Failure::usage(format!("cannot read {shown}: {e}")),
    })?;
    String::from_utf8_lossy(&text)
        .parse()
        .map_err(|e| Failure::usage(format!("{shown} is no secret key of a scope: {e}")))
}
