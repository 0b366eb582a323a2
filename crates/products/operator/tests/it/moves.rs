//! Moves without a network between: every step fails, before or after its effect, and either agent is killed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch_algo::Span;
use anabranch_function::abi::Side;
use anabranch_function::packet::echo_request;
use anabranch_machines::journal::{Arrival, Asked};
use anabranch_machines::wire::MoveId;
use anabranch_net::Clock;
use anabranch_operator::arrivals::Arrivals;
use anabranch_operator::frame::{HEADER_BYTES, Header, IPV4, Mac};
use anabranch_operator::functions;
use anabranch_operator::host::Host;
use anabranch_operator::manager::{Manager, Wish};
use anabranch_operator::mover::{Destination, Goal};
use anabranch_operator::plane::{Look, Phase};
use anabranch_operator::records::InFile;
use anabranch_operator::spec::Spec;
use anabranch_operator::wasm::{Settings, Wasm};
use anabranch_operator::wire::Frame;
use anabranch_operator::{Error, Result};
use tempfile::TempDir;

use super::modules::are_built;

/// A host without devices, whose records are on disk.
struct Place {
    path: PathBuf,
    wasm: Arc<Wasm>,
    manager: Arc<Manager>,
    arrivals: Arrivals,
}

impl Place {
    /// Opens a host; modules are compiled once for all hosts of a test.
    fn open(path: &Path, wasm: &Arc<Wasm>) -> Self {
        let host = Host::start([None, None], Clock::start()).unwrap();
        let (manager, troubles) =
            Manager::new(Arc::clone(wasm), host, Box::new(InFile::open(path).unwrap())).unwrap();
        assert_eq!(troubles, Vec::<String>::new());
        let manager = Arc::new(manager);
        let arrivals = Arrivals::new(Arc::clone(&manager));
        Self { path: path.to_owned(), wasm: Arc::clone(wasm), manager, arrivals }
    }

    /// Loses all that is in memory, as SIGKILL does, and starts again.
    fn restarted(self) -> Self {
        let (path, wasm) = (self.path.clone(), Arc::clone(&self.wasm));
        drop(self);
        Self::open(&path, &wasm)
    }

    fn look(&self) -> Option<Look> {
        self.manager.list().unwrap().into_iter().find(|look| look.spec.name == "n")
    }

    fn runs(&self) -> bool {
        self.look().is_some_and(|look| look.phase == Phase::Runs)
    }

    /// Has a frame come from inside.
    fn come(&self, frame: Vec<u8>) {
        let come = move |plane: &mut anabranch_operator::plane::Plane,
                         now,
                         send: anabranch_operator::plane::Sink<'_>| {
            plane.handle(now, Side::Inside, &frame, send);
        };
        self.manager.host().ask(come).unwrap();
    }
}

/// A step of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Prepare,
    Ahead,
    State,
    Resume,
    Frames,
    Done,
}

/// The way to a destination, which is cut at a step: before its effect, or after it.
struct Way<'a> {
    to: &'a Arrivals,
    cut: Option<(Step, bool)>,
    /// Done when the state comes, while the instance stands still.
    meanwhile: Box<dyn FnMut() + Send + 'a>,
}

impl<'a> Way<'a> {
    fn new(to: &'a Place, cut: Option<(Step, bool)>) -> Self {
        Self { to: &to.arrivals, cut, meanwhile: Box::new(|| ()) }
    }

    fn walk<R>(&mut self, step: Step, effect: impl FnOnce(&Arrivals) -> Result<R>) -> Result<R> {
        let cut = || Err(Error::Unreachable("it was cut".into()));
        match self.cut {
            Some((at, false)) if at == step => cut(),
            Some((at, true)) if at == step => effect(self.to).and_then(|_| cut()),
            _ => effect(self.to),
        }
    }
}

