//! Tests of many small files from servers with simulated time, rates and faults.

use std::collections::VecDeque;
use std::ops::Range;

use anabranch_algo::{Machine as _, Output, Rate, Span, Time};
use anabranch_mirror::file_scheduler::{
    BAD_FILES_MAX, Command, Event, Failure, FileScheduler, FileSpec, Input, ServerId, WINDOW_MAX_BYTES,
    WINDOW_MIN_BYTES,
};
use anabranch_mirror::range_scheduler::State;
use proptest::prelude::*;

const HEAD_BYTES: u64 = 400;
/// The most requests that the simulated client pipelines.
const OUTSTANDING_MAX: usize = 64;
/// The time at which a simulation ends, even if files are missing.
const END: Time = Time::from_nanos(3_600 * 1_000_000_000);

fn secs(secs: u64) -> Time {
    Time::ZERO + Span::from_secs(secs)
}

/// The properties of a simulated connection.
#[derive(Clone, Debug)]
struct Link {
    server: ServerId,
    /// Its rate in bytes per second.
    rate: u64,
    rtt: Span,
    /// The time in which no answer arrives. The connection stays open.
    silent: Range<Time>,
    /// Each request whose number is a multiple of this breaks the connection; 0 for none.
    breaks_at: u64,
    /// Whether the connection has a second one beside it.
    second: bool,
    /// The number of answers after which the server ends a TCP connection; 0 for never.
    limit: u64,
    /// Whether the server ends TCP connections without notice.
    unsaid: bool,
    /// Each request whose number is a multiple of this is refused as busy; 0 for none.
    busy_at: u64,
    /// The files for which the server has wrong bytes.
    wrong: Range<usize>,
    /// Whether answers are wrong that arrive while other requests are outstanding.
    mixes: bool,
    /// The server lacks the files whose number is a multiple of this; 0 for none.
    lacks: usize,
}

impl Link {
    fn new(server: ServerId, mbit: u64, rtt_ms: u64) -> Self {
        Self {
            server,
            rate: mbit * 125_000,
            rtt: Span::from_millis(rtt_ms),
            silent: Time::NEVER..Time::NEVER,
            breaks_at: 0,
            second: false,
            limit: 0,
            unsaid: false,
            busy_at: 0,
            wrong: 0..0,
            mixes: false,
            lacks: 0,
        }
    }

    fn is_wrong(&self, file: usize) -> bool {
        self.wrong.contains(&file)
    }
}

/// An answer on its way over a link.
struct Answer {
    id: u64,
    at: Time,
    what: What,
    nth: u64,
    last: bool,
}

#[derive(Clone, Copy)]
enum What {
    Done { bytes: u64, valid: bool },
    Failed(Failure),
}

struct Line {
    link: Link,
    /// When the server will have sent all answers so far.
    busy_until: Time,
    answers: VecDeque<Answer>,
    requests: u64,
    /// The number of requests on the current TCP connection.
    nth: u64,
    /// The number of TCP connections so far.
    connections: u64,
    /// The number of requests that were sent again because their TCP connection had ended.
    again: u64,
}

#[derive(Debug, Default)]
struct Ended {
    at: Time,
    complete: Vec<bool>,
    lost: Vec<bool>,
    /// The bytes and the duplicate bytes of each connection.
    bytes: Vec<(u64, u64)>,
    most_outstanding: usize,
    /// The number of TCP connections of each connection.
    connections: Vec<u64>,
    again: u64,
}

