//! The activity of an instance as bytes, for a store that instances share. Input is not trusted: it is checked, and
//! takes no more memory than a few times its length.

use std::sync::Arc;

use crate::counts::OutcomeCounts;
use crate::coverage::Coverage;
use crate::distinct_sketch::DistinctSketch;
use crate::evidence_bytes::{put_evidence, put_name, take_evidence, take_name};
use crate::part::{ActivityPart, KeyList, ListedKey, NamedKey, PartSeries, RulePart};
use crate::record::{put, put_record, take, take_record};
use crate::text_bytes::{put_text, take_count, take_text};

/// The form that is written below.
const FORM: u8 = 2;

/// The most that sketches of distinct keys may take.
const SKETCH_BYTES: usize = 12 << 10;

/// The most that last decisions and denied requests may take.
const EVIDENCE_BYTES: usize = 16 << 10;

/// The most rules and keys that are read.
pub(crate) const MOST_RULES: usize = 10_000;
const MOST_KEYS: usize = 100;

impl ActivityPart {
    /// The part as bytes, at most `most`. If that is too little, it leaves out first the older counts of rules, then
    /// keys, then rules.
    pub fn to_bytes(&self, most: usize) -> Vec<u8> {
        let mut is_complete = self.is_complete;
        let mut total = Vec::new();
        // Counts of all requests may take three eighths.
        is_complete &= put_series(&mut total, &self.total, most / 8 * 3);
        let mut header = self.probe.to_le_bytes().to_vec();
        self.coverage.put(&mut header);
        if header.len() > most / 8 {
            header.truncate(size_of_val(&self.probe));
            Coverage::default().put(&mut header);
        }
        let mut rules: Vec<Vec<u8>> = Vec::new();
        let mut left = most.saturating_sub(header.len() + total.len() + 16);
        let distinct = self.rules.iter().flat_map(|rule| &rule.distinct_denied);
        let distinct = DistinctSketch::all_to_bytes(distinct, SKETCH_BYTES.min(left / 4));
        let mut evidence = EVIDENCE_BYTES.min(left / 4);
        left -= evidence;
        // Keys may take half of the room, divided equally among the rules; counts of rules take the remainder.
        let count = self.rules.len().max(1);
        let share = left / 2 / count;
        for (rule, distinct) in self.rules.iter().zip(distinct.chunks(2)) {
            let distinct = distinct.concat();
            let keys = [usize::MAX, 10, 5, 3, 1, 0].into_iter().map(|keys| {
                let mut bytes = Vec::new();
                put_text(&mut bytes, &rule.rule);
                (put_keys(&mut bytes, rule, keys), bytes)
            });
            let mut keys = keys.skip_while(|(_, bytes)| bytes.len() > share);
            let fits = |bytes: &[u8]| bytes.len() + distinct.len() + 10 <= left;
            let keys = keys.next().filter(|(_, bytes)| fits(bytes));
            let Some(((has_all, named), mut bytes)) = keys else {
                is_complete = false;
                break;
            };
            is_complete &= has_all;
            bytes.extend(&distinct);
            left -= bytes.len() + 2;
            let before = bytes.len();
            let share = evidence / (count - rules.len());
            let named = named.iter().map(|index| &rule.names[*index]);
            put_evidence(&mut bytes, named, &rule.denied, share);
            evidence = (evidence + 2).saturating_sub(bytes.len() - before);
            rules.push(bytes);
        }
        left += evidence;
        is_complete &= rules.len() == self.rules.len();
        for (written, (rule, bytes)) in self.rules.iter().zip(&mut rules).enumerate() {
            let others = count - written;
            let mut series = Vec::new();
            is_complete &= put_series(&mut series, &rule.series, left / others);
            left -= series.len().min(left);
            bytes.extend(series);
        }
        let mut bytes = vec![FORM, u8::from(is_complete)];
        bytes.extend(header);
        bytes.extend(total);
        put(&mut bytes, rules.len() as u64);
        bytes.extend(rules.into_iter().flatten());
        bytes
    }

    /// The part that bytes are; none if they are not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut bytes = bytes.iter().copied();
        if bytes.next()? != FORM {
            return None;
        }
        let is_complete = bytes.next()? == 1;
        let probe: Vec<u8> = bytes.by_ref().take(size_of::<u64>()).collect();
        let probe = u64::from_le_bytes(probe.try_into().ok()?);
        let coverage = Coverage::take(&mut bytes)?;
        let total = take_series(&mut bytes)?;
        let count = take_count(&mut bytes, MOST_RULES)?;
        let mut rules = Vec::new();
        for _ in 0..count {
            rules.push(take_rule(&mut bytes, probe)?);
        }
        Some(Self {
            total,
            rules,
            is_complete,
            coverage,
            probe,
        })
    }
}

/// Writes counts, newest first, until the room is used up. True if all fit.
fn put_series(bytes: &mut Vec<u8>, series: &PartSeries, most: usize) -> bool {
    let end = bytes.len() + most.max(2);
    let mut has_all = true;
    let last = series.minutes.is_empty();
    for (records, is_last) in [(&series.seconds, last), (&series.minutes, true)] {
        // Two bytes are reserved for the next list.
        let room = end.saturating_sub(bytes.len() + if is_last { 0 } else { 2 });
        let (count, written) = newest(records, room);
        has_all &= count == records.len();
        put(bytes, count as u64);
        bytes.extend(written);
    }
    has_all
}