impl Destination for Way<'_> {
    fn prepare(&mut self, id: &MoveId, spec: &Spec, module: &[u8]) -> Result {
        let module = module.to_vec();
        self.walk(Step::Prepare, |to| {
            to.module(&module)?;
            to.prepare("a", id, spec.clone())
        })
    }

    fn state(&mut self, id: &MoveId, age_ms: Option<u64>, delta: &[u8]) -> Result {
        if age_ms.is_none() {
            return self.walk(Step::Ahead, |to| to.state("a", id, age_ms, delta));
        }
        (self.meanwhile)();
        self.walk(Step::State, |to| to.state("a", id, age_ms, delta))
    }

    fn decide(&mut self, id: &MoveId, asked: Asked) -> Result<Arrival> {
        match asked {
            Asked::Resume => self.walk(Step::Resume, |to| to.decide("a", id, asked)),
            Asked::Abort => self.to.decide("a", id, asked),
        }
    }

    fn frames(&mut self, id: &MoveId, frames: &[Frame]) -> Result {
        self.walk(Step::Frames, |to| to.frames("a", id, frames.to_vec()))
    }

    fn done(&mut self, id: &MoveId) -> Result {
        self.walk(Step::Done, |to| to.done("a", id))
    }
}

/// Two hosts, and a NAT at the first of them that has a mapping.
fn bed_with(wasm: &Arc<Wasm>) -> (TempDir, Place, Place) {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| Place::open(&dir.path().join(name), wasm));
    start(&a, "n").unwrap();
    a.come(outgoing(&a.look().unwrap().spec, 1));
    assert_eq!(a.look().unwrap().counters.passed, 1);
    (dir, a, b)
}

fn wasm() -> Arc<Wasm> {
    Arc::new(Wasm::new(Settings { instances_max: 16, ..Settings::default() }).unwrap())
}

fn bed() -> Option<(TempDir, Place, Place)> {
    are_built().then(|| bed_with(&wasm()))
}

fn start(at: &Place, name: &str) -> Result<Spec> {
    let wish = Wish {
        name: name.into(),
        function: "nat44".into(),
        module: functions::find("nat44")?.to_vec(),
        settings: vec![],
        inside: "10.1.0.1/24".parse().unwrap(),
        outside: Some("10.2.0.1/24".parse().unwrap()),
        gateway: None,
    };
    at.manager.run(wish).map(|(spec, _)| spec)
}

/// A ping of a user to a host outside.
fn outgoing(spec: &Spec, id: u16) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    Header { to: spec.mac, from: Mac([2; 6]), ethertype: IPV4 }.write(&mut frame);
    frame.extend(echo_request(0x0a01_0009, 0x0a02_0009, id, 1));
    frame
}

fn goal() -> Goal {
    Goal { to: "b".into(), addresses: vec![], tail: Span::ZERO }
}

#[test]
fn it_moves_with_its_state_and_packets_follow() {
    let Some((_dir, a, b)) = bed() else { return };
    let spec = a.look().unwrap().spec;
    let (_, report) = a.manager.console("n").unwrap();
    let mut way = Way::new(&b, None);
    way.meanwhile = Box::new(|| (2..5).for_each(|id| a.come(outgoing(&spec, id))));
    let moved = a.manager.depart("n", &goal(), &mut way).unwrap();
    drop(way);
    assert!(moved.state_bytes > 100_000 && moved.late_bytes < 1_000, "{moved:?}");
    assert_eq!((moved.waited, moved.late), (3, 0));
    assert!(a.look().is_none() && b.runs());
    assert_eq!(b.look().unwrap().spec, spec);
    let counters = b.look().unwrap().counters;
    assert_eq!((counters.came, counters.passed), (3, 3));
    assert!(report.unwrap().contains("passed 1\n"));
    let (_, report) = b.manager.console("n").unwrap();
    assert!(report.unwrap().contains("passed 4\n"), "it counts on from its state");
    // It goes back, and nothing is left of the moves.
    b.manager.depart("n", &goal(), &mut Way::new(&a, None)).unwrap();
    assert!(a.runs() && b.look().is_none());
    let (a, b) = (a.restarted(), b.restarted());
    assert!(a.runs() && b.look().is_none());
    a.manager.end("n").unwrap();
    assert!(a.restarted().look().is_none());
}

