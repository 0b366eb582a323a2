//! The table of methods.

use serde_json::{Value, json};

use super::params::Params;
use super::{Call, Failure, globals, lists};
use crate::job::Status;
use crate::queue::Queue;

impl Call<'_> {
    /// Runs a method for a caller who has shown the token.
    pub(super) fn run(&mut self, method: &str, params: Params<'_>) -> Result<Value, Failure> {
        match method {
            "aria2.addUri" => self.add_uri(params),
            "aria2.addTorrent" => self.add_torrent(params),
            "aria2.addMetalink" => self.add_metalink(params),
            "aria2.remove" | "aria2.forceRemove" => {
                self.for_job(params, Queue::remove, |gid| format!("Active Download not found for GID#{gid}"))
            }
            "aria2.pause" | "aria2.forcePause" => {
                self.for_job(params, Queue::pause, |gid| format!("GID#{gid} cannot be paused now"))
            }
            "aria2.unpause" => {
                self.for_job(params, Queue::unpause, |gid| format!("GID#{gid} cannot be unpaused now"))
            }
            "aria2.pauseAll" | "aria2.forcePauseAll" => self.for_all(Queue::pause_all),
            "aria2.unpauseAll" => self.for_all(Queue::unpause_all),
            "aria2.purgeDownloadResult" => self.for_all(Queue::purge),
            "aria2.removeDownloadResult" => self.remove_result(params),
            "aria2.changePosition" => self.change_position(params),
            "aria2.changeUri" => self.change_uri(params),
            "aria2.changeOption" => self.change_option(params),
            "aria2.getOption" => lists::option(self, params),
            "aria2.tellStatus" => lists::tell_status(self, params),
            "aria2.getUris" => lists::uris(self, params),
            "aria2.getFiles" => lists::files(self, params),
            "aria2.getServers" => lists::servers(self, params),
            "aria2.getPeers" => lists::peers(self, params),
            "anabranch.tellPaths" => lists::paths(self, params),
            "aria2.tellActive" => lists::tell_active(self, params),
            "aria2.tellWaiting" => lists::tell_page(self, params, Status::Waiting),
            "aria2.tellStopped" => lists::tell_page(self, params, Status::Complete),
            "aria2.getGlobalStat" => Ok(globals::stat(self)),
            "aria2.getGlobalOption" => Ok(globals::option(self)),
            "aria2.changeGlobalOption" => globals::change(self, params),
            "aria2.getVersion" => Ok(json!({
                "version": "1.37.0",
                "enabledFeatures": ["Async DNS", "HTTPS", "Message Digest", "Metalink"],
                "anabranch": env!("CARGO_PKG_VERSION"),
            })),
            "aria2.getSessionInfo" => Ok(json!({"sessionId": self.daemon.session()})),
            // The queue is on the disk before any answer.
            "aria2.saveSession" => self.for_all(|_| ()),
            "aria2.shutdown" | "aria2.forceShutdown" => {
                self.reply.ends = true;
                Ok(json!("OK"))
            }
            _ => Err(Failure::new(format!("No such method: {method}"))),
        }
    }
}
