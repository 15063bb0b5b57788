//! The files of a server: the rule file truncated, corrupted or deleted, the disk full, the data directory lost.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use tidegate_testkit::now;
use tidegate_testkit::redis::RedisServer;

use crate::bound::OverBound;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::row::{FaultGroup, FaultRow, RowFact, RowOutcome, RowSkipped};
use crate::rules::rule_file;
use crate::stage::{Stage, millis};

pub(super) const ROWS: &[FaultRow] = &[
    row(
        "rules-truncated",
        "rule file cut in the middle of a rule",
        |ground| damaged_rules(ground, |file| fs::write(file, half(&rule_file()))),
    ),
    row(
        "rules-corrupted",
        "rule file overwritten with bytes that are not text",
        |ground| {
            damaged_rules(ground, |file| {
                fs::write(file, [0xff_u8, 0, 0xfe, b'{'].repeat(500))
            })
        },
    ),
    FaultRow {
        name: "rules-deleted",
        group: FaultGroup::Servers,
        title: "rule file deleted",
        is_short: true,
        run: |ground| damaged_rules(ground, |file| fs::remove_file(file)),
    },
    row(
        "disk-full",
        "data directory full (tmpfs of 1 MiB), then killed (SIGKILL)",
        disk_full,
    ),
    row(
        "data-lost",
        "data directories of all servers removed, and the servers restarted",
        data_lost,
    ),
];

const fn row(
    name: &'static str,
    title: &'static str,
    run: fn(&Ground) -> anyhow::Result<RowOutcome>,
) -> FaultRow {
    FaultRow {
        name,
        group: FaultGroup::Servers,
        title,
        is_short: false,
        run,
    }
}

/// The first half of a text, which ends within a rule.
fn half(text: &str) -> String {
    let middle = text.len() / 2;
    let line = text[middle..]
        .find("limit")
        .map_or(middle, |at| middle + at);
    text[..line].to_owned()
}

/// Damages the rule files of all servers, and restores them. The last good rules must stay in force.
fn damaged_rules(
    ground: &Ground,
    damage: impl Fn(&Path) -> std::io::Result<()>,
) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut stage = Stage::over_redis(ground, &redis.url())?;
    stage.warm_up();
    let rules = stage.fleet.metric("tidegate_rules");
    let servers = stage.fleet.servers.iter();
    let files: Vec<_> = servers.map(|server| server.file("rules.yaml")).collect();
    for file in &files {
        damage(file)?;
    }
    stage.hold();
    let noticed = stage.fleet.metric("tidegate_rules_stale");
    let kept = stage.fleet.metric("tidegate_rules");
    for file in &files {
        fs::write(file, rule_file())?;
    }
    let restored = now();
    stage.healed();
    let end = restored + Duration::from_secs(5);
    while stage.fleet.metric("tidegate_rules_stale") > 0.0 && now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = millis(now() - restored);
    stage.facts.extend([
        RowFact::at_least("rules in force on all servers meanwhile", kept, rules, ""),
        RowFact::at_least("servers that reported it", noticed, 3.0, ""),
        RowFact::at_most("until the restored file is in force", took, 2_000.0, "ms").about_time(),
    ]);
    Ok(stage.finish(OverBound::nothing_lost()))
}

/// A file system of 1 MiB in memory. Unmounted when it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> anyhow::Result<Self> {
        let disk = Self(tempfile::tempdir()?);
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(disk.0.path())
            .output()?;
        if mounted.status.success() {
            return Ok(disk);
        }
        let reason = String::from_utf8_lossy(&mounted.stderr);
        let reason = format!("a tmpfs cannot be mounted here: {}", reason.trim());
        Err(RowSkipped(reason).into())
    }

    fn fill(&self) -> anyhow::Result<()> {
        let file = self.0.path().join("filler");
        // It ends with an error when the disk is full.
        let written = fs::write(&file, vec![0; 2 << 20]);
        ensure!(written.is_err(), "the disk took 2 MiB");
        Ok(())
    }

    fn free(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.0.path().join("filler"))?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// One server with its rules in the data directory, counting in memory.
