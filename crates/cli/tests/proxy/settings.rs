//! Tests that the reference in docs/proxy.md is the settings' own description. `UPDATE=1` writes it again.

use std::fmt::Write as _;
use std::path::Path;

use anabranch_proxy::config::{Change, Client, Server, Settings, Shape};

/// Returns the table of a role's settings.
fn table<S: Settings>() -> String {
    let mut text = String::from("| key | value | default | at once | |\n| --- | --- | --- | --- | --- |\n");
    for key in S::KEYS {
        let value = match key.shape {
            Shape::Flag => "`true`".to_owned(),
            Shape::Many => format!("`{}`, several", key.value),
            Shape::Number | Shape::Text => format!("`{}`", key.value),
        };
        let default = key.default.map_or_else(String::new, |default| format!("`{default}`"));
        let at_once = if key.change == Change::Live { "yes" } else { "" };
        writeln!(text, "| `{}` | {value} | {default} | {at_once} | {} |", key.name, key.docs()).unwrap();
    }
    text
}

#[test]
fn the_reference_has_every_setting_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proxy.md");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let mut differs = false;
    for (role, table) in [("server", table::<Server>()), ("client", table::<Client>())] {
        let head = format!("### Settings of a {role}\n\n");
        let begin = text.find(&head).unwrap_or_else(|| panic!("no {head}")) + head.len();
        let end = text[begin..].find("\n\n").map_or(text.len(), |end| begin + end + 1);
        differs |= text[begin..end] != table;
        text.replace_range(begin..end, &table);
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    } else {
        assert!(!differs, "docs/proxy.md is not up to date: run this test with UPDATE=1");
    }
}
