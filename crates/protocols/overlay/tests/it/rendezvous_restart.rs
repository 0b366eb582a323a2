//! A rendezvous that is ended and started again, from the changes that it reported, answers as one that was
//! never ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rendezvous_bed::{Bed, START, Step};
use anabranch_algo::{Machine as _, Output, Time};
use anabranch_overlay::domain::Domain;
use anabranch_overlay::rendezvous::{Change, Record, Rendezvous};
use proptest::prelude::*;

/// A rendezvous, and the records that its world has written down.
struct World {
    machine: Rendezvous,
    written: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl World {
    fn new(domain: &Arc<Domain>) -> Self {
        Self { machine: Rendezvous::new(Arc::clone(domain)), written: BTreeMap::new() }
    }

    /// Writes the changes down. Returns the answers, and until when the machine waits.
    fn drain(&mut self, now: Time) -> (Vec<Vec<u8>>, Time) {
        let mut answers: Vec<Vec<u8>> = Vec::new();
        loop {
            match self.machine.poll(now) {
                Output::Event(Change::Kept(record)) => {
                    assert!(answers.is_empty(), "it is written before anything is answered");
                    let key = anabranch_overlay::publication::Key::of(&record.signed.publication);
                    self.written.insert(key.to_bytes(), record.to_bytes());
                }
                Output::Event(Change::Forgotten(key)) => {
                    assert!(self.written.remove(&key.to_bytes()).is_some(), "it was written");
                }
                Output::Send(answer) => answers.push(answer.message),
                Output::Wait(until) => return (answers, until),
            }
        }
    }

    /// Restarts the rendezvous: changes that were not polled are lost; records that were written come back.
    fn restart(&mut self, domain: &Arc<Domain>, now: Time) {
        self.machine = Rendezvous::new(Arc::clone(domain));
        let machine = &mut self.machine;
        self.written.retain(|_, bytes| machine.restore(now, Record::parse(bytes).expect("a record")).is_ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_changes_nothing(steps in prop::collection::vec(crate::rendezvous_bed::step(), 1..60)) {
        let bed = Bed::new();
        let (mut whole, mut restarted) = (World::new(&bed.domain), World::new(&bed.domain));
        let (mut sent, mut now) = (Vec::new(), START);
        for (number, step) in steps.into_iter().enumerate() {
            if let Step::Restart = step {
                restarted.restart(&bed.domain, now);
            }
            if let Some((host, body)) = bed.apply(step, &mut sent, &mut now) {
                let (peer, bytes) = bed.message(host, now, number as u64, body);
                whole.machine.handle(now, (peer, &bytes));
                restarted.machine.handle(now, (peer, &bytes));
            }
            prop_assert_eq!(whole.drain(now), restarted.drain(now));
            prop_assert_eq!(whole.machine.len(), restarted.machine.len());
            prop_assert_eq!(&whole.written, &restarted.written);
            prop_assert_eq!(whole.written.len(), whole.machine.len(), "all of it is written, and no more");
        }
    }
}
