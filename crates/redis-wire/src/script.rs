//! The script that decides in Redis: every algorithm, and the shell that reads and writes for them.
//!
//! Only the shell talks to Redis. Files are modules that run when they are first needed; see
//! `lua/modules.lua`.

use std::sync::LazyLock;

/// One file as a branch of the function that runs modules.
macro_rules! module {
    ($name:literal) => {
        module!($name, "")
    };
    ($name:literal, $folder:literal) => {
        concat!(
            "if name == '",
            $name,
            "' then\n",
            include_str!(concat!("../lua/", $folder, $name, ".lua")),
            "end\n"
        )
    };
}

/// The algorithms, without anything that talks to Redis.
macro_rules! algorithms {
    () => {
        concat!(
            module!("bucket_admit"),
            module!("fixed_window_admit"),
            module!("calendar"),
            module!("months"),
            module!("bucket"),
            module!("common_parts"),
            module!("bucket_leases"),
            module!("fixed_window"),
            module!("sliding_window_counter"),
            module!("sliding_window_slots"),
            module!("sliding_window_log"),
            module!("concurrency"),
        )
    };
}

/// The text of the script.
pub const SCRIPT: &str = concat!(
    include_str!("../lua/arithmetic.lua"),
    include_str!("../lua/modules.lua"),
    include_str!("../lua/shell/call.lua"),
    "function run_module(name)\n",
    module!("bucket_fast", "shell/"),
    module!("fixed_window_fast", "shell/"),
    algorithms!(),
    module!("inline", "shell/"),
    module!("bucket_form", "shell/"),
    module!("cell_form", "shell/"),
    module!("fixed_window_form", "shell/"),
    module!("sliding_window_counter_form", "shell/"),
    module!("spilled", "shell/"),
    module!("counts", "shell/"),
    module!("sliding_window_slots_form", "shell/"),
    module!("sorted_set", "shell/"),
    module!("sliding_window_log_form", "shell/"),
    module!("leases", "shell/"),
    module!("concurrency_form", "shell/"),
    module!("step", "shell/"),
    module!("ops", "shell/"),
    module!("rare_ops", "shell/"),
    module!("adjust", "shell/"),
    module!("resets", "shell/"),
    module!("register", "shell/"),
    module!("heal", "shell/"),
    module!("hold", "shell/"),
    module!("hold_parts", "shell/"),
    module!("held", "shell/"),
    module!("ends", "shell/"),
    "end\n",
    include_str!("../lua/shell/limits.lua"),
    include_str!("../lua/shell/steps.lua"),
);

/// The name under which Redis knows the script: its SHA-1, in hexadecimal.
pub static SHA1: LazyLock<String> =
    LazyLock::new(|| sha1_smol::Sha1::from(SCRIPT).digest().to_string());

#[cfg(test)]
const ALGORITHMS: &str = concat!(
    include_str!("../lua/arithmetic.lua"),
    include_str!("../lua/modules.lua"),
    "function run_module(name)\n",
    algorithms!(),
    "end\n",
);

#[cfg(test)]
mod mirror_tests;
