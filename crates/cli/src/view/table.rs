//! A table with a row per path, as wide as the terminal. The state of a path and its losses are never cut.
//!
//! If the table is too wide, these are left out in this order: the address behind a source's name, the
//! address before an interface, columns of numbers, the ends of names. A state longer than a few words is
//! below its row.

use std::collections::BTreeSet;

use console::{measure_text_width, truncate_str};

/// The most columns of a state that is in its row, enough for one or two words.
const STATE_COLUMNS: usize = 14;
/// The columns between two columns of the table.
const GAP: usize = 2;
/// The columns to which names are shortened at most.
const NAME_COLUMNS_MIN: usize = 4;
/// The indentation of a state below its row.
const INDENT: &str = "    ";

/// A column of the table, except for the last one with the states.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    head: &'static str,
    cells: Vec<String>,
    /// Whether the column has numbers, which are aligned right.
    is_number: bool,
    /// The column with the highest rank is left out first. Rank 0 always stays.
    rank: u8,
}

impl Column {
    /// Makes a column of sources or local ends.
    pub(crate) const fn names(head: &'static str, cells: Vec<String>) -> Self {
        Self { head, cells, is_number: false, rank: 0 }
    }

    /// Makes a column of numbers. Columns are left out by rank, the highest first; rank 0 stays.
    pub(crate) const fn numbers(head: &'static str, rank: u8, cells: Vec<String>) -> Self {
        Self { head, cells, is_number: true, rank }
    }

    fn width(&self) -> usize {
        let widths = self.cells.iter().map(|cell| measure_text_width(cell));
        widths.max().unwrap_or(0).max(measure_text_width(self.head))
    }
}

/// Returns the lines of a table whose first two columns are sources and local ends, with `states` at the ends
/// of its rows. The lines have at most `width` columns, as far as that is possible.
pub(crate) fn lines(mut columns: Vec<Column>, states: &[String], width: usize) -> Vec<String> {
    let words = states.iter().map(|state| measure_text_width(state).min(STATE_COLUMNS));
    let room = width.saturating_sub(words.max().unwrap_or(0).max("state".len()));
    let taken = |columns: &[Column]| columns.iter().map(|column| column.width() + GAP).sum::<usize>();
    let shorter: [fn(&str) -> &str; 2] = [name_alone, device_alone];
    for (index, shorter) in shorter.into_iter().enumerate() {
        if taken(&columns) > room {
            shorten(&mut columns, index, shorter);
        }
    }
    while taken(&columns) > room {
        let last = columns.iter().map(|column| column.rank).max().unwrap_or(0);
        if last == 0 {
            break;
        }
        columns.retain(|column| column.rank != last);
    }
    for index in [0, 1] {
        let excess = taken(&columns).saturating_sub(room);
        let Some(column) = columns.get_mut(index).filter(|_| excess > 0) else { continue };
        let width = column.width().saturating_sub(excess).max(NAME_COLUMNS_MIN);
        column.cells.iter_mut().for_each(|cell| *cell = truncate_str(cell, width, "…").into_owned());
    }
    let widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let line = |cell: &dyn Fn(&Column) -> String| -> String {
        let cells = columns.iter().zip(&widths).map(|(column, width)| {
            let cell = cell(column);
            let pad = " ".repeat(width - measure_text_width(&cell));
            if column.is_number { pad + &cell } else { cell + &pad }
        });
        cells.map(|cell| cell + &" ".repeat(GAP)).collect()
    };
    let mut out = vec![line(&|column| column.head.to_owned()) + "state"];
    for (row, state) in states.iter().enumerate() {
        let cells = line(&|column| column.cells[row].clone());
        if measure_text_width(&cells) + measure_text_width(state) <= width {
            out.push((cells + state).trim_end().to_owned());
        } else {
            out.push(cells.trim_end().to_owned());
            out.extend(wrapped(state, width));
        }
    }
    out
}

/// Shortens the cells of a column, unless rows that differed would then look alike.
fn shorten(columns: &mut [Column], index: usize, shorter: fn(&str) -> &str) {
    let rows = |columns: &[Column]| {
        let names = columns.iter().take(2).map(|column| column.cells.clone());
        let names: Vec<Vec<String>> = names.collect();
        let row = |row: usize| names.iter().map(|cells| cells[row].clone()).collect::<Vec<_>>();
        (0..names.first().map_or(0, Vec::len)).map(row).collect::<BTreeSet<_>>().len()
    };
    let mut shortened = columns.to_vec();
    let Some(column) = shortened.get_mut(index) else { return };
    column.cells.iter_mut().for_each(|cell| *cell = shorter(cell).to_owned());
    if rows(&shortened) == rows(columns) {
        columns[index] = shortened.swap_remove(index);
    }
}

/// Returns `name:port (address:port)` without the part in brackets.
fn name_alone(source: &str) -> &str {
    source.split(" (").next().unwrap_or(source)
}

