//! Tests controllers that a program registers: the example `your_controller`, in every transport and in
//! sweeps.

use anabranch_algo::control::{ClassicCc, SlowStart};
use anabranch_lab::scenario::Scenario;
use anabranch_lab::scenario::load::ScenarioReader;
use anabranch_lab::sweep::{Plan, store};
use anabranch_lab::{Controllers, run};

use crate::your_controller::{Gentle, compare};

fn reader() -> ScenarioReader {
    let own = Controllers::default().with("gentle", || ClassicCc::new(Gentle, SlowStart::Standard));
    ScenarioReader::default().controllers(own.expect("a new name"))
}

/// A link that never queues and loses one packet in 2,000, for a flow of `gentle` and one of Reno.
const LOSSY: &str = r#"
    title = "AIMD(1, 0.7) and AIMD(1, 0.5) where both lose as much"
    duration = "1000 s"
    count_from = "20 s"
    [link.wide]
    rate = "1 Gbit/s"
    loss = 0.0005
    [flow.gentle]
    controller = "gentle"
    paths = [{ via = ["wide"], rtt = "50 ms" }]
    [flow.reno]
    paths = [{ via = ["wide"], rtt = "50 ms" }]
    [[measure]]
    metric = "gentle"
    kind = "packets"
    flows = ["gentle"]
    [[measure]]
    metric = "reno"
    kind = "packets"
    flows = ["reno"]
"#;

/// If each packet is lost with probability p, the squared window before a loss is 2 Y / p with Y = Σ b²ᵏ Eₖ,
/// where the Eₖ are exponential with mean 1 and b is the part that a loss leaves. The mean window is
/// √(2 / p) / E[Y^-½]: 1.310 / √p for b = 1/2 (Ott, Kemperman and Mathis, 1996), 1.752 / √p for b = 0.7.
#[test]
fn it_takes_what_the_formula_says() {
    let scenario = reader().parse(LOSSY, "lossy").expect("a scenario");
    let ratios: Vec<f64> = (1..=3)
        .map(|seed| {
            let outcome = run::run(&scenario, "nmcc", seed);
            assert_eq!(outcome.violations, [""; 0]);
            outcome.values[0].expect("a value") / outcome.values[1].expect("a value")
        })
        .collect();
    let (mean, wanted) = (ratios.iter().sum::<f64>() / 3.0, 1.752 / 1.310);
    assert!((mean / wanted - 1.0).abs() < 0.05, "{ratios:?}, {wanted} wanted");
}

#[test]
fn the_example_makes_a_table_of_any_scenario() {
    let text = compare("bench-a", 1).expect("a table");
    assert!(text.contains("gentle") && text.contains("reno") && !text.contains("broke off"), "{text}");
    let what = compare("no-such", 1).expect_err("no scenario").to_string();
    assert!(what.contains("no-such: cannot be read"), "{what}");
}

#[test]
fn it_runs_in_every_transport() {
    for transport in ["packet", "mmtp", "mirrors"] {
        let text = format!(
            "title = \"t\"\nduration = \"20 s\"\n[link.a]\nrate = \"10 Mbit/s\"\nqueue = \"50 ms\"\n\
             [flow.f]\ntransport = \"{transport}\"\ncontroller = \"gentle\"\n\
             paths = [{{ via = [\"a\"], rtt = \"30 ms\" }}, {{ via = [\"a\"], rtt = \"40 ms\" }}]\n\
             [[measure]]\nmetric = \"m\"\nkind = \"utilisation\"\nlinks = [\"a\"]\n"
        );
        let scenario = reader().parse(&text, transport).expect(transport);
        let outcome = run::run(&scenario, "nmcc", 1);
        assert_eq!(outcome.violations, [""; 0], "{transport}");
        assert!(outcome.values[0].expect(transport) > 80.0, "{transport}: {:?}", outcome.values);
        assert_ne!(outcome.digest, run::run(&scenario_with_reno(&scenario), "nmcc", 1).digest, "{transport}");
    }
}

fn scenario_with_reno(scenario: &Scenario) -> Scenario {
    let mut reno = scenario.clone();
    reno.set("flow.f.controller", "reno").expect("a key");
    reno
}

#[test]
fn names_are_known_in_cases_and_values_that_are_set() {
    let text = LOSSY.replace("title", "controllers = [\"gentle\", \"reno\"]\n    title")
        + "[[case]]\nname = \"loss\"\nset = { \"flow.reno.controller\" = \"gentle\" }\n";
    let scenario = reader().parse(&text, "x").expect("a scenario");
    let plan = Plan::new("x", scenario, &[]).expect("a plan");
    assert_eq!(
        (plan.controllers.as_slice(), plan.variants.len()),
        (&["gentle".into(), "reno".into()][..], 1)
    );
    let unknown = Scenario::parse(&text, "x").expect_err("only the reader knows it").to_string();
    assert!(unknown.starts_with("x:2: controllers.0: there is no controller `gentle`"), "{unknown}");
    let misspelt = reader().parse(&text.replace("[\"gentle\"", "[\"gentel\""), "x").expect_err("misspelt");
    let said = "there is no controller `gentel`: did you mean `gentle`? There are gentle, cubic-coupled";
    assert!(misspelt.to_string().contains(said), "{misspelt}");
}

/// Another build of the program may use a controller's name for other code, so results belong to one
/// program.
#[test]
fn results_belong_to_the_program() {
    let plan = |reader: ScenarioReader, text: &str| {
        Plan::new("x", reader.parse(text, "x").expect("a scenario"), &[]).expect("a plan")
    };
    let code = |plan: &Plan| store::keys(plan, &plan.tasks())[0].code.clone();
    let (own, table) = (plan(reader(), LOSSY), LOSSY.replace("\"gentle\"\n    paths", "\"lia\"\n    paths"));
    let table = plan(ScenarioReader::default(), &table);
    assert_eq!(code(&table), anabranch_lab::sweep::VERSION);
    assert!(code(&own).starts_with(anabranch_lab::sweep::VERSION) && code(&own) != code(&table));
}