/// Runs until all files are complete or lost, or until `END`.
fn run(wanted: &[FileSpec], links: &[Link]) -> Ended {
    let mut machine = FileScheduler::new(wanted, OUTSTANDING_MAX);
    let mut lines: Vec<Line> = Vec::new();
    for link in links {
        let Some(connection) = machine.add_connection(link.server) else { continue };
        let count = 1 + usize::from(link.second && machine.add_second_connection(connection).is_some());
        for _ in 0..count {
            let link = link.clone();
            let (busy_until, answers) = (Time::ZERO, VecDeque::new());
            lines.push(Line { link, busy_until, answers, requests: 0, nth: 0, connections: 1, again: 0 });
        }
    }
    let mut ended =
        Ended { complete: vec![false; wanted.len()], lost: vec![false; wanted.len()], ..Ended::default() };
    let mut now = Time::ZERO;
    loop {
        let until = loop {
            match machine.poll(now) {
                Output::Wait(until) => break until,
                Output::Send(Command::Fetch { connection, fetch, file, url_index }) => {
                    assert_eq!(
                        wanted[file].servers[url_index], lines[connection].link.server,
                        "a URL of this server"
                    );
                    ask(&mut lines[connection], now, fetch, file, wanted[file].bytes);
                }
                Output::Send(Command::Cancel { fetch }) => {
                    lines.iter_mut().for_each(|line| line.answers.retain(|answer| answer.id != fetch));
                }
                Output::Event(Event::Complete { file, .. }) => {
                    assert!(!std::mem::replace(&mut ended.complete[file], true), "once");
                }
                Output::Event(Event::BadContent { file, server }) => {
                    let is_so = |line: &Line| line.link.server == server && line.link.is_wrong(file);
                    assert!(lines.iter().any(is_so), "file {file} is not wrong at {server}");
                }
                Output::Event(Event::Lost { file }) => {
                    assert!(!ended.complete[file] && !std::mem::replace(&mut ended.lost[file], true), "once");
                }
            }
        };
        for connection in machine.connections() {
            ended.most_outstanding = ended.most_outstanding.max(connection.outstanding);
            assert!(connection.outstanding <= OUTSTANDING_MAX);
            assert!((WINDOW_MIN_BYTES..=WINDOW_MAX_BYTES).contains(&connection.window_bytes));
        }
        if machine.remaining() == 0 || now >= END {
            ended.at = now;
            ended.bytes =
                machine.connections().map(|w| (w.counters.bytes, w.counters.duplicate_bytes)).collect();
            ended.connections = lines.iter().map(|line| line.connections).collect();
            ended.again = lines.iter().map(|line| line.again).sum();
            return ended;
        }
        let next = lines.iter().flat_map(|line| &line.answers).map(|answer| answer.at).min();
        now = next.unwrap_or(Time::NEVER).min(until).max(now + Span::from_micros(1));
        for line in &mut lines {
            while line.answers.front().is_some_and(|answer| answer.at <= now) {
                let Some(answer) = line.answers.pop_front() else { break };
                let Answer { id: fetch, nth, last, .. } = answer;
                match answer.what {
                    What::Done { bytes, valid } => {
                        machine.handle(now, Input::Head { fetch, nth, last });
                        machine.handle(now, Input::Bytes { fetch: answer.id, bytes });
                        machine.handle(now, Input::Done { fetch: answer.id, valid });
                    }
                    What::Failed(failure) => {
                        machine.handle(now, Input::Failed { fetch: answer.id, failure });
                        if failure == Failure::Broken {
                            // All requests on this TCP connection fail.
                            for answer in std::mem::take(&mut line.answers) {
                                machine.handle(now, Input::Failed { fetch: answer.id, failure });
                            }
                            (line.busy_until, line.nth) = (now, 0);
                            line.connections += 1;
                        }
                    }
                }
            }
        }
    }
}

/// Makes the server answer a request. Answers come in order, each after a round trip at the earliest.
fn ask(line: &mut Line, now: Time, id: u64, file: usize, bytes: u64) {
    line.requests += 1;
    let link = &line.link;
    if link.limit > 0 && line.nth == link.limit {
        // A request beyond the limit waits for the end of the TCP connection, and then for a new one.
        line.again += u64::from(!line.answers.is_empty());
        line.busy_until = line.busy_until.max(now) + link.rtt;
        (line.nth, line.connections) = (0, line.connections + 1);
    }
    line.nth += 1;
    let (nth, last) = (line.nth, line.nth == link.limit && !link.unsaid);
    let hits = |every: u64| every > 0 && line.requests.is_multiple_of(every);
    let what = if hits(link.breaks_at) {
        What::Failed(Failure::Broken)
    } else if hits(link.busy_at) {
        What::Failed(Failure::Busy { retry: Span::from_millis(700) })
    } else if link.lacks > 0 && file.is_multiple_of(link.lacks) {
        What::Failed(Failure::NotFound)
    } else {
        let is_mixed = link.mixes && !line.answers.is_empty();
        What::Done { bytes, valid: !is_mixed && !link.is_wrong(file) }
    };
    let takes = match what {
        What::Done { bytes, .. } => Rate::from_bytes(link.rate).time_for(bytes + HEAD_BYTES),
        What::Failed(_) => Rate::from_bytes(link.rate).time_for(HEAD_BYTES),
    };
    let mut at = line.busy_until.max(now + link.rtt) + takes;
    if at > link.silent.start && at < link.silent.end {
        at = link.silent.end;
    }
    line.busy_until = at;
    line.answers.push_back(Answer { id, at, what, nth, last });
}

