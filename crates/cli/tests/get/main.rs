//! `get`, `serve` and `mirror-list` as processes: the files that arrive, the messages and the exit statuses.

#[path = "../common/mod.rs"]
mod common;
mod peers;

mod cli;
mod contradictions;
mod daemon;
mod demo;
mod faults;
mod faults_files;
mod faults_net;
mod history;
mod json;
mod kills;
mod manners;
mod mirror_directories;
mod mirror_lanes;
mod mirror_list;
mod mirror_lists;
mod mirrors;
mod mirrors_resume;
mod mirrors_trust;
mod mirrors_vouched;
mod odd_servers;
mod parts;
mod secrets;
mod serve;
mod serve_http;
mod several_files;
mod signatures;
mod soak;
mod stdout;
mod terminal;
mod transfers;