#[test]
fn wherever_it_is_cut_one_instance_runs() {
    if !are_built() {
        return;
    }
    let wasm = wasm();
    for step in [Step::Prepare, Step::Ahead, Step::State, Step::Resume, Step::Frames, Step::Done] {
        for is_after in [false, true] {
            for killed in ["", "a", "b", "ab"] {
                let (_dir, mut a, mut b) = bed_with(&wasm);
                let moved = a.manager.depart("n", &goal(), &mut Way::new(&b, Some((step, is_after))));
                let case = format!("cut at {step:?}, after: {is_after}, killed: {killed}");
                assert_eq!(moved.is_ok(), matches!(step, Step::Frames | Step::Done), "{case}: {moved:?}");
                assert!(!(a.runs() && b.runs()), "{case}");
                // The agents may be killed at that very step.
                if killed.contains('a') {
                    a = a.restarted();
                }
                if killed.contains('b') {
                    b = b.restarted();
                }
                assert!(!(a.runs() && b.runs()), "{case}");
                let open = a.manager.undecided().unwrap();
                assert_eq!(open.len(), usize::from(step == Step::Resume), "{case}");
                for (name, leaving) in open {
                    assert_eq!(a.look().unwrap().phase, Phase::Still, "{case}");
                    let runs_here =
                        a.manager.settle(&name, &leaving, Span::ZERO, &mut Way::new(&b, None)).unwrap();
                    // A destination that was killed before it heard the word has forgotten the move.
                    assert_eq!(runs_here, !is_after && killed.contains('b'), "{case}");
                }
                assert!(a.runs() != b.runs(), "{case}");
                let (a, b) = (a.restarted(), b.restarted());
                assert!(a.runs() != b.runs(), "{case}, after a restart");
                let at = if a.runs() { &a } else { &b };
                if at.path.ends_with("b") || step == Step::Resume {
                    let (_, report) = at.manager.console("n").unwrap();
                    assert!(report.unwrap().contains("users 1\n"), "{case}: its state is there");
                }
            }
        }
    }
}

#[test]
fn what_a_destination_does_not_want_runs_on() {
    let Some((_dir, a, b)) = bed() else { return };
    start(&b, "other").unwrap();
    let refused = a.manager.depart("n", &goal(), &mut Way::new(&b, None)).unwrap_err();
    assert_eq!(refused, Error::Refused("the address 10.1.0.1 is taken by another instance".into()));
    assert!(a.runs());
    // The address is taken only after the destination has agreed to wait.
    b.manager.end("other").unwrap();
    let mut way = Way::new(&b, None);
    way.meanwhile = Box::new(|| drop(start(&b, "other").unwrap()));
    let refused = a.manager.depart("n", &goal(), &mut way).unwrap_err();
    assert!(refused.to_string().contains("runs on here"), "{refused}");
    assert!(a.runs());
    assert!(matches!(a.manager.depart("m", &goal(), &mut Way::new(&b, None)), Err(Error::NotFound(_))));
    // While it is on its way, it neither ends nor goes elsewhere.
    b.manager.end("other").unwrap();
    let mut way = Way::new(&b, None);
    way.meanwhile = Box::new(|| {
        assert!(matches!(a.manager.end("n"), Err(Error::Refused(_))));
        let second = a.manager.depart("n", &goal(), &mut Way::new(&b, None));
        assert!(matches!(second, Err(Error::Refused(_))));
    });
    a.manager.depart("n", &goal(), &mut way).unwrap();
    assert!(b.runs());
}

#[test]
fn another_client_decides_nothing() {
    let Some((_dir, a, b)) = bed() else { return };
    let spec = a.look().unwrap().spec;
    let id = MoveId::new([7; 16]);
    b.arrivals.module(functions::find("nat44").unwrap()).unwrap();
    b.arrivals.prepare("a", &id, spec.clone()).unwrap();
    assert!(b.arrivals.prepare("a", &id, spec.clone()).is_err(), "twice");
    let delta = anabranch_operator::delta::between(&[], &vec![1; 1 << 20]);
    assert!(b.arrivals.state("c", &id, Some(1), &[]).is_err());
    assert!(b.arrivals.state("a", &id, Some(1), &delta).is_err(), "that is no state of a NAT");
    assert_eq!(b.arrivals.decide("c", &id, Asked::Resume), Ok(Arrival::Refused));
    assert_eq!(b.arrivals.decide("a", &id, Asked::Resume), Ok(Arrival::Waiting), "its state is missing");
    assert!(b.arrivals.frames("a", &id, vec![]).is_err(), "it does not run");
    assert_eq!(b.arrivals.decide("a", &id, Asked::Abort), Ok(Arrival::Refused));
    assert_eq!(b.arrivals.decide("a", &id, Asked::Resume), Ok(Arrival::Refused), "for ever");
    let evil = Spec { name: "../x".into(), ..spec };
    assert!(matches!(b.arrivals.prepare("a", &id, evil), Err(Error::Usage(_))));
}
