//! Manual pages and shell completions, made from the definitions in [`crate::args`].

use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::roff::{Roff, roman};

use crate::args::{self, Cli, Completions, Man};
use crate::exit::{self, Failure, Outcome};
use crate::names::show;
use crate::programs::{self, MAIN, PROGRAMS, Program};
use crate::stdout::print;

/// Prints the page of `anabranch` or of one of its commands, or writes all pages into a directory. `own` is
/// the program that was called; [`MAIN`] also makes the other programs write their pages.
///
/// # Errors
/// If the pages cannot be written.
pub fn man(args: &Man, own: &str) -> Outcome {
    let root = complete();
    let print_page = |command: &Command, name: &str| {
        print(&page(command, name).map_err(|e| Failure::other(e.to_string()))?)
    };
    let Some(place) = &args.place else { return print_page(&root, "anabranch") };
    if !place.as_os_str().as_encoded_bytes().contains(&b'/') && !place.exists() {
        let name = place.to_string_lossy();
        let wanted = name.strip_prefix("anabranch-").unwrap_or(&name);
        let first = wanted.split('-').next().unwrap_or_default();
        if let Some(program) = Program::of(first).filter(|program| is_elsewhere(program)) {
            return Err(programs::exec(program.name, ["man", wanted]));
        }
        return match named(&root, wanted) {
            Some(command) => print_page(command, &format!("anabranch-{wanted}")),
            None => Err(Failure::usage(format!(
                "there is no page {0}: `anabranch --help` lists the commands; a directory that is to be made \
                 is named with a slash, ./{0}",
                show(place)
            ))),
        };
    }
    std::fs::create_dir_all(place).map_err(|e| target(place, &e))?;
    write_pages(place, &root, "anabranch")?;
    let others = PROGRAMS.iter().filter(|program| own == MAIN && is_elsewhere(program));
    others.into_iter().try_for_each(|program| have_written(program, place))
}

/// Whether a program was built separately, so that this one does not know its options.
fn is_elsewhere(program: &Program) -> bool {
    let known = Cli::command();
    program.commands.iter().any(|(name, _)| known.find_subcommand(name).is_none())
}

/// Makes another program write its pages, if it is installed.
///
/// # Errors
/// If that program cannot be run, or fails.
fn have_written(program: &Program, dir: &Path) -> Outcome {
    if !program.is_installed() {
        return Ok(());
    }
    let failed = |why: &dyn std::fmt::Display| Failure::other(format!("{} man: {why}", program.name));
    let status = programs::process(program.name).arg("man").arg(dir).status().map_err(|e| failed(&e))?;
    if status.success() { Ok(()) } else { Err(failed(&status)) }
}

/// Finds a command by the name of its page, such as `proxy-client`.
fn named<'c>(root: &'c Command, name: &str) -> Option<&'c Command> {
    pages(root).find_map(|command| match name.strip_prefix(command.get_name())? {
        "" => Some(command),
        rest => named(command, rest.strip_prefix('-')?),
    })
}

/// Returns the subcommands that have a page.
fn pages(command: &Command) -> impl Iterator<Item = &Command> {
    let is_known = |name: &str| Program::of(name).is_none_or(|program| !is_elsewhere(program));
    let all = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    all.filter(move |c| is_known(c.get_name()))
}

/// Prints the completion script of a shell.
///
/// # Errors
/// If standard output cannot be written.
pub fn completions(args: &Completions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "anabranch", &mut script);
    print(&script)
}

fn complete() -> Command {
    let mut root = args::command().disable_help_subcommand(true);
    root.build();
    root
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(dir: &Path, command: &Command, name: &str) -> Outcome {
    write_page(dir, command, name)?;
    for command in pages(command) {
        write_pages(dir, command, &format!("{name}-{}", command.get_name()))?;
    }
    Ok(())
}

fn write_page(dir: &Path, command: &Command, name: &str) -> Outcome {
    let file = dir.join(format!("{name}.1"));
    let page = page(command, name).map_err(|e| Failure::other(e.to_string()))?;
    std::fs::write(&file, page).map_err(|e| target(&file, &e))
}

fn target(path: &Path, error: &std::io::Error) -> Failure {
    Failure::target(format!("cannot write {}: {error}", show(path))).at(path)
}

/// Makes a page: clap_mangen's page of the definition, with EXAMPLES and EXIT STATUS under their customary
/// names.
fn page(command: &Command, name: &str) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .manual("anabranch manual")
        .source(format!("anabranch {}", env!("CARGO_PKG_VERSION")))
        .date("");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    if let Some(examples) = command.get_after_help() {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        let text = examples.to_string();
        for line in text.lines().filter(|l| !l.starts_with("Example")) {
            roff.text([roman(line.trim_start())]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit::CODES {
        roff.control("TP", []);
        roff.text([roman(code.to_string())]);
        roff.text([roman(*meaning)]);
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_exit_status() {
        let dir = tempfile::tempdir().expect("a directory");
        man(&Man { place: Some(dir.path().to_owned()) }, MAIN).expect("pages");
        for name in ["anabranch", "anabranch-serve", "anabranch-get", "anabranch-lab", "anabranch-lab-run"] {
            let page = std::fs::read_to_string(dir.path().join(format!("{name}.1"))).expect("a page");
            assert!(page.contains("EXIT STATUS") && page.contains("130"), "{name}");
        }
        let get = std::fs::read_to_string(dir.path().join("anabranch-get.1")).expect("a page");
        assert!(get.contains("EXAMPLES") && get.contains("disjoint"));
    }

    #[test]
    fn a_page_that_cannot_be_written_is_a_target_failure() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, b"").expect("a file");
        let failure = man(&Man { place: Some(file) }, MAIN).expect_err("no directory");
        assert_eq!(failure.code, exit::Code::Target);
    }
}