/// How many of the newest records fit, and their bytes.
fn newest(records: &[(u64, OutcomeCounts)], room: usize) -> (usize, Vec<u8>) {
    let mut count = 0;
    // The number of records, and the time of the first, need some bytes.
    let mut left = room.saturating_sub(13);
    let mut scratch = Vec::new();
    for (number, counts) in records.iter().rev() {
        let before = records.len().checked_sub(count + 2).map(|at| records[at].0);
        scratch.clear();
        put_record(
            &mut scratch,
            number.saturating_sub(before.unwrap_or(*number)),
            counts,
        );
        if scratch.len() > left {
            break;
        }
        left -= scratch.len();
        count += 1;
    }
    let mut bytes = Vec::new();
    let mut last = 0;
    for (number, counts) in &records[records.len() - count..] {
        put_record(&mut bytes, number.saturating_sub(last), counts);
        last = *number;
    }
    (count, bytes)
}

fn take_series(bytes: &mut impl Iterator<Item = u8>) -> Option<PartSeries> {
    let mut records = || {
        let count = take_count(bytes, 2_000)?;
        let mut records = Vec::new();
        let mut last = 0_u64;
        for _ in 0..count {
            let (distance, counts) = take_record(bytes)?;
            last = last.checked_add(distance)?;
            records.push((last, counts));
        }
        Some(records)
    };
    Some(PartSeries {
        seconds: records()?,
        minutes: records()?,
    })
}

/// Writes the names and lists of a rule, with at most `most` keys in each list. True if all are written, and the
/// indexes of the names that are.
fn put_keys(bytes: &mut Vec<u8>, rule: &RulePart, most: usize) -> (bool, Vec<usize>) {
    let listed = |list: &KeyList| list.keys.len().min(most);
    let all = rule
        .lists
        .iter()
        .flat_map(|list| &list.keys[..listed(list)]);
    let mut used: Vec<usize> = all.map(|key| key.name).collect();
    used.retain(|index| *index < rule.names.len());
    used.sort_unstable();
    used.dedup();
    put(bytes, used.len() as u64);
    for named in used.iter().map(|index| &rule.names[*index]) {
        put_name(bytes, &named.name);
        put(bytes, u64::from(named.seen));
    }
    let mut has_all = true;
    for list in &rule.lists {
        let keys = &list.keys[..listed(list)];
        has_all &= keys.len() == list.keys.len();
        // Keys are sorted: the first one left out bounds all that are left out.
        let left_out = list.keys.get(keys.len()).map_or(0, |key| key.upper);
        let smallest = keys.iter().map(|key| key.upper).min();
        let rest = if has_all {
            list.rest
        } else {
            list.rest.max(left_out).max(smallest.unwrap_or(0))
        };
        for number in [list.weight, rest, keys.len() as u64] {
            put(bytes, number);
        }
        for key in keys {
            put(bytes, used.binary_search(&key.name).unwrap_or(0) as u64);
            put(bytes, key.lower);
            put(bytes, key.upper.saturating_sub(key.lower));
        }
    }
    (has_all, used)
}

