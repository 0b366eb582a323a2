//! Gets several files at once in async code. Any executor will do; this is tokio's.
//!
//!     cargo run --release -p anabranch --features tokio --example async_get -- URL…

use anabranch::{Event, Get, Result, text};
use tokio::task::JoinSet;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime without timers and sockets needs nothing of the system");
    runtime.block_on(async {
        let mut files = JoinSet::new();
        for url in std::env::args().skip(1) {
            files.spawn(get(url));
        }
        while let Some(ended) = files.join_next().await {
            ended.expect("no file is aborted")?;
        }
        Ok(())
    })
}

async fn get(url: String) -> Result<()> {
    let transfer = Get::new([url.as_str()])?.to_directory(".").start()?;
    let mut events = transfer.events().stream();
    while let Some(event) = events.next().await {
        match event {
            Event::Progress(progress) => println!("{url}: {}", text::bytes(progress.done_bytes)),
            Event::Notice(text) | Event::Warning(text) => println!("{url}: {text}"),
            _ => {}
        }
    }
    let report = transfer.await?;
    println!("{}: {}", report.target, report.verdict());
    Ok(())
}