/// Returns `address%interface` without the address.
fn device_alone(via: &str) -> &str {
    via.rsplit_once('%').map_or(via, |(_, device)| device)
}

/// Breaks a text into indented lines.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![INDENT.to_owned()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { continue };
        let is_begun = line.len() > INDENT.len();
        if is_begun && measure_text_width(line) + 1 + measure_text_width(word) > width {
            lines.push(INDENT.to_owned() + word);
        } else {
            line.push_str(if is_begun { " " } else { "" });
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(rows: &[[&str; 6]], width: usize) -> Vec<String> {
        let cells = |index: usize| rows.iter().map(|row| row[index].to_owned()).collect::<Vec<_>>();
        let columns = vec![
            Column::names("source", cells(0)),
            Column::names("via", cells(1)),
            Column::numbers("rate", 1, cells(2)),
            Column::numbers("cwnd", 2, cells(3)),
            Column::numbers("loss", 0, cells(4)),
        ];
        lines(columns, &cells(5), width)
    }

    #[test]
    fn what_is_said_twice_goes_first() {
        let (a, b) = ("mirror.example.net:443 (192.0.2.7:443)", "b.example.org:443 (198.51.100.4:443)");
        let rows = [
            [a, "10.0.0.5%wlan0", "100.0 Mbit/s", "33", "0.2 %", "open"],
            [b, "10.8.0.2%wwan0", "8.0 Mbit/s", "4", "10.0 %", "interface gone"],
        ];
        assert!(table(&rows, usize::MAX)[1].starts_with(&format!("{a}  10.0.0.5%wlan0  100.0 Mbit/s")));
        assert!(table(&rows, 82)[1].starts_with("mirror.example.net:443  10.0.0.5%wlan0  100.0 Mbit/s"));
        let line = |[source, via, rate, cwnd, loss, state]: [&str; 6]| {
            format!("{source:<22}  {via:<5}  {rate:>12}  {cwnd:>4}  {loss:>6}  {state}")
        };
        assert_eq!(
            table(&rows, 80),
            [
                line(["source", "via", "rate", "cwnd", "loss", "state"]),
                line(["mirror.example.net:443", "wlan0", "100.0 Mbit/s", "33", "0.2 %", "open"]),
                line(["b.example.org:443", "wwan0", "8.0 Mbit/s", "4", "10.0 %", "interface gone"]),
            ]
        );
        assert_eq!(
            table(&rows, 40)[1..],
            ["mirror.e…  wlan0   0.2 %  open", "b.exampl…  wwan0  10.0 %  interface gone",]
        );
    }

    #[test]
    fn rows_that_differ_by_their_addresses_alone_keep_them() {
        let row = |via| ["h:1", via, "1 Mbit/s", "3", "0.0 %", "open"];
        let lines = table(&[row("10.0.0.5%eth0"), row("10.0.0.6%eth0")], 36);
        assert!(lines[1].starts_with("h:1     10.0.0.5%eth0") && lines[2].contains("10.0.0.6"), "{lines:?}");
    }

    #[test]
    fn a_reason_stands_below_its_row() {
        let reason = "banned: wrong bytes in block 812, and more that is to be read in full";
        let row = |source, state| [source, "lo", "1 Mbit/s", "3", "0.0 %", state];
        let rows = [row("h:1", reason), row("i:1", "open")];
        let lines = table(&rows, 60);
        assert_eq!(lines[2], "    banned: wrong bytes in block 812, and more that is to be");
        assert_eq!(lines[3], "    read in full");
        assert!(lines[4].ends_with("open"), "{lines:?}");
        assert!(table(&rows, 200)[1].ends_with(reason), "where there is room it stays in its row");
    }

    /// The least columns that the heads of the remaining columns take.
    const WIDTH_MIN: usize = 28;

    proptest! {
        #[test]
        fn loss_and_state_are_whole_at_any_width(
            sources in proptest::collection::vec("[a-z0-9.:]{1,50}( \\([0-9.:]{7,21}\\))?", 1..6),
            vias in proptest::collection::vec("([0-9.]{7,15}%)?[a-z0-9]{1,15}", 6),
            state in "[a-z]{1,12}( [a-z]{1,12}){0,9}",
            width in WIDTH_MIN..160,
        ) {
            let row = |(source, via)| -> [&str; 6] {
                let (source, via): (&String, &String) = (source, via);
                [source, via, "100.0 Mbit/s", "123", "100.0 %", &state]
            };
            let rows: Vec<[&str; 6]> = sources.iter().zip(&vias).map(row).collect();
            let lines = table(&rows, width);
            let whole = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(whole.matches("100.0 %").count(), rows.len());
            prop_assert!(whole.matches(&state).count() >= rows.len(), "{}", whole);
            for line in &lines {
                prop_assert!(measure_text_width(line) <= width, "{}: {}", width, line);
            }
        }
    }
}