fn take_rule(bytes: &mut impl Iterator<Item = u8>, probe: u64) -> Option<RulePart> {
    let rule: Arc<str> = take_text(bytes)?.into();
    let count = take_count(bytes, 4 * MOST_KEYS)?;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(NamedKey {
            name: take_name(bytes)?,
            seen: u32::try_from(take(bytes)?).ok()?,
            last: None,
        });
    }
    let mut lists: [KeyList; 4] = Default::default();
    for list in &mut lists {
        (list.weight, list.rest) = (take(bytes)?, take(bytes)?);
        for _ in 0..take_count(bytes, MOST_KEYS)? {
            let name = take_count(bytes, names.len().checked_sub(1)?)?;
            let lower = take(bytes)?;
            let upper = lower.checked_add(take(bytes)?)?;
            list.keys.push(ListedKey { name, lower, upper });
        }
    }
    let minute = DistinctSketch::take(bytes, probe)?;
    let hour = DistinctSketch::take(bytes, probe)?;
    let denied = take_evidence(bytes, &mut names)?;
    let series = take_series(bytes)?;
    Some(RulePart {
        rule,
        series,
        names,
        lists,
        denied,
        distinct_denied: [minute, hour],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{KeyName, KeyPart};
    use crate::seen_request::{RequestTexts, SeenRequest};
    use crate::top::{KeySort, KeyWindow, TopKey, TopKeys};
    use crate::traces_tests::PlainRequests;

    fn series(seconds: u64, minutes: u64) -> PartSeries {
        let counts = |number: u64| OutcomeCounts {
            allowed: 1_000 + number % 7,
            denied: number % 3,
            cost: 1_000 + number % 7,
            ..OutcomeCounts::default()
        };
        PartSeries {
            seconds: (0..seconds)
                .map(|number| (1_800_000_000 + number, counts(number)))
                .collect(),
            minutes: (0..minutes)
                .map(|number| (30_000_000 + number, counts(number)))
                .collect(),
        }
    }

    fn request(number: u64) -> Arc<SeenRequest> {
        let (key, path) = (
            [("user_id", "client-1")],
            [("path", "/v1/orders"), ("tier", "pro")],
        );
        Arc::new(SeenRequest {
            at: 1_800_000_000_000_000 - number,
            is_allowed: number.is_multiple_of(2),
            decided_by: Some("rule-1".into()),
            reason: (!number.is_multiple_of(2)).then_some("over_limit"),
            denied_for: Some("over_limit"),
            retry_after: (!number.is_multiple_of(3)).then_some(1_500_000),
            grant_from: "tier",
            grant: "1000/minute".into(),
            cost: 1,
            front_end: "gateway",
            texts: RequestTexts::new(key.into_iter(), path.into_iter()),
        })
    }

    fn part(rules: usize, keys: u64, series_of_rules: &PartSeries) -> ActivityPart {
        let top = |_: KeyWindow| {
            let key = |number: u64| TopKey {
                name: KeyName::new([KeyPart::clear("user_id", &format!("client-{number:06}"))]),
                last: Some(request(number)),
                denied: 0,
                used: 0,
                lower: 100_000 - number,
                upper: 100_100 - number,
                seen: 1_800_000_000,
            };
            let top = TopKeys {
                keys: (0..keys).map(key).collect(),
                weight: 7_000_000,
                rest: 9,
                distinct_denied: DistinctSketch::of_hashes(7, 0..keys),
                ..TopKeys::default()
            };
            [top.clone(), top]
        };
        let denied: Vec<_> = (0..keys).map(request).collect();
        let rule = |number| {
            let id = format!("rule-{number}").into();
            let mut part = RulePart::new(id, series_of_rules.clone(), top, &PlainRequests);
            part.add_denied(&denied, &PlainRequests);
            part
        };
        ActivityPart {
            total: series(300, 1_440),
            rules: (0..rules).map(rule).collect(),
            is_complete: true,
            probe: 7,
            coverage: Coverage::take(&mut [2, 100, 50, 10, 60].into_iter()).unwrap_or_default(),
        }
    }

    #[test]
    fn a_part_that_fits_comes_back_as_it_was() {
        for part in [
            ActivityPart::default(),
            part(3, 20, &series(300, 1_440)),
            part(2, 1, &series(0, 3)),
        ] {
            let bytes = part.to_bytes(64 << 10);
            assert_eq!(ActivityPart::from_bytes(&bytes), Some(part));
        }
    }

    #[test]
    fn a_part_that_does_not_fit_keeps_what_is_newest_and_largest_and_says_so() {
        let whole = part(50, 20, &series(300, 1_440));
        let bytes = whole.to_bytes(64 << 10);
        assert!(
            (60 << 10..=64 << 10).contains(&bytes.len()),
            "{}",
            bytes.len()
        );
        let read = ActivityPart::from_bytes(&bytes).unwrap();
        assert!(!read.is_complete);
        assert_eq!((read.total, read.rules.len()), (whole.total.clone(), 50));
        for (read, rule) in read.rules.iter().zip(&whole.rules) {
            assert!(rule.series.seconds.ends_with(&read.series.seconds));
            assert!(rule.series.minutes.ends_with(&read.series.minutes));
            assert!(
                read.series.seconds.len() > 20,
                "{}",
                read.series.seconds.len()
            );
            let list = read.list(KeySort::Denied, KeyWindow::Minute);
            assert!(list.keys.len() >= 3, "{}", list.keys.len());
            let smallest = list.keys.iter().map(|key| key.upper).min();
            assert!(list.rest >= smallest.unwrap());
        }
        for most in [0, 10, 100, 1_000, 10_000] {
            let bytes = whole.to_bytes(most);
            assert!(bytes.len() <= most.max(32), "{} of {most}", bytes.len());
            assert!(ActivityPart::from_bytes(&bytes).is_some(), "{most}");
        }
    }

    #[test]
    fn bytes_that_are_not_a_part_are_refused_and_never_a_panic() {
        assert_eq!(ActivityPart::from_bytes(b""), None);
        assert_eq!(ActivityPart::from_bytes(b"\xff\x01\x00\x00\x00"), None);
        let bytes = part(2, 5, &series(3, 3)).to_bytes(64 << 10);
        for end in 0..bytes.len() {
            assert_eq!(ActivityPart::from_bytes(&bytes[..end]), None, "{end}");
        }
        let mut state = 1_u64;
        for round in 0..3_000 {
            let mut changed = bytes.clone();
            for _ in 0..=round % 4 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = usize::try_from(state >> 33).unwrap() % changed.len();
                changed[at] = state.to_le_bytes()[6];
            }
            let _ = ActivityPart::from_bytes(&changed);
        }
        // A list that claims to be long.
        let _ = ActivityPart::from_bytes(&[&[FORM, 1][..], &[0xff; 9]].concat());
    }
}