fn files(count: usize, bytes: u64, servers: &[ServerId]) -> Vec<FileSpec> {
    vec![FileSpec { bytes, servers: servers.to_vec() }; count]
}

fn millis(time: Time) -> u64 {
    time.since(Time::ZERO).as_millis()
}

#[test]
fn one_link_is_full() {
    // At 100 Mbit/s and 50 ms, 10,000 files of 10 KB take 8.3 s, and their heads 0.3 s.
    let ended = run(&files(10_000, 10_000, &[0]), &[Link::new(0, 100, 50)]);
    assert!(ended.complete.iter().all(|done| *done));
    assert!((8_300..9_000).contains(&millis(ended.at)), "{}", millis(ended.at));
    assert_eq!(ended.bytes, [(100_000_000, 0)]);
    // The window limits how many files are outstanding, although more are idle.
    let ended = run(&files(1_000, 100_000, &[0]), &[Link::new(0, 100, 50)]);
    assert!(ended.most_outstanding <= 30, "{}", ended.most_outstanding);
    assert!(millis(ended.at) < 8_600, "{}", millis(ended.at));
}

#[test]
fn a_second_connection_is_used_when_a_connection_may_end() {
    let two = |limit| [Link { second: true, limit, ..Link::new(0, 100, 20) }];
    for limit in [0, 1_000] {
        let ended = run(&files(1_000, 10_000, &[0]), &two(limit));
        assert_eq!(ended.bytes, [(10_000_000, 0), (0, 0)], "few files need none");
    }
    // If the server ends no connection, the scheduler changes to the second one once.
    let ended = run(&files(4_000, 10_000, &[0]), &two(0));
    assert!(ended.complete.iter().all(|done| *done));
    assert_eq!((&ended.connections[..], ended.again), (&[1, 1][..], 0));
    // If the server ends connections, both are used in turn.
    let ended = run(&files(10_000, 10_000, &[0]), &two(1_000));
    assert!(ended.complete.iter().all(|done| *done));
    let is_half = |(bytes, twice): &(u64, u64)| *bytes >= 40_000_000 && *twice == 0;
    assert!(ended.bytes.iter().all(is_half), "{:?}", ended.bytes);
    assert_eq!((ended.connections.iter().sum::<u64>(), ended.again), (10, 0), "{:?}", ended.connections);
}

#[test]
fn no_more_is_asked_than_a_connection_takes() {
    for (limit, unsaid, second) in [1, 2, 10, 100, 999, 1_000, 1_001].into_iter().flat_map(|limit| {
        [(limit, false, true), (limit, false, false), (limit, true, true), (limit, true, false)]
    }) {
        let link = Link { second, limit, unsaid, ..Link::new(0, 100, 20) };
        let ended = run(&files(5_000, 10_000, &[0]), &[link]);
        assert!(ended.complete.iter().all(|done| *done), "{limit}");
        // Requests are sent again until the limit is known: those of one TCP connection if the server
        // announces the end, or else those of several.
        let most = if unsaid { 4 * OUTSTANDING_MAX } else { OUTSTANDING_MAX };
        assert!(ended.again <= most as u64, "{limit} {unsaid}: {}", ended.again);
        assert!(ended.bytes.iter().all(|(_, twice)| *twice == 0), "{limit} {unsaid}: {:?}", ended.bytes);
    }
}

