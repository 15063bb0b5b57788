//! The fault suite: starts real servers and a real Redis, breaks one thing at a time under load, and compares what was admitted,
//! how long answers took and when they were normal again with what is promised. `scripts/faults` runs it.

#![forbid(unsafe_code)]

mod bound;
mod budget;
mod clock_shim;
mod evictions;
mod exchange;
mod fleet;
mod ground;
mod headline;
mod load;
mod machine;
mod measure;
mod page;
mod report;
mod results;
mod row;
mod rows;
mod rules;
mod server;
mod stage;
mod suite;
mod witness;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::ground::Ground;
use crate::suite::Suite;

const USAGE: &str = "\
usage: tidegate-faults [--program PATH] [--short] [NAME...]   the rows whose name contains one of NAME, or all of them
       tidegate-faults list                                   the names of all rows
       tidegate-faults report [--check]                       writes docs/reliability.md, or checks it";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["--help" | "-h", ..] => {
            println!("{USAGE}");
            Ok(true)
        }
        ["list"] => {
            for row in rows::all() {
                println!("{:22} {}", row.name, row.title);
            }
            Ok(true)
        }
        ["report"] => report::write(false).map(|()| true),
        ["report", "--check"] => report::write(true).map(|()| true),
        _ => run(&words),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[&str]) -> anyhow::Result<bool> {
    let (mut program, mut is_short, mut names) = (None, false, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--program" => program = words.next().map(PathBuf::from),
            "--short" => is_short = true,
            flag if flag.starts_with('-') => anyhow::bail!("unknown flag `{flag}`\n{USAGE}"),
            name => names.push(name.to_owned()),
        }
    }
    let build = if is_short { "debug" } else { "dist" };
    let program = program.unwrap_or_else(|| PathBuf::from(format!("target/{build}/tidegate")));
    let program = std::path::absolute(program)?;
    anyhow::ensure!(
        program.exists(),
        "`{}` is missing: build it first",
        program.display()
    );
    let ground = if is_short {
        Ground::short(program)
    } else {
        Ground::long(program)
    };
    Suite::new(ground, &names)?.run()
}
