use super::*;

/// A connection as the test makes it up.
#[derive(Clone, Copy)]
struct Made {
    rate: u64,
    rtt_ms: u64,
    queue_ms: u64,
}

/// 6.4 Mbit/s, 40 ms.
const IDLE: Made = Made { rate: 800_000, rtt_ms: 40, queue_ms: 0 };
const QUEUED: Made = Made { queue_ms: 10, ..IDLE };
const FOLLOWS: u64 = 2 * 1_448;

struct World {
    windows: ReceiveWindows,
    now: Time,
    samples: Vec<TcpSample>,
}

impl World {
    fn new(sharing: &[Sharing]) -> Self {
        let mut windows = ReceiveWindows::new();
        let control = Algorithm::by_name("cubic-coupled").expect("it is there");
        sharing.iter().for_each(|sharing| windows.add(*sharing, control));
        let samples = vec![TcpSample { mss: 1_448, ..TcpSample::default() }; sharing.len()];
        let mut new = Self { windows, now: Time::ZERO, samples };
        // The smallest round trip.
        new.run(200, &vec![IDLE; sharing.len()]);
        new
    }

    /// For so many milliseconds connections are like this; those without a rate are silent.
    fn run(&mut self, ms: u64, made: &[Made]) {
        for _ in 0..ms / 10 {
            self.now += Span::from_millis(10);
            for (c, made) in made.iter().enumerate().filter(|(_, made)| made.rate > 0) {
                self.samples[c].received_bytes += made.rate / 100;
                let segments = self.samples[c].received_bytes / u64::from(self.samples[c].mss);
                self.samples[c].segments = u32::try_from(segments).expect("few");
                self.samples[c].rtt = Span::from_millis(made.rtt_ms + made.queue_ms);
                self.windows.sample(self.now, c, &self.samples[c]);
            }
        }
        while self.windows.next_window().is_some() {}
    }

    fn windows(&self) -> Vec<Option<u64>> {
        (0..self.samples.len()).map(|c| self.windows.window(c)).collect()
    }
}

const ONE: [Sharing; 2] = [Sharing::Given(0); 2];
const LIFTED: Option<u64> = Some(WINDOW_LIFTED_BYTES);

#[test]
fn without_a_queue_nothing_is_bounded() {
    let mut world = World::new(&ONE);
    world.run(60_000, &[IDLE; 2]);
    assert_eq!(world.windows(), [None; 2]);
    // A queue of one of them is not one of both.
    world.run(1_000, &[QUEUED, IDLE]);
    assert_eq!(world.windows(), [None; 2]);
}

#[test]
fn where_both_have_a_queue_the_faster_one_leads_and_the_other_follows() {
    let mut world = World::new(&ONE);
    world.run(600, &[IDLE, Made { rate: 1_600_000, ..IDLE }]);
    world.run(100, &[QUEUED, Made { rate: 1_600_000, ..QUEUED }]);
    // A sixteenth of 1.6 MB/s for about 42 ms, as far as that is measured.
    let [Some(follower), None] = world.windows()[..] else { panic!("{:?}", world.windows()) };
    assert!((3_300..=5_000).contains(&follower), "{follower}");
    // Without a queue for some seconds both are free.
    world.run(QUEUE_KEPT.as_millis() + 100, &[IDLE; 2]);
    assert_eq!(world.windows(), [LIFTED, None]);
}

#[test]
fn connections_of_other_groups_and_one_alone_are_not_bounded() {
    let mut world = World::new(&[Sharing::Given(0), Sharing::Given(1)]);
    world.run(30_000, &[QUEUED; 2]);
    assert_eq!(world.windows(), [None; 2]);
    let mut world = World::new(&ONE);
    world.run(3_000, &[QUEUED; 2]);
    assert_eq!(world.windows(), [None, Some(FOLLOWS)]);
    // The floor: when the other one falls silent, the follower is free.
    world.run(SILENCE.as_millis() + 200, &[Made { rate: 0, ..IDLE }, QUEUED]);
    assert_eq!(world.windows(), [None, LIFTED]);
}