#[test]
fn what_was_learnt_of_a_limit_can_be_wrong() {
    let mut machine = FileScheduler::new(&files(3_000, 10_000, &[0]), OUTSTANDING_MAX);
    assert_eq!(machine.add_connection(0), Some(0));
    let (mut now, mut answers, mut nth, mut asked) = (Time::ZERO, VecDeque::new(), 0, 0);
    let mut most_asked = Vec::new();
    while machine.remaining() > 0 && now < END {
        match machine.poll(now) {
            Output::Wait(_) => {
                let Some(fetch) = answers.pop_front() else { panic!("it waits for nothing") };
                most_asked.push(answers.len() + 1);
                now += Span::from_millis(1);
                // The first TCP connection ends after three answers; later ones stay open.
                nth = if asked == 3 { 1 } else { nth + 1 };
                asked += 1;
                machine.handle(now, Input::Head { fetch, nth, last: asked == 3 });
                machine.handle(now, Input::Bytes { fetch, bytes: 10_000 });
                machine.handle(now, Input::Done { fetch, valid: true });
            }
            Output::Send(Command::Fetch { fetch, .. }) => answers.push_back(fetch),
            Output::Send(Command::Cancel { .. }) => panic!("nothing is given up"),
            Output::Event(_) => {}
        }
    }
    assert_eq!(machine.remaining(), 0);
    let usual = most_asked.iter().filter(|asked| **asked > 20).count();
    assert!(usual > 2_900, "it is asked ahead again: {usual}");
}

#[test]
fn each_link_takes_what_it_carries() {
    let links = [Link::new(0, 100, 20), Link::new(1, 50, 40), Link::new(2, 10, 80)];
    let ended = run(&files(5_000, 20_000, &[0, 1, 2]), &links);
    assert!(ended.complete.iter().all(|done| *done));
    // At 160 Mbit/s together, the files and their heads take 5.1 s.
    assert!(millis(ended.at) < 5_600, "{}", millis(ended.at));
    let share: Vec<u64> = ended.bytes.iter().map(|(bytes, _)| bytes * 100 / 100_000_000).collect();
    assert!((55..68).contains(&share[0]) && (26..36).contains(&share[1]), "{share:?}");
    assert!(ended.bytes.iter().map(|(_, twice)| twice).sum::<u64>() < 2_000_000, "{:?}", ended.bytes);
}

#[test]
fn a_link_that_falls_silent_keeps_nothing_back() {
    let mut slow = Link::new(1, 100, 20);
    slow.silent = secs(1)..secs(60);
    let ended = run(&files(3_000, 10_000, &[0, 1]), &[Link::new(0, 100, 20), slow]);
    assert!(ended.complete.iter().all(|done| *done));
    // Both links for one second, then one link, and one second until the silence counts.
    assert!(millis(ended.at) < 4_000, "{}", millis(ended.at));
    // If this is the only link, the scheduler waits for it.
    let mut alone = Link::new(0, 100, 20);
    alone.silent = secs(1)..secs(20);
    let ended = run(&files(3_000, 10_000, &[0]), &[alone]);
    assert!(ended.complete.iter().all(|done| *done));
    assert!(millis(ended.at) < 26_000, "{}", millis(ended.at));
}

/// Two servers with two connections each never answer. A server that has answered is asked for their files.
#[test]
fn silent_servers_do_not_pass_a_file_from_one_to_the_other() {
    let silent = |server| Link { silent: Time::ZERO..secs(600), second: true, ..Link::new(server, 100, 20) };
    let liar = Link { wrong: 0..2, ..Link::new(0, 100, 5) };
    for honest in 1..4 {
        let mut links = vec![liar.clone(), silent(1), silent(2), silent(3)];
        links[honest] = Link { second: true, ..Link::new(honest as ServerId, 100, 20) };
        let ended = run(&files(2, 30_000, &[0, 1, 2, 3]), &links);
        assert!(ended.complete.iter().all(|done| *done), "{honest}");
        assert!(millis(ended.at) < 6_000, "{honest}: {}", millis(ended.at));
    }
}

