//! Reads the result of a program from its output.

use crate::client::Values;

/// The longest line that is kept of a program's output, bytes.
const LINE_BYTES_MAX: usize = 400;

/// Reads the result: the text after `marker` in the last line that has it, or the last line that is not
/// empty. An object of JSON gives its numbers, a number gives `value`; anything else is the line itself.
/// Returns `None` where there is no such line.
#[must_use]
pub fn result(output: &str, marker: Option<&str>) -> Option<(Values, Option<String>)> {
    let mut lines = output.lines().rev();
    let line = match marker {
        Some(marker) => lines.find_map(|line| line.split_once(marker).map(|(_, after)| after.trim())),
        None => lines.map(str::trim).find(|line| !line.is_empty()),
    }?;
    if let Ok(serde_json::Value::Object(object)) = serde_json::from_str(line) {
        let numbers = object.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
        return Some((numbers.collect(), None));
    }
    if let Some(number) = line.parse().ok().filter(|number: &f64| number.is_finite()) {
        return Some((Values::from([("value".to_owned(), number)]), None));
    }
    let end = (0..=line.len().min(LINE_BYTES_MAX)).rev().find(|end| line.is_char_boundary(*end));
    Some((Values::new(), Some(line[..end.unwrap_or(0)].to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_a_line_of_the_output() {
        let number = |value| Some((Values::from([("value".to_owned(), value)]), None));
        let line = |line: &str| Some((Values::new(), Some(line.to_owned())));
        assert_eq!(result("a\n12.5\n\n", None), number(12.5));
        assert_eq!(result("speed: 3\nspeed: 4\nbye\n", Some("speed:")), number(4.0));
        assert_eq!(result("4 Mbit/s\n", None), line("4 Mbit/s"));
        assert_eq!(result("NaN\n", None), line("NaN"));
        assert_eq!(result("bye\n", Some("speed:")), None);
        assert_eq!(result("\n", None), None);
        let (values, text) = result("{\"a\":1,\"b\":\"x\",\"c\":2.5}", None).expect("a result");
        assert_eq!((values.len(), values["a"], values["c"], text), (2, 1.0, 2.5, None));
        let long = "ü".repeat(400);
        assert_eq!(result(&long, None).and_then(|(_, line)| line).map(|line| line.len()), Some(400));
    }
}
