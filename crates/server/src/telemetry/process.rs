//! Metrics of the process, by the names that all Prometheus clients use. Read from `/proc`; elsewhere there are
//! none.

use std::fs;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use rustix::process::{Resource, getrlimit};

/// Ticks a second in `/proc`, on every Linux that Rust supports.
const TICKS: f64 = 100.0;

/// The statistics of a process in `/proc`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProcessStat {
    cpu_seconds: f64,
    virtual_bytes: f64,
    /// Seconds from the start of the system to the start of the process.
    started: f64,
}

/// Registers the metrics of this process, below the prefix `process`.
pub(crate) fn register(page: &mut Registry) {
    let process = page.sub_registry_with_prefix("process");
    let stat = fs::read_to_string("/proc/self/stat");
    let Some(stat) = stat.ok().as_deref().and_then(read_stat) else {
        return;
    };
    let cpu = Counter::<f64, AtomicU64>::default();
    cpu.inc_by(stat.cpu_seconds);
    process.register_with_unit(
        "cpu",
        "User and system time of the process",
        Unit::Seconds,
        cpu,
    );
    process.register_with_unit(
        "virtual_memory",
        "Virtual memory of the process",
        Unit::Bytes,
        gauge(stat.virtual_bytes),
    );
    if let Some(resident) = resident_bytes() {
        process.register_with_unit(
            "resident_memory",
            "Resident memory of the process",
            Unit::Bytes,
            gauge(resident),
        );
    }
    if let Some(booted) = booted_at() {
        process.register_with_unit(
            "start_time",
            "Unix time at which the process started",
            Unit::Seconds,
            gauge(booted + stat.started),
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        // Without the descriptor of the listed directory itself.
        let open = open.count().saturating_sub(1) as f64;
        process.register("open_fds", "File descriptors that are open", gauge(open));
    }
    #[expect(clippy::cast_precision_loss, reason = "a limit, not a count")]
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as f64;
    process.register("max_fds", "File descriptors that may be open", gauge(most));
}

fn gauge(value: f64) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(value);
    gauge
}

/// Reads `/proc/self/stat`. The name of the program, in brackets, may have any character.
fn read_stat(text: &str) -> Option<ProcessStat> {
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // The first of these is the third of the line, as proc(5) counts them.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some(ProcessStat {
        cpu_seconds: (field(14)? + field(15)?) / TICKS,
        started: field(22)? / TICKS,
        virtual_bytes: field(23)?,
    })
}

/// In kilobytes in `/proc/self/status`, whatever the size of a page is.
fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0)
}

/// The Unix time at which the system started.
fn booted_at() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18 12345 4096000 700";
        for name in ["tidegate", "a b", "a) S (b", ") 1 2"] {
            let stat = read_stat(&format!("42 ({name}) {fields}"));
            let expected = ProcessStat {
                cpu_seconds: 2.0,
                virtual_bytes: 4_096_000.0,
                started: 123.45,
            };
            assert_eq!(stat, Some(expected), "{name}");
        }
        assert_eq!(read_stat("42 (tidegate"), None);
        assert_eq!(read_stat("42 (tidegate) S 1 2"), None);
    }
}
