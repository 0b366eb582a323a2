//! The settings of the two roles, each defined once for files, flags and programs.
//!
//! [`Server`] and [`Client`] hold the settings, which have the same names in a TOML file and on the command
//! line. A [`Key`] describes one setting: its meaning, its default, and whether it can change while the role
//! runs. Help, the manual page and the reference in `docs/proxy.md` are generated from that.
//!
//! ```
//! use anabranch_proxy::config::{Client, Settings as _, parse};
//!
//! let file: Client = parse("server = \"proxy.example\"\nplain = true\n")?;
//! let flags = Client { strict_socks: Some(true), ..Client::default() };
//! let options = flags.over(file).options()?;
//! assert_eq!(options.servers[0].to_string(), "proxy.example:26228");
//! # Ok::<(), anabranch_proxy::config::ConfigError>(())
//! ```

mod client;
mod files;
mod macros;
mod server;
mod settings;
mod value;

pub use client::Client;
pub use files::{clients_file, read_users, state, state_directory};
pub use server::Server;
pub use settings::{Change, Changes, ConfigError, Key, Settings, changes, load, parse};
pub use value::{Bandwidth, Item, ListenAddress, Secret, ServerAddress, Shape, TimeSpan, User, Value};

#[cfg(test)]
mod tests;