fn disk_full(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let disk = SmallDisk::mount()?;
    let mut fleet = Fleet::new(ground, 1, None)?;
    fleet.set("TIDEGATE_SNAPSHOT", "1s");
    fleet.servers[0].launch.flags.clear();
    fleet.servers[0].set_data(&disk.0.path().join("data"));
    fleet.start()?;
    let (status, text) = fleet.servers[0].call("PUT /v1/rules", &as_json(&rule_file()))?;
    ensure!(status == 200, "the rules were refused: {status} {text}");
    let mut stage = Stage::of(ground, fleet);
    stage.warm_up();
    disk.fill()?;
    let server = &mut stage.fleet.servers[0];
    let body = r#"{"id": "one-more", "per": [], "limit": "5/minute", "match": {"path": "/other"}}"#;
    let (refused, _) = server.call("POST /v1/rules", body)?;
    std::thread::sleep(ground.fault);
    let failures = server.metric("tidegate_snapshot_failures_total")?;
    disk.free()?;
    stage.healed();
    let server = &mut stage.fleet.servers[0];
    let (accepted, _) = server.call("POST /v1/rules", body)?;
    stage.exclude(0);
    let server = &mut stage.fleet.servers[0];
    server.kill();
    server.start()?;
    let rules = server.metric("tidegate_rules")?;
    stage.facts.extend([
        RowFact::is_true("a change of the rules is refused with 507", refused == 507),
        RowFact::at_least("failed snapshots, counted", failures, 1.0, ""),
        RowFact::is_true("accepted once there is room", accepted == 201),
        RowFact::at_least("rules after SIGKILL and a start", rules, 13.0, ""),
    ]);
    // The kill loses at most the counters since the last snapshot, a second old.
    Ok(stage.finish(OverBound::lost_once()))
}

/// The rules as the API takes them.
fn as_json(yaml: &str) -> String {
    // Flow maps of plain words: a comma or a colon ends each word.
    let rules = yaml.lines().filter_map(|line| line.strip_prefix("  - "));
    let rules: Vec<String> = rules.map(quote_words).collect();
    format!("{{\"rules\": [{}]}}", rules.join(", "))
}

fn quote_words(flow: &str) -> String {
    let (mut text, mut word) = (String::new(), String::new());
    for letter in flow.chars() {
        if "{}[],:".contains(letter) {
            if !word.trim().is_empty() {
                let _ = write!(text, "\"{}\"", word.trim());
            }
            word.clear();
            text.push(letter);
        } else {
            word.push(letter);
        }
    }
    text
}

fn data_lost(ground: &Ground) -> anyhow::Result<RowOutcome> {
    let redis = RedisServer::start();
    let mut fleet = Fleet::new(ground, 3, Some(&redis.url()))?;
    fleet.set("TIDEGATE_DRAIN_DELAY", "1s");
    fleet.start()?;
    let mut stage = Stage::behind_a_balancer(ground, fleet);
    stage.warm_up();
    for server in &stage.fleet.servers {
        fs::remove_dir_all(server.data())?;
    }
    stage.hold();
    for server in &mut stage.fleet.servers {
        server.terminate()?;
        server.start()?;
        std::thread::sleep(Duration::from_millis(500));
    }
    stage.healed();
    Ok(stage.finish(OverBound::nothing_lost()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_the_same_as_json() {
        let json = as_json(&rule_file());
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let rules = value["rules"].as_array().unwrap();
        assert_eq!(rules.len(), 12);
        assert_eq!(rules[0]["match"]["path"], "/exact-allow-window");
        assert_eq!(rules[11]["limit"], "50/second burst 50");
        assert_eq!(rules[11]["per"][0], "user_id");
    }

    #[test]
    fn a_truncated_file_ends_within_a_rule() {
        let cut = half(&rule_file());
        assert!(!cut.ends_with('\n'));
        assert!(cut.lines().count() > 3);
    }
}
