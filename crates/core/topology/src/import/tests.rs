//! Tests the three forms, and texts in none of them.

use proptest::prelude::*;

use super::*;

const GML: &str = r#"
graph [
  label "Two &amp; a half" directed 0
  node [ id 7 label "A" Longitude 13.4 Latitude 52.5 note [ deep [ x 1 ] ] ]
  # a comment
  node [ id 9 label "B" Longitude 2.35 Latitude 48.85 ]
  node [ id 11 label "B" ]
  edge [ source 7 target 9 LinkSpeedRaw 1000000000.0 LinkLabel "1 [G]" ]
  edge [ source 9 target 11 ]
  edge [ source 11 target 11 ]
]
"#;

const GRAPHML: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="d1" />
  <key attr.name="Latitude" for="node" id="d2" /><key attr.name="Longitude" for="node" id="d3" />
  <key attr.name="LinkSpeedRaw" for="edge" id="d4" /><key attr.name="Network" for="graph" id="d5" />
  <graph edgedefault="undirected">
    <data key="d5">Two &amp; a half</data>
    <node id="7"><data key="d1">A</data><data key="d3">13.4</data><data key="d2">52.5</data></node>
    <node id="9"><data key="d1">B</data><data key="d3">2.35</data><data key="d2">48.85</data></node>
    <node id="11"><data key="d1">B</data></node>
    <edge source="7" target="9"><data key="d4">1000000000.0</data></edge>
    <edge source="9" target="11"/><edge source="11" target="11"/>
  </graph>
</graphml>"#;

const TEXT: &str = "# a comment\nnetwork Two & a half\nnode A @ 52.5 13.4\nnode B @ 48.85 2.35\nnode B\n\
                    link 0 1 1G\nlink 1 2 5ms\nlink 2 2\n";

fn parse(text: &str) -> Result<Network, ImportError> {
    read(text.as_bytes(), &Defaults::default())
}

#[test]
fn three_forms_of_one_network() {
    for text in [GML, GRAPHML, TEXT] {
        let network = parse(text).expect("a network");
        let names: Vec<_> = network.graph.nodes().iter().map(|n| n.name.as_str()).collect();
        assert_eq!((network.name.as_str(), &names[..]), ("Two & a half", &["A", "B", "B #2"][..]));
        assert_eq!((network.graph.lines(), network.ignored_loops), (2, 1));
        let links = network.graph.links();
        assert_eq!(links[0].capacity_bytes, Some(125_000_000));
        // Berlin and Paris are 878 km apart: 4.39 ms of fibre.
        assert!((4_380_000..4_400_000).contains(&links[0].delay_ns), "{}", links[0].delay_ns);
        assert_eq!((links[2].capacity_bytes, links[2].delay_ns), (None, 5_000_000));
        assert_eq!(links[0].delay_ns, links[1].delay_ns);
    }
}

#[test]
fn units() {
    let line = |rest: &str| parse(&format!("node a\nnode b\nlink 0 1 {rest}")).map(|n| n.graph.links()[0]);
    for (text, bytes, ns) in [
        ("155M 3us", Some(19_375_000), 3_000),
        ("2s 2.5G", Some(312_500_000), 2_000_000_000),
        ("800", Some(100), 5_000_000),
        ("7ns", None, 7),
        ("64k", Some(8_000), 5_000_000),
    ] {
        let link = line(text).expect("a link");
        assert_eq!((link.capacity_bytes, link.delay_ns), (bytes, ns), "{text}");
    }
    for bad in ["5", "1e9", "-5ms", "2h", "3601s", "5ms 6ms", "1M 2M", "inf", "nans", ".ms"] {
        assert!(line(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_no_network() {
    let deep = "graph [ ".repeat(DEPTH_MAX + 1);
    for (text, line, what) in [
        ("", 0, "no node"),
        ("hello world", 0, "no node"),
        ("graph [\n node [ id 1 ]", 2, "closing bracket"),
        ("graph [ node [ label \"x\" ] ]", 1, "id of the node"),
        ("graph [ node [ id 1 ]\n node [ id 1 ] ]", 2, "have the id"),
        ("graph [ node [ id 1 ] edge [ source 1 target 2 ] ]", 1, "no node \"2\""),
        ("graph [ node [ id 1 Latitude nan ] ]", 1, "degrees"),
        ("graph [ node [ id 1 label \"x ] ]", 1, "quotation mark"),
        ("graph ] ", 1, "a value"),
        (&deep, 1, "within each other"),
        ("node a\nlink 0 1", 2, "no node \"1\""),
        ("node a\nlink 0", 2, "two nodes"),
        ("node a @ 91 0", 1, "degrees"),
        ("node a\nfoo", 2, "network, directed, node or link"),
        ("<html/>", 1, "<graphml>"),
        ("<graphml>\n<graph>", 2, "ends within"),
        ("<graphml><graph><node/></graph></graphml>", 1, "an id"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><graphml/>", 1, "document type"),
        ("<graphml><graph></node></graphml>", 1, "not well-formed"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.to_string().contains(what), "{text}: {error}");
    }
    assert!(matches!(
        read(&vec![b' '; TEXT_MAX + 1], &Defaults::default()),
        Err(ImportError { line: 0, kind: ImportErrorKind::TooLong(_) })
    ));
    assert!(matches!(
        read(b"node a\n\xff", &Defaults::default()),
        Err(ImportError { line: 2, kind: ImportErrorKind::Encoding })
    ));
}

/// Checks that a network that is written and read again is the same.
fn assert_round_trip(network: &Network) {
    let text = write(&network.name, &network.graph);
    let again = parse(&text).expect("what was written can be read");
    assert_eq!(again.name, network.name);
    assert_eq!(again.graph.nodes(), network.graph.nodes(), "{text}");
    assert_eq!(again.graph.links(), network.graph.links(), "{text}");
}

#[test]
fn round_trips() {
    // The fuzzer found this: a name that ends in characters that become spaces.
    assert_round_trip(&parse("network a\0\u{7f}\nnode b\0 c\0").expect("a network"));
    // The fuzzer also found this: a number makes a name longer than the length that other names are cut to.
    let long = format!("node {0}\n", "x".repeat(250)).repeat(3);
    assert_round_trip(&parse(&long).expect("a network"));
    for text in [GML, GRAPHML, TEXT, "directed\nnode a @ b @ ?\nnode @ @ ?\nlink 0 1 0ns\nlink 0 1 9k"] {
        assert_round_trip(&parse(text).expect("a network"));
    }
    for builtin in crate::zoo::BUILTIN {
        assert_round_trip(&builtin.network(&Defaults::default()));
    }
}

proptest! {
    #[test]
    fn any_text(text in any::<String>(), form in 0usize..4) {
        let text = [
            text.clone(),
            format!("graph [ node [ id 1 label \"{text}\" ] ]"),
            format!("<graphml><graph><node id='1'/>{text}</graph></graphml>"),
            format!("node {text}\nnode b\nlink 0 1"),
        ][form].clone();
        if let Ok(network) = parse(&text) {
            assert_round_trip(&network);
        }
    }
}
