//! Serves files and directories until Enter: `cargo run -p anabranch --example serve -- FILE|DIR…`.
//!
//! A receiver fetches one by its URI (`anabranch get 'URI'`), a browser or curl by its URL.

use std::io;
use std::net::SocketAddr;

use anabranch::{Result, Serve, text};

fn main() -> Result<()> {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut serve = Serve::new().listen(any_port).http(any_port);
    for path in std::env::args_os().skip(1) {
        serve = serve.path(path)?;
    }
    let source = serve.start()?;
    for offer in source.offers() {
        println!("{}\n{}", offer.uri, offer.url().unwrap_or_default());
    }
    let _ = io::stdin().read_line(&mut String::new());
    source.stop();
    let stats = source.wait()?;
    println!("sent {} for {} requests", text::bytes(stats.all_bytes()), stats.all_requests());
    Ok(())
}
