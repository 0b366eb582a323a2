//! Tests how much a get in the background leaves to others, in virtual time: `scenarios/background.toml`
//! with one seed.

use std::collections::BTreeMap;
use std::path::Path;

use anabranch_lab::run::run;
use anabranch_lab::scenario::Scenario;

/// Indices of the scenario's measures.
const DOWNLOAD: usize = 0;
const GET: usize = 1;
const QUEUE_P99: usize = 2;

/// Returns the values of each case with this controller, by the case's name.
fn values(controller: &str, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<f64>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/background.toml");
    let cases = Scenario::load(&path).and_then(|scenario| scenario.cases()).expect("it is one");
    let named = cases.into_iter().map(|(name, case)| (name.expect("a name"), case));
    let measured = named.filter(|(name, _)| wanted(name)).map(|(name, case)| {
        let outcome = run(&case, controller, 1);
        assert!(outcome.violations.is_empty(), "{name}: {:?}", outcome.violations);
        (name, outcome.values.into_iter().map(|value| value.expect("it was measured")).collect())
    });
    measured.collect()
}

#[test]
fn in_the_background_a_get_leaves_nine_tenths_to_a_download() {
    let download = |name: &str| name.ends_with("download") && !name.contains("default");
    let measured = values("ledbat-pp", |name| download(name) && !name.contains("nobody"));
    let alone = values("cubic-coupled", |name| download(name) && name.contains("nobody"));
    assert_eq!((measured.len(), alone.len()), (6, 3));
    for (name, values) in measured {
        let queue = name.split(':').next().expect("it begins with its queue");
        let nobody = alone[&format!("{queue}: nobody, call and download")][DOWNLOAD];
        let kept = values[DOWNLOAD] / nobody;
        assert!(kept >= 0.9, "{name}: the download keeps {kept}");
    }
}

#[test]
fn in_the_background_a_get_alone_keeps_the_queue_short_and_uses_the_link() {
    let alone = |name: &str| name.ends_with(", call") && !name.contains("default");
    for (name, values) in values("ledbat-pp", alone) {
        // The limit is half of the queue, or the target of 60 ms with its excess.
        let most = if name.starts_with("200 ms") { 75.0 } else { 30.0 };
        assert!(values[QUEUE_P99] <= most && values[GET] >= 7.6, "{name}: {values:?}");
    }
}
