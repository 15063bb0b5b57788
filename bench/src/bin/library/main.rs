//! A library in a process of its own, that works off turns: `library NAME KEYS`.
//!
//! Each line on stdin is a command, and is answered by one line of JSON on stdout. So the runner can let
//! several such processes work in turns.
//!
//! `fill FROM TO` charges each key of a range once.
//! `turn THREADS CHECKS uniform|zipf SEED` charges keys on threads.

mod turn;

use std::io::{BufRead as _, Write as _};

use tidegate_bench::contenders::{Contender, by_name};
use tidegate_bench::keys::Spread;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, keys] = &arguments[..] else {
        panic!("usage: library NAME KEYS");
    };
    let keys: u32 = keys.parse().expect("a number of keys");
    let contender = by_name(name, keys.into()).unwrap_or_else(|| panic!("unknown `{name}`"));
    say("{}");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["fill", from, to] => {
                fill(&*contender, number(from), number(to));
                say("{}");
            }
            ["turn", threads, checks, spread, seed] => {
                let spread = match spread {
                    "zipf" => Spread::Zipf(keys),
                    _ => Spread::Uniform(keys),
                };
                let checks = number(checks) as usize;
                let streams: Vec<_> = (0..number(threads))
                    .map(|thread| spread.stream(checks, number(seed) * 16 + thread))
                    .collect();
                say(&turn::run(&*contender, &streams).to_json());
            }
            _ => panic!("unknown command `{line}`"),
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn fill(contender: &dyn Contender, from: u64, to: u64) {
    let mut key = String::new();
    for number in from..to {
        assert!(contender.check_number(number, &mut key), "denied");
    }
}

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").expect("the runner listens");
    stdout.flush().expect("the runner listens");
}
