use proptest::prelude::*;

use super::*;

fn gid(number: u64) -> Gid {
    Gid::new(number).expect("not zero")
}

fn new(is_paused: bool, index: Option<usize>) -> NewJob {
    NewJob {
        source: Source::Uris(vec!["http://a.example/f".into()]),
        options: Options::new(),
        is_paused,
        index,
    }
}

fn queue(jobs: u64) -> Queue {
    let mut queue = Queue::default();
    (1..=jobs).for_each(|number| assert!(queue.add(new(false, None), gid(number))));
    queue
}

fn gids<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<u64> {
    jobs.map(|job| (1..).find(|number| gid(*number) == job.gid).expect("a small one")).collect()
}

fn starts(queue: &mut Queue) -> Vec<(Gid, Run)> {
    let start = |effect| match effect {
        Effect::Start(gid, run) => Some((gid, run)),
        _ => None,
    };
    queue.take_effects().into_iter().filter_map(start).collect()
}

#[test]
fn the_next_in_the_queue_takes_the_place_that_becomes_free() {
    let mut queue = queue(8);
    assert_eq!((gids(queue.active()), gids(queue.waiting())), (vec![1, 2, 3, 4, 5], vec![6, 7, 8]));
    let runs = starts(&mut queue);
    queue.ended(runs[1].1, Outcome::Complete, Known::default());
    let failed = End { code: End::NOT_FOUND, message: "404".into() };
    queue.ended(runs[2].1, Outcome::Failed(failed.clone()), Known::default());
    assert_eq!((gids(queue.active()), gids(queue.waiting())), (vec![1, 4, 5, 6, 7], vec![8]));
    assert_eq!(gids(queue.results()), [2, 3]);
    assert_eq!(queue.job(gid(3)).expect("a result").end, Some(failed));
    let wanted = [
        Effect::Tell(Notice::Complete, gid(2)),
        Effect::Start(gid(6), Run(5)),
        Effect::Tell(Notice::Start, gid(6)),
        Effect::Tell(Notice::Error, gid(3)),
        Effect::Start(gid(7), Run(6)),
        Effect::Tell(Notice::Start, gid(7)),
    ];
    assert_eq!(queue.take_effects(), wanted);
    assert!(!queue.add(new(false, None), gid(3)), "a result keeps its identifier");
}

#[test]
fn a_paused_job_starts_again_only_when_its_transfer_has_ended() {
    let mut queue = queue(6);
    let (_, run) = starts(&mut queue)[0];
    queue.pause(gid(1)).expect("it is active");
    assert_eq!((gids(queue.active()), gids(queue.waiting())), (vec![2, 3, 4, 5, 6], vec![1]));
    assert_eq!(queue.take_effects()[..2], [Effect::Stop(run), Effect::Tell(Notice::Pause, gid(1))]);
    assert_eq!(queue.pause(gid(1)), Err(Refusal::State));
    queue.set_at_once(NonZero::new(9).expect("some"));
    queue.unpause(gid(1)).expect("it is paused");
    assert_eq!(queue.job(gid(1)).expect("it waits").status, Status::Waiting);
    queue.ended(run, Outcome::Stopped, Known::default());
    assert_eq!(starts(&mut queue), [(gid(1), Run(6))]);
    assert_eq!(queue.unpause(gid(1)), Err(Refusal::State));
    assert_eq!(queue.unpause(gid(99)), Err(Refusal::Unknown));
}

#[test]
fn a_removed_job_keeps_its_result_whatever_its_transfer_says() {
    let mut queue = queue(2);
    let runs = starts(&mut queue);
    queue.remove(gid(1)).expect("it is active");
    queue.ended(runs[0].1, Outcome::Complete, Known::default());
    assert_eq!(queue.job(gid(1)).expect("a result").status, Status::Removed);
    assert_eq!(
        (queue.remove(gid(1)), queue.remove_result(gid(2))),
        (Err(Refusal::State), Err(Refusal::State))
    );
    queue.remove_result(gid(1)).expect("a result");
    assert_eq!(queue.job(gid(1)), None);
    // A file that was complete a moment before the pause is complete.
    queue.pause(gid(2)).expect("it is active");
    queue.ended(runs[1].1, Outcome::Complete, Known::default());
    assert_eq!(queue.job(gid(2)).expect("a result").status, Status::Complete);
}

#[test]
fn positions_count_from_three_places() {
    let mut queue = Queue::default();
    (1..=5).for_each(|number| assert!(queue.add(new(true, None), gid(number))));
    let mut moved = |number, by, how| (queue.change_position(gid(number), by, how), gids(queue.waiting()));
    assert_eq!(moved(5, 0, How::Set), (Ok(0), vec![5, 1, 2, 3, 4]));
    assert_eq!(moved(5, 2, How::Current), (Ok(2), vec![1, 2, 5, 3, 4]));
    assert_eq!(moved(1, -1, How::End), (Ok(3), vec![2, 5, 3, 1, 4]));
    assert_eq!(moved(2, i64::MAX, How::Current), (Ok(4), vec![5, 3, 1, 4, 2]));
    assert_eq!(moved(2, i64::MIN, How::End), (Ok(0), vec![2, 5, 3, 1, 4]));
    assert!(queue.add(new(true, Some(1)), gid(6)));
    assert_eq!(gids(queue.waiting()), [2, 6, 5, 3, 1, 4]);
}

