//! The memory that the process may use: the smallest of the machine's memory, the limits of its cgroups, and the limit
//! on address space.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// The least that states may take by default.
const LEAST: usize = 64 << 20;

/// The default memory for states: a quarter of the memory that the process may use.
pub(crate) fn default_max_memory() -> usize {
    quarter(limits(
        Path::new("/"),
        getrlimit(Resource::As).current.unwrap_or(u64::MAX),
    ))
}

fn quarter(most: u64) -> usize {
    usize::try_from(most / 4).unwrap_or(usize::MAX).max(LEAST)
}

/// The smallest of the limits that the files below `root` state and of one more.
fn limits(root: &Path, address_space: u64) -> u64 {
    let machine = fs::read_to_string(root.join("proc/meminfo"));
    let machine = machine.ok().and_then(|text| total(&text));
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let cgroups = cgroups
        .lines()
        .filter_map(|line| of_cgroup(root, line))
        .min();
    let all = [Some(address_space), machine, cgroups];
    all.into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// The memory of the machine, in the form of `/proc/meminfo`.
fn total(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let total = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1_024)
}

/// The smallest limit of a cgroup and of those that it is in. In a container its own path may not exist; then the limit
/// is at the root.
fn of_cgroup(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (folder, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let folder = root.join(folder);
    let own = folder.join(path.trim_start_matches('/'));
    let all = own.ancestors().take_while(|path| path.starts_with(&folder));
    let limit = |path: &Path| {
        fs::read_to_string(path.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    all.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_smallest_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |address_space| limits(root.path(), address_space);
        assert_eq!(limit(u64::MAX), u64::MAX, "nothing is known");
        write(
            "proc/meminfo",
            "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
        );
        assert_eq!(limit(u64::MAX), 8 * GIB);
        assert_eq!(limit(6 * GIB), 6 * GIB);
        write("proc/self/cgroup", "0::/a.slice/b.service\n");
        assert_eq!(limit(u64::MAX), 8 * GIB);
        write("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        assert_eq!(limit(u64::MAX), 8 * GIB);
        write("sys/fs/cgroup/a.slice/memory.max", "5368709120\n");
        assert_eq!(limit(u64::MAX), 5 * GIB);
        write("sys/fs/cgroup/memory.max", "4294967296\n");
        assert_eq!(limit(u64::MAX), 4 * GIB, "that of a container");
        write("proc/self/cgroup", "3:cpu,cpuacct:/x\n2:memory:/docker/1\n");
        assert_eq!(limit(u64::MAX), 8 * GIB, "other files");
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "3221225472\n");
        assert_eq!(limit(u64::MAX), 3 * GIB);
        for (most, expected) in [(GIB, 256 << 20), (1, LEAST), (u64::MAX, usize::MAX / 4)] {
            assert_eq!(quarter(most), expected, "{most}");
        }
    }
}
