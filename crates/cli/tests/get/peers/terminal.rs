//! Runs commands on a terminal.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Runs a command line on a terminal of 80 columns, made by `script` of util-linux, and returns its output.
/// If `dialogue` is a question and its answer, types the answer once the question appears, until the command
/// ends.
pub(crate) fn on_a_terminal(line: &str, dialogue: Option<(&str, &str)>) -> String {
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &format!("stty cols 80 rows 24; {line}"), "/dev/null"]);
    script.env("XDG_CACHE_HOME", "/dev/null");
    let script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut script = script.expect("util-linux has it");
    let mut keys = script.stdin.take();
    let mut screen = script.stdout.take().expect("a screen");
    let ended = Arc::new(AtomicBool::new(false));
    let (mut said, mut typist) = (Vec::new(), None);
    let mut some = [0; 4096];
    while let Ok(1..) = screen.read(&mut some).inspect(|count| said.extend_from_slice(&some[..*count])) {
        if let Some((question, answer)) = dialogue
            && String::from_utf8_lossy(&said).contains(question)
            && let Some(mut keys) = keys.take()
        {
            let (ended, answer) = (Arc::clone(&ended), answer.to_owned());
            typist = Some(thread::spawn(move || {
                // Input before the echo is switched off is dropped, so it may have to be typed again.
                for turn in 0.. {
                    thread::sleep(Duration::from_millis(if turn == 0 { 500 } else { 5_000 }));
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                    let _ = keys.write_all(answer.as_bytes()).and_then(|()| keys.flush());
                }
            }));
        }
    }
    ended.store(true, Ordering::Relaxed);
    let status = script.wait().expect("its end");
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(status.success(), "{said}");
    assert_eq!(typist.is_some(), dialogue.is_some(), "it asked: {said}");
    said
}
