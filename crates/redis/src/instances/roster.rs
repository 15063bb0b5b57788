//! Which instances count, by the last reply of Redis.
//!
//! Only a reply of Redis changes the roster. While Redis is unreachable it stays as it was, so that all
//! instances continue with the same number.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::known_instances::KnownInstance;

/// How long an instance counts that is missing and did not leave, in time in which Redis answers.
const MISSING_FOR: Duration = Duration::from_mins(10);
/// Names that are longer are not those of instances.
const LONGEST_NAME: usize = 100;

/// The names of instances, and for how long each has been missing; none if it is present.
#[derive(Debug, Default)]
pub(super) struct Roster {
    instances: BTreeMap<String, Option<Duration>>,
}

impl Roster {
    /// Starts with the instances of the previous run. Other names with the id of `own` are of runs that have ended.
    pub(super) fn new(own: &str, known: impl IntoIterator<Item = KnownInstance>) -> Self {
        let is_other =
            |known: &KnownInstance| is_name(&known.name) && id_of(&known.name) != id_of(own);
        let others = known.into_iter().filter(is_other);
        let mut instances: BTreeMap<_, _> =
            others.map(|known| (known.name, known.missing)).collect();
        instances.insert(own.to_owned(), None);
        Self { instances }
    }

    /// Updates the roster from a reply that came `passed` after the last one: the names that are present and that left.
    pub(super) fn update(&mut self, present: Vec<String>, left: &[String], passed: Duration) {
        let present: HashSet<String> = present.into_iter().filter(|name| is_name(name)).collect();
        let ids: HashSet<&str> = present.iter().map(|name| id_of(name)).collect();
        let left: HashSet<&str> = left.iter().map(String::as_str).collect();
        self.instances.retain(|name, missing| {
            let missing = missing.get_or_insert_default();
            *missing = missing.saturating_add(passed);
            // A restarted instance is present under another name.
            *missing < MISSING_FOR && !left.contains(name.as_str()) && !ids.contains(id_of(name))
        });
        self.instances
            .extend(present.into_iter().map(|name| (name, None)));
    }

    /// Takes in a reply that came `passed` after the last one: the same names are present.
    pub(super) fn unchanged(&mut self, passed: Duration) {
        self.instances.retain(|_, missing| {
            missing.as_mut().is_none_or(|missing| {
                *missing = missing.saturating_add(passed);
                *missing < MISSING_FOR
            })
        });
    }

    /// The instances that count.
    pub(super) fn known(&self) -> Vec<KnownInstance> {
        let known = |(name, missing): (&String, &Option<Duration>)| KnownInstance {
            name: name.clone(),
            missing: *missing,
        };
        self.instances.iter().map(known).collect()
    }

    /// How many count.
    pub(super) fn count(&self) -> u64 {
        self.instances.len() as u64
    }

    /// How many of them were present when Redis last answered.
    pub(super) fn present(&self) -> u64 {
        let is_there = |missing: &&Option<Duration>| missing.is_none();
        self.instances.values().filter(is_there).count() as u64
    }
}

/// The part of a name that all runs of an instance share. Older versions have a name for each run only.
fn id_of(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: Duration = Duration::from_millis(300);

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn three() -> Roster {
        let mut roster = Roster::new("a-1", []);
        roster.update(names(&["a-1", "b-1", "c-1"]), &[], ANSWERS);
        assert_eq!(roster.count(), 3);
        roster
    }

    /// Asks for `time`; only `a` is there.
    fn alone_for(roster: &mut Roster, time: Duration) {
        for _ in 0..time.as_millis() / ANSWERS.as_millis() {
            roster.update(names(&["a-1"]), &[], ANSWERS);
        }
    }

    #[test]
    fn one_that_left_is_dropped_at_once() {
        let mut roster = three();
        roster.update(names(&["a-1", "c-1"]), &names(&["b-1"]), ANSWERS);
        assert_eq!(roster.count(), 2);
    }

    #[test]
    fn one_that_vanished_counts_for_ten_more_minutes_in_which_redis_answers() {
        let mut roster = three();
        alone_for(&mut roster, Duration::from_secs(599));
        assert_eq!((roster.count(), roster.present()), (3, 1));
        alone_for(&mut roster, Duration::from_secs(2));
        assert_eq!(roster.count(), 1);
    }

    #[test]
    fn one_that_comes_back_begins_anew() {
        let mut roster = three();
        alone_for(&mut roster, Duration::from_secs(500));
        roster.update(names(&["a-1", "b-1", "c-1"]), &[], ANSWERS);
        alone_for(&mut roster, Duration::from_secs(500));
        assert_eq!(roster.count(), 3);
        roster.update(names(&["a-1", "b-1"]), &[], ANSWERS);
        roster.unchanged(Duration::from_secs(101));
        assert_eq!(roster.count(), 2, "`c` has been missing for ten minutes");
    }

    #[test]
    fn one_that_was_killed_and_restarted_is_the_same_one() {
        let mut roster = three();
        roster.update(names(&["a-1", "b-1", "b-2", "c-1"]), &[], ANSWERS);
        assert_eq!(roster.count(), 4, "its last run still has time left");
        roster.update(names(&["a-1", "b-2", "c-1"]), &[], ANSWERS);
        assert_eq!(roster.count(), 3);
        let restarted = Roster::new("a-2", roster.known());
        assert_eq!(restarted.count(), 3);
    }

    #[test]
    fn two_that_run_under_one_id_are_two() {
        let mut roster = three();
        roster.update(names(&["a-1", "a-2", "b-1", "c-1"]), &[], ANSWERS);
        assert_eq!(roster.count(), 4);
    }

    #[test]
    fn those_of_an_older_version_count_by_their_names() {
        let mut roster = Roster::new("a-1", []);
        roster.update(names(&["a-1", "0f", "1f"]), &[], ANSWERS);
        roster.update(names(&["a-1", "0f"]), &[], ANSWERS);
        assert_eq!((roster.count(), roster.present()), (3, 2));
    }

    #[test]
    fn what_is_no_name_does_not_count() {
        let mut roster = Roster::new("a-1", []);
        let long = "x".repeat(101);
        roster.update(
            names(&["a-1", "", "two words", "line\n", &long]),
            &[],
            ANSWERS,
        );
        assert_eq!(roster.count(), 1);
    }
}
