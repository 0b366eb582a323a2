//! Implements loss by script: drops exactly the listed packets.

/// Holds the numbers of the packets that a link drops, and how many of them it has dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedLoss {
    /// The numbers among all packets, sorted. The first `used` of them have been dropped.
    all: Vec<u64>,
    used: usize,
    /// The scripts for data of single flows, sorted by flow.
    flows: Vec<FlowScript>,
}

#[derive(Clone, Debug)]
struct FlowScript {
    flow: u32,
    offered: u64,
    nth: Vec<u64>,
    used: usize,
}

impl ScriptedLoss {
    /// Makes a script from `all` and `flows` as in [`LinkConfig`](crate::LinkConfig). Ignores the number 0.
    pub(crate) fn new(all: &[u64], flows: &[(u32, u64)]) -> Self {
        let tidy = |nth: &mut Vec<u64>| {
            nth.retain(|nth| *nth > 0);
            nth.sort_unstable();
            nth.dedup();
        };
        let mut script = Self { all: all.to_vec(), used: 0, flows: Vec::new() };
        tidy(&mut script.all);
        let mut flows = flows.to_vec();
        flows.sort_unstable();
        for (flow, nth) in flows {
            match script.flows.last_mut().filter(|last| last.flow == flow) {
                Some(last) => last.nth.push(nth),
                None => script.flows.push(FlowScript { flow, offered: 0, nth: vec![nth], used: 0 }),
            }
        }
        script.flows.iter_mut().for_each(|flow| tidy(&mut flow.nth));
        script
    }

    /// Returns whether to drop the `nth` packet offered, which is data of `flow` if that is not `None`.
    pub(crate) fn drops(&mut self, nth: u64, flow: Option<u32>) -> bool {
        let mut hit = false;
        if self.all.get(self.used) == Some(&nth) {
            self.used += 1;
            hit = true;
        }
        if let Some(flow) = flow
            && let Ok(i) = self.flows.binary_search_by_key(&flow, |entry| entry.flow)
        {
            let entry = &mut self.flows[i];
            entry.offered += 1;
            if entry.nth.get(entry.used) == Some(&entry.offered) {
                entry.used += 1;
                hit = true;
            }
        }
        hit
    }

    /// Returns the number of entries that no packet has met yet.
    pub(crate) fn remaining(&self) -> u64 {
        let flows: usize = self.flows.iter().map(|flow| flow.nth.len() - flow.used).sum();
        (self.all.len() - self.used + flows) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_and_of_flows() {
        let mut script = ScriptedLoss::new(&[9, 2, 2, 0], &[(5, 3), (4, 1), (5, 1), (5, 3), (6, 0), (4, 40)]);
        assert_eq!(script.remaining(), 6);
        let flows = [Some(5), None, Some(4), Some(6), Some(5), Some(5), Some(5), Some(4), None];
        let hit: Vec<u64> =
            (1..).zip(flows).filter(|(nth, flow)| script.drops(*nth, *flow)).map(|p| p.0).collect();
        // These packets are dropped: 1, the first of flow 5; 2, the second of all; 3, the first of flow 4; 6,
        // the third of flow 5; 9, the ninth of all.
        assert_eq!(hit, [1, 2, 3, 6, 9]);
        assert_eq!(script.remaining(), 1, "the fortieth of 4 has not come");
    }
}