#[test]
fn what_one_lacks_comes_from_others_and_what_all_lack_is_lost() {
    let mut one = Link::new(0, 10, 20);
    one.lacks = 3;
    let ended = run(&files(300, 10_000, &[0, 1]), &[one.clone(), Link::new(1, 10, 20)]);
    assert!(ended.complete.iter().all(|done| *done));
    let mut two = Link::new(1, 10, 20);
    two.lacks = 5;
    let ended = run(&files(300, 10_000, &[0, 1]), &[one, two]);
    let lost: Vec<usize> = (0..300).filter(|n| ended.lost[*n]).collect();
    assert_eq!(lost, (0..300).step_by(15).collect::<Vec<_>>());
    assert!((0..300).all(|n| ended.complete[n] != ended.lost[n]));
}

#[test]
fn wrong_files_cost_themselves_and_many_cost_the_server() {
    let mut liar = Link::new(0, 100, 20);
    liar.wrong = 70..71;
    let ended = run(&files(300, 10_000, &[0, 1]), &[liar.clone(), Link::new(1, 10, 20)]);
    assert!(ended.complete.iter().all(|done| *done));
    // A few files are lost, and all others arrive without much delay.
    let few = BAD_FILES_MAX as usize - 1;
    for count in [1, few] {
        liar.wrong = 70..70 + count;
        let ended = run(&files(300, 10_000, &[0]), &[liar.clone()]);
        assert!((0..300).all(|n| ended.lost[n] == liar.is_wrong(n) && ended.complete[n] != ended.lost[n]));
        assert!(millis(ended.at) < 300 + 100 * count as u64, "{}", millis(ended.at));
    }
    // One more wrong file closes the server.
    liar.wrong = 70..71 + few;
    let ended = run(&files(3_000, 10_000, &[0]), &[liar]);
    assert!((0..3_000).all(|n| ended.complete[n] != ended.lost[n]));
    assert!(ended.lost.iter().filter(|lost| **lost).count() > 1_000, "it is not asked any more");
}

#[test]
fn answers_that_are_mixed_up_blame_nobody() {
    let mut mixing = Link::new(0, 100, 20);
    mixing.mixes = true;
    for second in [false, true] {
        let link = Link { second, ..mixing.clone() };
        let ended = run(&files(300, 10_000, &[0]), &[link]);
        assert!(ended.complete.iter().all(|done| *done));
        // One file per round trip.
        assert!(millis(ended.at) < 300 * 25, "{}", millis(ended.at));
    }
    // Files that are really wrong are found, too.
    mixing.wrong = 100..103;
    let ended = run(&files(300, 10_000, &[0]), &[mixing.clone()]);
    assert!((0..300).all(|n| ended.lost[n] == mixing.is_wrong(n) && ended.complete[n] != ended.lost[n]));
}

#[test]
fn who_was_not_listened_to_is_not_silent() {
    let mut machine = FileScheduler::new(&files(1, 10, &[0]), OUTSTANDING_MAX);
    assert_eq!(machine.add_connection(0), Some(0));
    let mut now = Time::ZERO;
    let Output::Send(Command::Fetch { fetch, .. }) = machine.poll(now) else { panic!("nothing is asked") };
    now = secs(60);
    machine.handle(now, Input::Resumed);
    machine.handle(now, Input::Done { fetch, valid: true });
    assert_eq!(machine.poll(now), Output::Event(Event::Complete { file: 0, fetch }));
    assert!(machine.connections().all(|connection| connection.counters.stalls == 0));
}

#[test]
fn a_file_that_always_fails_holds_up_no_other() {
    let mut machine = FileScheduler::new(&files(3, 10, &[0]), OUTSTANDING_MAX);
    assert_eq!(machine.add_connection(0), Some(0));
    let (mut now, mut complete, mut lost) = (Time::ZERO, Vec::new(), Vec::new());
    while machine.remaining() > 0 && now < END {
        match machine.poll(now) {
            Output::Wait(until) => now = until,
            Output::Send(Command::Fetch { fetch, file: 0, .. }) => {
                machine.handle(now + Span::from_millis(1), Input::Failed { fetch, failure: Failure::Broken });
            }
            Output::Send(Command::Fetch { fetch, .. }) => {
                machine.handle(now + Span::from_millis(1), Input::Done { fetch, valid: true });
            }
            Output::Event(Event::Complete { file, .. }) => complete.push(file),
            Output::Event(Event::Lost { file }) => lost.push(file),
            Output::Event(Event::BadContent { .. }) | Output::Send(_) => {}
        }
    }
    while let Output::Event(Event::Lost { file }) = machine.poll(now) {
        lost.push(file);
    }
    complete.sort_unstable();
    assert_eq!((complete, lost), (vec![1, 2], vec![0]));
    assert!(machine.connections().all(|connection| connection.state != State::Closed));
}

