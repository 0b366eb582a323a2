//! Says where caches are, and when: the policies that the study compares.

use anabranch_sim::Rng;

/// Where caches are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// There is none; origin servers serve all.
    Origin,
    /// So many percent of the access networks, drawn at random, have a cache all the time.
    Traditional {
        /// Part of the access networks, percent.
        deployed_percent: u32,
    },
    /// A request in an access network without a cache goes to the origin server and starts a cache there,
    /// which serves the requests that come once it is up. A stream that began at the origin server stays
    /// there.
    Ephemeral {
        /// Time until the cache serves, seconds.
        boot_s: f64,
        /// Time without a viewer after which it is shut down, seconds.
        idle_s: f64,
    },
}

impl Policy {
    /// Returns the policy's name for tables.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Origin => "no caches".into(),
            Self::Traditional { deployed_percent } => format!("traditional, {deployed_percent} %"),
            Self::Ephemeral { boot_s, .. } if *boot_s < 1.0 => {
                format!("ephemeral, {} ms", (boot_s * 1e3).round())
            }
            Self::Ephemeral { boot_s, .. } => format!("ephemeral, {boot_s} s"),
        }
    }
}

/// The cache of one access network.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cache {
    Never,
    Always,
    Off,
    /// It serves from `ready_s` on. `idle_from_s` is when its last viewer left.
    On {
        ready_s: f64,
        viewers: u32,
        idle_from_s: f64,
    },
}

/// The caches of all access networks.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    caches: Vec<Cache>,
    boot_s: f64,
    idle_s: f64,
    boots: u32,
}

impl Fleet {
    pub(crate) fn new(policy: &Policy, access: usize, seed: u64) -> Self {
        let (mut boot, mut idle) = (0.0, f64::INFINITY);
        let caches = match *policy {
            Policy::Origin => vec![Cache::Never; access],
            Policy::Traditional { deployed_percent } => {
                // The order is the same for all fractions: more caches are those, and others.
                let mut rng = Rng::stream(seed, "deployment");
                let mut order: Vec<usize> = (0..access).collect();
                for place in (1..access).rev() {
                    order.swap(place, rng.below(place as u64 + 1) as usize);
                }
                let count = (access * deployed_percent as usize + 50) / 100;
                let mut caches = vec![Cache::Never; access];
                order.iter().take(count).for_each(|place| caches[*place] = Cache::Always);
                caches
            }
            Policy::Ephemeral { boot_s, idle_s } => {
                (boot, idle) = (boot_s, idle_s);
                vec![Cache::Off; access]
            }
        };
        Self { caches, boot_s: boot, idle_s: idle, boots: 0 }
    }

    /// Notes a request at this time; whether a cache serves it.
    pub(crate) fn ask(&mut self, access: u32, now_s: f64) -> bool {
        let cache = &mut self.caches[access as usize];
        if let Cache::On { ready_s, viewers: 0, idle_from_s } = *cache
            && now_s - f64::max(ready_s, idle_from_s) > self.idle_s
        {
            *cache = Cache::Off;
        }
        match cache {
            Cache::Never => false,
            Cache::Always => true,
            Cache::Off => {
                self.boots += 1;
                let ready_s = now_s + self.boot_s;
                *cache = Cache::On { ready_s, viewers: 0, idle_from_s: now_s };
                false
            }
            Cache::On { ready_s, viewers, .. } => {
                let is_up = now_s >= *ready_s;
                *viewers += u32::from(is_up);
                is_up
            }
        }
    }

    /// Notes that a viewer of the cache leaves.
    pub(crate) fn leave(&mut self, access: u32, now_s: f64) {
        if let Cache::On { viewers, idle_from_s, .. } = &mut self.caches[access as usize] {
            *viewers -= 1;
            *idle_from_s = now_s;
        }
    }

    /// Returns how often a cache was started.
    pub(crate) const fn boots(&self) -> u32 {
        self.boots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_boots_at_a_miss_and_is_shut_down() {
        let mut fleet = Fleet::new(&Policy::Ephemeral { boot_s: 0.5, idle_s: 10.0 }, 2, 1);
        assert!(!fleet.ask(0, 1.0) && !fleet.ask(0, 1.4) && fleet.ask(0, 1.5));
        assert!(!fleet.ask(1, 1.5), "each network has its own");
        fleet.leave(0, 20.0);
        assert!(fleet.ask(0, 29.0), "it waits for viewers");
        fleet.leave(0, 30.0);
        assert!(!fleet.ask(0, 40.1), "it was shut down after 10 s");
        assert!(fleet.ask(0, 41.0));
        assert_eq!(fleet.boots(), 3);
    }

    #[test]
    fn traditional_caches_are_nested() {
        let serves = |deployed_percent| {
            let mut fleet = Fleet::new(&Policy::Traditional { deployed_percent }, 871, 5);
            (0..871).map(|access| fleet.ask(access, 0.0)).collect::<Vec<bool>>()
        };
        let (some, more) = (serves(20), serves(40));
        assert_eq!(some.iter().filter(|it| **it).count(), 174);
        assert!(some.iter().zip(&more).all(|(some, more)| *more || !*some));
        assert!(serves(100).iter().all(|it| *it) && !serves(0).contains(&true));
    }
}
