fn main() {
    let mut args = std::env::args().skip(1);
    let text = std::fs::read_to_string(args.next().unwrap()).unwrap();
    let s: lab::scenario::Scenario = toml::from_str(&text).unwrap();
    let seeds: u64 = args.next().unwrap().parse().unwrap();
    let ccs: Vec<String> = args.map(|a| a).collect();
    for cc in if ccs.is_empty() { s.controllers.clone() } else { ccs } {
        for seed in 1..=seeds {
            let t = std::time::Instant::now();
            let o = lab::run::run(&s, &cc, seed);
            println!(
                "{cc} {seed} {:?} {:?} {:016x} {} pkts {:.2} M/s",
                s.measure
                    .iter()
                    .zip(&o.values)
                    .map(|(m, v)| format!("{} {:.2}", m.metric, v.unwrap_or(f64::NAN)))
                    .collect::<Vec<_>>(),
                o.faults,
                o.digest,
                o.link_packets,
                o.link_packets as f64 / t.elapsed().as_secs_f64() / 1e6
            );
        }
    }
}