#[test]
fn a_server_that_is_always_busy_is_asked_later_and_later() {
    let mut machine = FileScheduler::new(&files(100, 10, &[0]), OUTSTANDING_MAX);
    assert_eq!(machine.add_connection(0), Some(0));
    // All requests that were sent together are refused together, which counts as one refusal.
    let (mut now, mut times, mut first) = (Time::ZERO, Vec::new(), 0);
    while now < secs(60) {
        match machine.poll(now) {
            Output::Wait(until) => now = until,
            Output::Send(Command::Fetch { fetch, .. }) => {
                first += usize::from(now == Time::ZERO);
                times.push(millis(now));
                let failure = Failure::Busy { retry: Span::ZERO };
                machine.handle(now + Span::from_millis(1), Input::Failed { fetch, failure });
            }
            other => panic!("{other:?}"),
        }
    }
    times.dedup();
    assert!(first > 0);
    let waits: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.len() <= 7 && waits.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    assert_eq!(machine.remaining(), 100, "none is lost");
}

#[test]
fn nobody_to_ask() {
    assert_eq!(FileScheduler::new(&files(2, 1, &[]), OUTSTANDING_MAX).remaining(), 0, "lost at once");
    let mut machine = FileScheduler::new(&files(2, 1, &[0, 200]), OUTSTANDING_MAX);
    assert_eq!(machine.add_connection(200), None, "too many servers");
    assert_eq!(machine.remaining(), 2);
    machine.handle(Time::ZERO, Input::Useless { server: 0 });
    assert_eq!(machine.remaining(), 0);
    assert!(machine.is_closed(0));
}

fn link(server: ServerId) -> impl Strategy<Value = Link> {
    let ends = (any::<bool>(), 0..4_u64, any::<bool>());
    let misfortunes = (ends, 0..4_u64, 0..4_u64, (0..60_usize, 0..12_usize), 0..6_usize);
    (1..200_u64, 1..300_u64, 0..20_u64, 0..40_u64, misfortunes).prop_map(
        move |(mbit, rtt, from, len, ((second, limit, unsaid), breaks, busy, (wrong, count), lacks))| Link {
            mixes: busy == 1,
            wrong: wrong..wrong + count,
            second,
            limit: [0, 1, 5, 20][limit as usize],
            unsaid,
            silent: secs(from)..secs(from + len),
            breaks_at: [0, 0, 7, 3][breaks as usize],
            busy_at: [0, 0, 11, 5][busy as usize],
            lacks,
            ..Link::new(server, mbit, rtt)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn everything_arrives_or_is_reported(
        links in prop::collection::vec((0..3_u8).prop_flat_map(link), 1..6),
        wanted in prop::collection::vec((0..300_000_u64, prop::collection::vec(0..4_u8, 1..4)), 1..60),
    ) {
        let mut links = links;
        // Server 3 never fails, so every file that it has arrives.
        links.push(Link::new(3, 20, 30));
        let wanted: Vec<FileSpec> =
            wanted.into_iter().map(|(bytes, servers)| FileSpec { bytes, servers }).collect();
        let is_led_to = |server: ServerId| links.iter().any(|link| link.server == server);
        // The caller reports a server without a connection as useless. This test gives such a server no
        // files.
        let wanted: Vec<FileSpec> = wanted.into_iter().map(|mut wanted| {
            wanted.servers.retain(|server| is_led_to(*server));
            wanted
        }).collect();
        let ended = run(&wanted, &links);
        for (n, wanted) in wanted.iter().enumerate() {
            prop_assert!(ended.complete[n] || ended.lost[n], "file {} at {:?}", n, ended.at);
            prop_assert!(ended.complete[n] || !wanted.servers.contains(&3), "file {}", n);
        }
    }
}