#[test]
fn results_are_bounded_and_purged() {
    let mut queue = queue(5);
    queue.set_results_max(2);
    for number in [3, 1, 2] {
        queue.remove(gid(number)).expect("it is active");
    }
    assert_eq!(gids(queue.results()), [1, 2]);
    queue.take_changed();
    queue.purge();
    assert_eq!(queue.take_changed(), BTreeSet::from([gid(1), gid(2)]));
    assert_eq!(queue.counts(), [2, 0, 0]);
}

/// One step of a random life of a queue.
#[derive(Clone, Debug)]
enum Step {
    Add(u64, bool, Option<usize>),
    Pause(u64),
    PauseAll,
    Unpause(u64),
    UnpauseAll,
    Restart(u64),
    Remove(u64),
    Forget(u64),
    Move(u64, i64, How),
    Limit(usize),
    End(usize, bool),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 1_u64..12;
    prop_oneof![
        (id.clone(), any::<bool>(), prop::option::of(0_usize..9)).prop_map(|(id, p, i)| Step::Add(id, p, i)),
        id.clone().prop_map(Step::Pause),
        Just(Step::PauseAll),
        id.clone().prop_map(Step::Unpause),
        Just(Step::UnpauseAll),
        id.clone().prop_map(Step::Restart),
        id.clone().prop_map(Step::Remove),
        id.clone().prop_map(Step::Forget),
        (id, -9_i64..9, prop_oneof![Just(How::Set), Just(How::Current), Just(How::End)])
            .prop_map(|(id, by, how)| Step::Move(id, by, how)),
        (1_usize..4).prop_map(Step::Limit),
        (0_usize..4, any::<bool>()).prop_map(|(which, well)| Step::End(which, well)),
        Just(Step::Reopen),
    ]
}

/// Keeps what the queue told the outside.
#[derive(Default)]
struct Outside {
    running: BTreeMap<Run, Gid>,
    disk: BTreeMap<Gid, Job>,
}

impl Outside {
    fn follow(&mut self, queue: &mut Queue) -> Result<(), TestCaseError> {
        for effect in queue.take_effects() {
            if let Effect::Start(gid, run) = effect {
                prop_assert!(!self.running.values().any(|other| *other == gid), "two transfers of one job");
                self.running.insert(run, gid);
            }
        }
        for gid in queue.take_changed() {
            match queue.job(gid) {
                Some(job) => drop(self.disk.insert(gid, job.clone())),
                None => drop(self.disk.remove(&gid)),
            }
        }
        let all: Vec<&Job> = queue.active().chain(queue.waiting()).chain(queue.results()).collect();
        prop_assert_eq!(all.len(), self.disk.len(), "each job is in one list");
        for job in all {
            prop_assert_eq!(Some(job), self.disk.get(&job.gid), "the disk has what the queue has");
        }
        let is_of = |jobs: Vec<&Job>, of: fn(Status) -> bool| jobs.iter().all(|job| of(job.status));
        prop_assert!(is_of(queue.active().collect(), |status| status == Status::Active));
        prop_assert!(is_of(queue.results().collect(), Status::is_result));
        let waits = |status| matches!(status, Status::Waiting | Status::Paused);
        prop_assert!(is_of(queue.waiting().collect(), waits));
        let active = queue.active().count();
        let could_start = |job: &Job| {
            job.status == Status::Waiting && !self.running.values().any(|other| *other == job.gid)
        };
        prop_assert!(active >= queue.at_once.get() || !queue.waiting().any(could_start), "a place is free");
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_job_is_in_one_list_and_the_disk_has_them_all(steps in prop::collection::vec(step(), 1..120)) {
        let (mut queue, mut outside) = (Queue::default(), Outside::default());
        for step in steps {
            let before = queue.clone();
            match step {
                Step::Add(id, paused, index) => {
                    let is_new = queue.job(gid(id)).is_none();
                    prop_assert_eq!(queue.add(new(paused, index), gid(id)), is_new);
                }
                Step::Pause(id) => drop(queue.pause(gid(id))),
                Step::PauseAll => queue.pause_all(),
                Step::Unpause(id) => drop(queue.unpause(gid(id))),
                Step::UnpauseAll => queue.unpause_all(),
                Step::Restart(id) => queue.restart(gid(id)),
                Step::Remove(id) => drop(queue.remove(gid(id))),
                Step::Forget(id) => drop(queue.remove_result(gid(id))),
                Step::Move(id, by, how) => drop(queue.change_position(gid(id), by, how)),
                Step::Limit(at_once) => queue.set_at_once(NonZero::new(at_once).expect("at least one")),
                Step::End(which, well) => {
                    let run = outside.running.keys().nth(which).copied();
                    if let Some(run) = run {
                        outside.running.remove(&run);
                        let end = End { code: End::UNKNOWN, message: String::new() };
                        let outcome = if well { Outcome::Complete } else { Outcome::Failed(end) };
                        queue.ended(run, outcome, Known::default());
                    }
                }
                Step::Reopen => {
                    queue = Queue::of(outside.disk.values().cloned());
                    outside.running.clear();
                    let order = before.active().chain(before.waiting()).map(|job| job.gid);
                    let order: Vec<Gid> = order.collect();
                    prop_assert_eq!(queue.waiting().map(|job| job.gid).collect::<Vec<_>>(), order);
                    prop_assert_eq!(gids(queue.results()), gids(before.results()));
                    queue.set_at_once(before.at_once);
                }
            }
            outside.follow(&mut queue)?;
        }
    }
}
