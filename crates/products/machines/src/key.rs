//! The key of the connection of a move or a shadow, as QEMU has it.

use std::fs;

use anabranch_net::private_file::{Access, PrivateDir};
use serde_json::json;

use crate::config::Places;
use crate::error::{Error, Result};
use crate::qmp::Qmp;

/// The name of the key for the connection of a move, in QEMU.
pub(crate) const KEY_ID: &str = "anabranch-key";
/// The user of that key.
pub(crate) const KEY_USER: &str = "anabranch";

/// Writes the key of a connection where QEMU reads it.
pub(crate) fn put(places: &Places, key: &str) -> Result {
    let dir = places.dir.join("key");
    let failed = |e| Error::of_path(&dir, &e);
    let made = PrivateDir::make(&dir, Access::Secret).map_err(failed)?;
    made.replace("keys.psk", Access::Secret, format!("{KEY_USER}:{key}\n").as_bytes()).map_err(failed)
}

/// Removes the key of a connection.
pub(crate) fn remove(places: &Places) {
    let _ = fs::remove_dir_all(places.dir.join("key"));
}

/// Gives a QEMU the key of the connection of a move.
pub(crate) fn give(qmp: &mut Qmp, places: &Places, endpoint: &str) -> Result {
    // One of an earlier move may be there.
    let _ = qmp.execute("object-del", json!({"id": KEY_ID}));
    let mut key = json!({
        "qom-type": "tls-creds-psk", "id": KEY_ID, "endpoint": endpoint,
        "dir": places.dir.join("key"), "verify-peer": true,
    });
    if endpoint == "client" {
        key["username"] = KEY_USER.into();
    }
    qmp.execute("object-add", key).map(drop)
}
