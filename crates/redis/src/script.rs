//! The script that decides in Redis: every algorithm, and the shell that reads and writes for them.
//!
//! Each algorithm is wrapped in a function of its own, which runs only in calls that need it: Redis
//! runs the whole text with each call, and making all functions would take longer than a decision.

use std::sync::LazyLock;

/// Wraps one file into a function that runs it once and returns what it returns.
macro_rules! module {
    ($name:literal) => {
        concat!(
            "local ",
            $name,
            "\ndo\nlocal loaded\nlocal function load()\n",
            include_str!(concat!("../lua/", $name, ".lua")),
            "end\nfunction ",
            $name,
            "()\nloaded = loaded or load()\nreturn loaded\nend\nend\n"
        )
    };
}

/// The algorithms, without anything that talks to Redis.
macro_rules! algorithms {
    () => {
        concat!(
            include_str!("../lua/arithmetic.lua"),
            module!("calendar"),
            module!("bucket"),
            module!("fixed_window"),
            module!("sliding_window_counter"),
            module!("sliding_window_slots"),
            module!("sliding_window_log"),
            module!("concurrency"),
        )
    };
}

/// The text of the script.
pub(crate) const SCRIPT: &str = concat!(
    algorithms!(),
    include_str!("../lua/shell/call.lua"),
    include_str!("../lua/shell/inline.lua"),
    include_str!("../lua/shell/spilled.lua"),
    include_str!("../lua/shell/leases.lua"),
    include_str!("../lua/shell/ops.lua"),
    include_str!("../lua/shell/held.lua"),
    include_str!("../lua/shell/steps.lua"),
);

/// The name under which Redis knows the script: its SHA-1, in hexadecimal.
pub(crate) static SHA1: LazyLock<String> =
    LazyLock::new(|| sha1_smol::Sha1::from(SCRIPT).digest().to_string());

#[cfg(test)]
const ALGORITHMS: &str = algorithms!();

#[cfg(test)]
mod mirror;
