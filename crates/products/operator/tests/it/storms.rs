//! Instances behind a real device.

use std::sync::atomic::AtomicBool;

use anabranch_net::{Namespace, testing};
use anabranch_operator::Error;
use anabranch_operator::functions;
use anabranch_operator::records::InMemory;
use anabranch_operator::storm::{Storm, run};
use anabranch_operator::wasm::Settings;

use super::modules::are_built;

#[test]
fn each_of_a_hundred_answers_pings() {
    if !are_built() {
        return;
    }
    if let Err(e) = Namespace::new() {
        return testing::refused(e);
    }
    let storm = |count, instances_max| Storm {
        count,
        function: "firewall".into(),
        module: functions::find("firewall").unwrap().to_vec(),
        settings: vec![],
        wasm: Settings { instances_max, ..Settings::default() },
    };
    let go_on = AtomicBool::new(false);
    let shown = match run(&storm(100, 100), Box::new(InMemory::default()), &go_on, |_| {}) {
        Err(Error::Kernel(why)) => return testing::refused_device(why),
        shown => shown.unwrap(),
    };
    assert_eq!((shown.starts.len(), shown.answered_again), (100, 100));
    assert!(shown.answered_within(500) <= shown.answered_within(990));
    let refused = run(&storm(11, 10), Box::new(InMemory::default()), &go_on, |_| {}).unwrap_err();
    assert_eq!(refused, Error::Refused("there are 10 instances here, which is the limit".into()));
    let stopped = run(&storm(9, 9), Box::new(InMemory::default()), &AtomicBool::new(true), |_| {});
    assert!(stopped.unwrap().starts.is_empty());
}
