//! The script that decides in Redis: every algorithm, and the shell that reads and writes for them.
//!
//! Each algorithm is wrapped in a function of its own, which runs only in calls that need it: Redis
//! runs the whole script text with each call, and making all functions would take longer than most
//! decisions.

/// Wraps one file into a function that runs it once and returns what it returns.
macro_rules! module {
    ($name:literal, $path:literal) => {
        concat!(
            "local ",
            $name,
            "\ndo\nlocal loaded\nlocal function load()\n",
            include_str!(concat!("../lua/", $path)),
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
            module!("calendar", "calendar.lua"),
            module!("bucket", "bucket.lua"),
            module!("fixed_window", "fixed_window.lua"),
            module!("sliding_window_counter", "sliding_window_counter.lua"),
            module!("sliding_window_slots", "sliding_window_slots.lua"),
            module!("sliding_window_log", "sliding_window_log.lua"),
            module!("concurrency", "concurrency.lua"),
        )
    };
}

#[cfg(test)]
pub(crate) const ALGORITHMS: &str = algorithms!();

#[cfg(test)]
mod mirror;
