//! Reads the list of `get --input-file`: files, each with its URLs.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use anabranch::WantedFile;

use crate::exit::{Failure, Outcome};

/// The largest size of a list, in bytes.
const LIST_MAX: u64 = 16 << 20;

/// Reads the list at `path`, or from standard input if that is `-`. Returns the files.
///
/// # Errors
/// Wrong usage, if the list cannot be read, has no URL, or has options that are not of a single file.
pub(super) fn read(path: &Path) -> Outcome<Vec<WantedFile>> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(LIST_MAX).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(LIST_MAX).read_to_string(&mut text))
    };
    read.map_err(|e| Failure::usage(format!("{}: {e}", path.display())).at(path))?;
    files(&text).map_err(|why| Failure::usage(format!("{}: {why}", path.display())).at(path))
}

/// Returns the files in a list.
fn files(text: &str) -> Result<Vec<WantedFile>, String> {
    let mut files: Vec<WantedFile> = Vec::new();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let mut urls = line.split_whitespace().take_while(|word| !word.starts_with('#')).peekable();
        let Some(first) = urls.peek() else { continue };
        // As for aria2, an option of a file stands below its URLs, behind blanks.
        let option = line.trim().split_once('=').filter(|(name, _)| !name.contains(['/', ':']));
        if let Some((name, value)) = option.filter(|_| line.starts_with([' ', '\t']))
            && let Some(file) = files.pop()
        {
            files.push(with(file, name, value).map_err(|why| format!("line {number}: {why}"))?);
            continue;
        }
        if line.starts_with([' ', '\t']) && !first.contains('/') {
            return Err(format!("line {number}: `{first}` is no URL"));
        }
        files.push(WantedFile::new(urls));
    }
    if files.is_empty() { Err("there is no URL in it".to_owned()) } else { Ok(files) }
}

/// Returns the file with one of aria2's options of a file.
fn with(file: WantedFile, name: &str, value: &str) -> Result<WantedFile, String> {
    match name {
        "out" => Ok(file.name(value)),
        "checksum" => Ok(file.checksum(value.parse().map_err(|e: anabranch::Error| e.to_string())?)),
        _ => Err(format!("`{name}` is not read: of a single file's options, `out` and `checksum` are")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_urls_of_a_file() {
        let text = "\u{feff}# of today\n\nhttp://a/f\thttp://b/f # two\r\n  http://a/g?x=1#part\n";
        let wanted =
            [WantedFile::new(["http://a/f", "http://b/f"]), WantedFile::new(["http://a/g?x=1#part"])];
        assert_eq!(files(text).expect("two files"), wanted);
        assert!(files("# nothing\n").unwrap_err().contains("no URL"));
    }

    #[test]
    fn below_it_are_its_name_and_its_hash() {
        let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let text = format!("http://a/f\n  out=my file.iso\n\tchecksum=sha-256={hash}\nhttp://a/g\n");
        let first =
            WantedFile::new(["http://a/f"]).name("my file.iso").checksum(hash.parse().expect("a hash"));
        assert_eq!(files(&text).expect("two files"), [first, WantedFile::new(["http://a/g"])]);
        for (text, says) in [
            ("http://a/f\n  split=5\n", "line 2: `split` is not read"),
            ("http://a/f\n  checksum=md5=0\n", "line 2: md5=0 is no checksum"),
            ("http://a/f\n  x\n", "line 2: `x` is no URL"),
            ("  out=x.iso\n", "line 1: `out=x.iso` is no URL"),
        ] {
            let said = files(text).unwrap_err();
            assert!(said.starts_with(says), "{said}");
        }
    }
}
