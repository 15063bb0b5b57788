//! The machine and the programs that a row ran with.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// What the figures of a row depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineFacts {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    pub(crate) tidegate: String,
    pub(crate) redis: String,
}

impl MachineFacts {
    /// Of this machine, this `tidegate` and the `redis-server` on the path.
    pub(crate) fn of(program: &Path) -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kib = value(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok());
        let kib: u64 = kib.unwrap_or(0);
        let redis = version(Path::new("redis-server"));
        let redis = redis.split(' ').find_map(|word| word.strip_prefix("v="));
        Self {
            cpu: value(&cpu, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kib.div_ceil(1 << 20),
            kernel: kernel.trim().to_owned(),
            tidegate: version(program).trim_start_matches("tidegate ").to_owned(),
            redis: redis.unwrap_or("unknown").to_owned(),
        }
    }
}

/// The first value of a name in lines such as `MemTotal:  1024 kB`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| key.trim() == name);
    found.map(|(_, value)| value.trim())
}

fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().trim().to_owned()
}