#[test]
fn a_leader_that_brings_little_gives_way_once() {
    let mut world = World::new(&ONE);
    world.run(2_000, &[QUEUED; 2]);
    let at = |rate| Made { rate, ..QUEUED };
    world.run(8_000, &[at(300_000), at(500_000)]);
    assert_eq!(world.windows(), [Some(FOLLOWS), LIFTED], "the other may bring twice as much");
    // It brings less than the first one did, which is now known of both, but not less than half of it.
    world.run(60_000, &[at(100_000), at(300_000)]);
    assert_eq!(world.windows()[1], LIFTED);
    world.run(8_000, &[at(100_000); 2]);
    assert_eq!(world.windows()[0], LIFTED);
}

#[test]
fn a_follower_whose_queue_goes_away_is_free() {
    let mut world = World::new(&ONE);
    world.run(1_000, &[QUEUED; 2]);
    assert_eq!(world.windows(), [None, Some(FOLLOWS)]);
    // 0.5 s and eight round trips.
    world.run(1_000, &[QUEUED, IDLE]);
    assert_eq!(world.windows(), [None, LIFTED]);
    world.run(APART.as_millis() - 2_000, &[QUEUED; 2]);
    assert_eq!(world.windows(), [None, LIFTED], "it fills a queue of its own");
    world.run(3_000, &[QUEUED; 2]);
    assert_eq!(world.windows(), [None, Some(FOLLOWS)], "things may have changed");
}

#[test]
fn a_connection_that_the_detector_joined_wrongly_loses_an_eighth_for_a_moment() {
    let mut world = World::new(&[Sharing::Detected { uplink: Some(0) }; 2]);
    world.run(600, &[QUEUED; 2]);
    // What 800 kB/s bring in 40 ms, and seven eighths of it.
    let [None, Some(trial)] = world.windows()[..] else { panic!("{:?}", world.windows()) };
    assert!((26_000..=28_500).contains(&trial), "{trial}");
    let mut least = trial;
    for _ in 0..30 {
        world.run(100, &[QUEUED, Made { rate: 600_000, ..IDLE }]);
        least = least.min(world.windows()[1].expect("it was bounded"));
    }
    assert_eq!((world.windows(), least), (vec![None, LIFTED], trial));
    // A queue that stays is that of others.
    let mut world = World::new(&[Sharing::Detected { uplink: Some(0) }; 2]);
    world.run(3_000, &[QUEUED; 2]);
    assert_eq!(world.windows(), [None, Some(FOLLOWS)]);
}

#[test]
fn over_one_uplink_a_queue_is_enough_and_over_two_delays_must_go_together() {
    let over = |uplink| Sharing::Detected { uplink: Some(uplink) };
    let mut world = World::new(&[over(0), over(0), over(1)]);
    let mut random = anabranch_algo::SplitMix64(1);
    world.run(100, &[QUEUED; 3]);
    assert!(world.windows()[1].is_some() && world.windows()[2].is_none(), "{:?}", world.windows());
    for _ in 0..1_000 {
        let made = Made { queue_ms: 3 + random.below(20), ..IDLE };
        world.run(20, &[made; 3]);
    }
    assert_eq!(world.windows(), [None, Some(FOLLOWS), Some(FOLLOWS)], "one modem behind all");
}

#[test]
fn another_tcp_connection_counts_from_zero_and_a_restart_forgets() {
    let mut world = World::new(&ONE);
    world.run(2_000, &[QUEUED; 2]);
    world.samples[0].received_bytes = 0;
    world.run(2_000, &[QUEUED; 2]);
    assert_eq!(world.windows(), [None, Some(FOLLOWS)]);
    assert_eq!(world.windows.packets(0), 27, "6.4 Mbit/s for 50 ms");
    world.windows.restart(1);
    assert_eq!(world.windows.next_window(), Some((1, WINDOW_LIFTED_BYTES)));
    assert_eq!((world.windows.srtt(1), world.windows.packets(1)), (Span::ZERO, 1));
}

#[test]
fn a_scavenger_is_bounded_from_the_start_and_also_alone() {
    let mut windows = ReceiveWindows::new();
    windows.add(Sharing::Given(0), Algorithm::by_name("ledbat-pp").expect("it is there"));
    let sample = TcpSample { rtt: Span::from_millis(50), mss: 1_000, ..TcpSample::default() };
    windows.sample(Time::ZERO, 0, &sample);
    let Some((0, bytes)) = windows.next_window() else { panic!("it is bounded") };
    assert!((2_000..64_000).contains(&bytes), "{bytes}");
}
