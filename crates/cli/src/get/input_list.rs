//! Reads the list of `get --input-file`: files, each with its URLs.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::exit::{Failure, Outcome};

/// The largest size of a list, in bytes.
const LIST_MAX: u64 = 16 << 20;

/// Reads the list at `path`, or from standard input if that is `-`. Returns the URLs of each file.
///
/// # Errors
/// Wrong usage, if the list cannot be read, has no URL, or has options of aria2.
pub(super) fn read(path: &Path) -> Outcome<Vec<Vec<String>>> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(LIST_MAX).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(LIST_MAX).read_to_string(&mut text))
    };
    read.map_err(|e| Failure::usage(format!("{}: {e}", path.display())).at(path))?;
    files(&text).map_err(|why| Failure::usage(format!("{}: {why}", path.display())).at(path))
}

/// Returns the URLs of each file in a list.
fn files(text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut files = Vec::new();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let mut urls = line.split_whitespace().take_while(|word| !word.starts_with('#')).peekable();
        let Some(first) = urls.peek() else { continue };
        // An option of aria2 stands below its URL, behind blanks.
        if line.starts_with([' ', '\t']) && !first.contains('/') {
            return Err(format!("line {number}: `{first}` is no URL; options of a single file are not read"));
        }
        files.push(urls.map(str::to_owned).collect());
    }
    if files.is_empty() { Err("there is no URL in it".to_owned()) } else { Ok(files) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_urls_of_a_file() {
        let text = "\u{feff}# of today\n\nhttp://a/f\thttp://b/f # two\r\n  http://a/g#part\n";
        let wanted = [vec!["http://a/f", "http://b/f"], vec!["http://a/g#part"]];
        assert_eq!(files(text).expect("two files"), wanted);
        assert!(files("# nothing\n").unwrap_err().contains("no URL"));
        let options = files("http://a/f\n  out=x.iso\n").unwrap_err();
        assert!(options.starts_with("line 2: `out=x.iso` is no URL"), "{options}");
    }
}
