//! Tests the studies of tail loss and of latency on parts of their grids.

use anabranch_lab::latency::{self, Bed, Paths, Transport, Workload};
use anabranch_lab::tail_loss::{self, AlternateQueue, Lost, Task};
use anabranch_mptcp::TailLoss;

/// Bursts of a part of the grid, with the results of all policies.
fn part_of_the_grid() -> Vec<tail_loss::Row> {
    let tasks = Task::grid();
    let mut rows = Vec::new();
    for tasks in tasks.chunks(tail_loss::RUNS) {
        let burst = tasks[0].burst;
        let is_chosen = burst.alternate == AlternateQueue::Idle && [2, 10, 50].contains(&burst.segments);
        if is_chosen {
            let run = |task: &Task| task.run().unwrap_or_else(|what| panic!("{burst:?}: {what}"));
            let mut completions: Vec<_> = tasks.iter().map(run).collect();
            let whole = completions.pop().expect("the last run");
            rows.push(tail_loss::Row { burst, completions, whole });
        }
    }
    rows
}

#[test]
fn a_probe_on_the_alternate_path_is_never_slower_and_costs_at_most_one_segment() {
    let rows = part_of_the_grid();
    assert!(rows.len() > 50);
    for row in &rows {
        for policy in [TailLoss::AlternatePath, TailLoss::Overtake] {
            // The time of one segment at 25 Mbit/s.
            assert!(row.slower_by(policy).as_nanos() <= 480_000, "{row:?}");
            assert!(row.with(policy).time >= row.whole.time, "{row:?}");
            if row.burst.lost == Lost::Last(1) {
                // Of two segments, overtaking sends both again: the first may be lost, too.
                let most = if policy == TailLoss::Overtake { 2 } else { 1 };
                assert!(row.extra_segments(policy) <= most, "{row:?}");
            }
        }
        assert!(row.with(TailLoss::AlternatePath).time >= row.bound(2), "{row:?}");
        assert!(row.with(TailLoss::Overtake).time >= row.bound(1), "{row:?}");
    }
    assert_eq!(tail_loss::markdown(&rows), tail_loss::markdown(&rows));
    assert!(tail_loss::figure(&rows).starts_with("<svg"));
}

#[test]
fn a_cut_path_costs_redundant_video_nothing_and_pages_come_whole() {
    let run = |bed, workload, transport| {
        let task = latency::Task { bed, workload, transport, seed: 1 };
        task.run().unwrap_or_else(|what| panic!("{what}"))
    };
    let redundant = Transport::each().into_iter().find(|one| one.name() == "redundant").expect("one of them");
    let [without, with] = [false, true].map(|cut| {
        let bed = Bed { paths: Paths::Symmetric, long_buffers: false, background: false, cut };
        let frames = run(bed, Workload::Video, redundant).remove(0);
        assert_eq!(frames.len(), 750);
        frames.into_iter().max()
    });
    assert_eq!(with, without);
    let bed = Bed { paths: Paths::WlanAnd3g, long_buffers: false, background: true, cut: false };
    for transport in Transport::each() {
        let pages = run(bed, Workload::Page(0), transport);
        assert_eq!((pages.len(), pages[0].len()), (1, 1), "{}", transport.name());
    }
}
