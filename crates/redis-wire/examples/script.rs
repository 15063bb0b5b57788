//! Prints the script that decides in Redis, for programs of other languages that run it themselves.

#![expect(clippy::print_stdout, reason = "that is all it does")]

use tidegate_redis_wire::script::SCRIPT;

fn main() {
    print!("{SCRIPT}");
}
