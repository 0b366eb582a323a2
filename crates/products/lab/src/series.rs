//! Writes lines over time as comma-separated values: one value a line, so that any tool can filter, group
//! and draw.
//!
//! There is no Parquet output: its crate needs Arrow and dozens more, and tools that read Parquet read this
//! too.
//!
//! | column | meaning |
//! | --- | --- |
//! | `scenario`, `world`, `case`, `controller`, `seed` | the run |
//! | each key that is set | its value |
//! | `kind`, `name` | `goodput` (Mbit/s) of a flow, `cwnd` (packets) of a path, `queue` (packets) of a link |
//! | `time_s` | the end of the step |
//! | `value` | mean of the step (goodput), or value at its end (the others); empty if not finite |

use std::fmt::Write as _;

use crate::outcome::{Run, SeriesKind};
use crate::sweep::Plan;
use crate::table::quoted;

/// Returns the header line of a plan's file.
#[must_use]
pub fn head(plan: &Plan) -> String {
    let keys = plan.keys_set().map(|key| format!("{},", quoted(key))).collect::<String>();
    format!("scenario,world,case,controller,seed,{keys}kind,name,time_s,value\n")
}

/// Returns the lines of a run; empty if the run recorded nothing over time.
#[must_use]
pub fn lines(plan: &Plan, run: &Run) -> String {
    let variant = plan.variants.iter().find(|variant| variant.label() == run.case);
    let set = variant.map(|variant| plan.set_in(variant).collect::<Vec<_>>()).unwrap_or_default();
    let mut about: Vec<String> = vec![
        quoted(&plan.name),
        run.world.to_string(),
        quoted(variant.and_then(|variant| variant.case.as_deref()).unwrap_or_default()),
        quoted(&run.controller),
        run.seed.to_string(),
    ];
    about.extend(set.iter().map(|(_, value)| quoted(value)));
    let about = about.join(",");
    let (mut out, series) = (String::new(), &run.outcome.series);
    for line in &series.lines {
        let kind = match line.kind {
            SeriesKind::Goodput => "goodput",
            SeriesKind::Cwnd => "cwnd",
            SeriesKind::Queue => "queue",
        };
        let name = quoted(&line.name);
        for (step, value) in line.values.iter().enumerate() {
            let time_s = (step + 1) as f64 * series.step_s;
            // Round away the digits that come from the binary fractions of a step.
            let time_s = (time_s * 1e6).round() / 1e6;
            let value = if value.is_finite() { value.to_string() } else { String::new() };
            let _ = writeln!(out, "{about},{kind},{name},{time_s},{value}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::sweep::Axis;

    #[test]
    fn a_value_a_line_with_what_was_set() {
        let text = "title = \"t\"\nduration = \"1 s\"\n[link.c]\nrate = \"1 Mbit/s\"\n\
                    [flow.a]\npaths = [{ via = [\"c\"] }]\n\
                    [[measure]]\nmetric = \"m\"\nkind = \"goodput\"\n";
        let axes = [
            Axis::many("link.c.rate=1 Mbit/s,2 Mbit/s").expect("an axis"),
            Axis::one("duration=500 ms").expect("an axis"),
        ];
        let plan = Plan::new("t", Scenario::parse(text, "t").expect("a scenario"), &axes).expect("a plan");
        assert_eq!(
            head(&plan),
            "scenario,world,case,controller,seed,duration,link.c.rate,kind,name,time_s,value\n"
        );
        let task = &plan.tasks()[1];
        let outcome = task.run(&false.into()).expect("a run");
        let run = Run {
            world: task.world,
            case: plan.variants[task.variant].label(),
            controller: task.controller.clone(),
            seed: task.seed,
            outcome,
        };
        let lines = lines(&plan, &run);
        let fields: Vec<Vec<&str>> = lines.lines().map(|line| line.split(',').collect()).collect();
        // Ten steps of 50 ms: goodput of the flow, window of its path, queue of the link.
        assert_eq!(fields.len(), 30);
        assert_eq!(fields[0][..9], ["t", "sim", "", "nmcc", "1", "500 ms", "2 Mbit/s", "goodput", "a"]);
        assert_eq!((fields[1][9], fields[29][8]), ("0.1", "c"));
        assert!(fields.iter().all(|fields| fields.len() == 11 && fields[10].parse::<f64>().is_ok()));
        let rows = crate::table::rows(&plan, &[run]);
        let csv = crate::table::csv(&plan, &rows);
        assert!(crate::table::csv_head(&plan).ends_with(",no_value,duration,link.c.rate\n"));
        assert!(csv.lines().nth(1).expect("a row").ends_with(",500 ms,2 Mbit/s"), "{csv}");
    }
}
