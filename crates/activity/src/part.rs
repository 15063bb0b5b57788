//! The activity of one instance as others see it, and the sum of several.

use std::collections::HashMap;
use std::sync::Arc;

use crate::counts::OutcomeCounts;
use crate::coverage::Coverage;
use crate::distinct_sketch::DistinctSketch;
use crate::evidence::{DeniedRequest, LastDecision, ShowRequests};
use crate::names::KeyName;
use crate::seen_request::SeenRequest;
use crate::series::SeriesSpan;
use crate::top::{KeySort, KeyWindow, TopKey, TopKeys};

/// The activity of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActivityPart {
    /// Of all requests.
    pub total: PartSeries,
    /// The rules with the most traffic, the busiest first.
    pub rules: Vec<RulePart>,
    /// Whether nothing was left out for lack of room.
    pub is_complete: bool,
    /// When it counted.
    pub coverage: Coverage,
    /// The same for instances that hash keys alike.
    pub(crate) probe: u64,
}

/// Counts with the numbers of their seconds and minutes, in rising order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartSeries {
    /// By second.
    pub seconds: Vec<(u64, OutcomeCounts)>,
    /// By minute.
    pub minutes: Vec<(u64, OutcomeCounts)>,
}

/// The activity of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulePart {
    /// Its id.
    pub rule: Arc<str>,
    /// Its counts.
    pub series: PartSeries,
    /// Its largest keys.
    pub names: Vec<NamedKey>,
    /// Its largest keys by denials in the last minute and hour, then by admitted cost.
    pub lists: [KeyList; 4],
    /// The distinct keys that were denied in the last minute and hour.
    pub distinct_denied: [DistinctSketch; 2],
    /// Samples of its denied requests, the newest first.
    pub denied: Vec<DeniedRequest>,
}

/// A key as other instances know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedKey {
    /// Its name.
    pub name: KeyName,
    /// When it was last counted, in Unix seconds.
    pub seen: u32,
    /// Its last decision.
    pub last: Option<Arc<LastDecision>>,
}

/// The largest keys by one count over one window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyList {
    /// The largest first.
    pub keys: Vec<ListedKey>,
    /// Upper bound of the count of any key that is not listed.
    pub rest: u64,
    /// The sum of the counts of all keys.
    pub weight: u64,
}

/// A key in a list, with the bounds of its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedKey {
    /// The index of its name.
    pub name: usize,
    /// The least that its count can be.
    pub lower: u64,
    /// The most that its count can be.
    pub upper: u64,
}

/// The most samples of a rule's denied requests that others get.
const MOST_DENIED: usize = 20;

/// The sort and window of each list of a rule, in order.
pub(crate) const LISTS: [(KeySort, KeyWindow); 4] = [
    (KeySort::Denied, KeyWindow::Minute),
    (KeySort::Denied, KeyWindow::Hour),
    (KeySort::Used, KeyWindow::Minute),
    (KeySort::Used, KeyWindow::Hour),
];

impl ActivityPart {
    /// The part of a rule.
    pub fn rule(&self, id: &str) -> Option<&RulePart> {
        self.rules.iter().find(|rule| *rule.rule == *id)
    }
}

impl PartSeries {
    /// Adds the counts of each step to `points`.
    pub fn add_to(&self, span: &SeriesSpan, points: &mut [OutcomeCounts]) {
        let records = if span.step == 1 {
            &self.seconds
        } else {
            &self.minutes
        };
        let first = span.from / span.step;
        for (number, counts) in records {
            let index = number.checked_sub(first);
            let index = index.and_then(|index| usize::try_from(index).ok());
            if let Some(point) = index.and_then(|index| points.get_mut(index)) {
                *point = point.plus(counts);
            }
        }
    }
}

impl RulePart {
    /// The part of a rule, with the keys of each list.
    pub(crate) fn new(
        rule: Arc<str>,
        series: PartSeries,
        top_of_both: impl Fn(KeyWindow) -> [TopKeys; 2],
        show: &impl ShowRequests,
    ) -> Self {
        let mut part = Self {
            rule,
            series,
            names: Vec::new(),
            lists: Default::default(),
            denied: Vec::new(),
            distinct_denied: Default::default(),
        };
        let mut indexes = HashMap::new();
        let windows = [KeyWindow::Minute, KeyWindow::Hour].map(&top_of_both);
        let [[denied, used], [denied_hour, used_hour]] = windows;
        part.distinct_denied = [&denied, &denied_hour].map(|top| top.distinct_denied.clone());
        let tops = [denied, denied_hour, used, used_hour];
        for (list, top) in tops.into_iter().enumerate() {
            let listed = top.keys.iter().map(|key| {
                let name = key.name.published();
                let index = *indexes.entry(name.clone()).or_insert_with(|| {
                    let last = key.last.as_ref();
                    let last = last.map(|last| show.decision(&part.rule, last).published());
                    part.names.push(NamedKey {
                        name,
                        seen: 0,
                        last: last.map(Arc::new),
                    });
                    part.names.len() - 1
                });
                let seen = &mut part.names[index].seen;
                *seen = key.seen.max(*seen);
                ListedKey {
                    name: index,
                    lower: key.lower,
                    upper: key.upper,
                }
            });
            part.lists[list] = KeyList {
                keys: listed.collect(),
                rest: top.rest,
                weight: top.weight,
            };
        }
        part
    }

    /// Adds samples of denied requests, the newest first.
    pub(crate) fn add_denied(&mut self, samples: &[Arc<SeenRequest>], show: &impl ShowRequests) {
        let newest = samples.iter().take(MOST_DENIED);
        let shown = newest.map(|request| show.denied(request).published());
        self.denied.extend(shown);
    }

    /// The last decision of the key with this [published](KeyName::published) name.
    pub fn last_of(&self, name: &KeyName) -> Option<&Arc<LastDecision>> {
        let mut names = self.names.iter();
        names.find(|named| named.name == *name)?.last.as_ref()
    }

    /// One of its lists.
    pub fn list(&self, sort: KeySort, window: KeyWindow) -> &KeyList {
        let index = LISTS.iter().position(|list| *list == (sort, window));
        &self.lists[index.unwrap_or(0)]
    }

    fn distinct_denied(&self, window: KeyWindow) -> &DistinctSketch {
        match window {
            KeyWindow::Minute => &self.distinct_denied[0],
            KeyWindow::Hour => &self.distinct_denied[1],
        }
    }
}

/// The counts of a key, summed over all instances.
#[derive(Debug, Clone, Copy, Default)]
struct KeySum {
    denied: u64,
    used: u64,
    /// The least of the count that is asked for.
    lower: u64,
    /// Upper bound beyond what absent lists could add.
    above: u64,
    seen: u32,
}

impl TopKeys {
    /// Merges these keys with the same rule's keys on other instances. Keeps at most `most`.
    #[must_use]
    pub fn with_parts<'p>(
        self,
        parts: impl Iterator<Item = &'p RulePart> + Clone,
        (sort, window): (KeySort, KeyWindow),
        most: usize,
    ) -> Self {
        let lists = parts.clone().map(|part| part.list(sort, window));
        let rest = lists
            .clone()
            .fold(self.rest, |sum, list| sum.saturating_add(list.rest));
        let mut sums: HashMap<KeyName, KeySum> = HashMap::new();
        // The names of this instance show more of secret values.
        let mut own_keys = HashMap::new();
        for key in &self.keys {
            let name = key.name.published();
            let sum = sums.entry(name.clone()).or_default();
            own_keys.insert(name, key);
            sum.denied = sum.denied.saturating_add(key.denied);
            sum.used = sum.used.saturating_add(key.used);
            sum.lower = sum.lower.saturating_add(key.lower);
            sum.above = sum
                .above
                .saturating_add(key.upper.saturating_sub(self.rest));
            sum.seen = sum.seen.max(key.seen);
        }
        for part in parts.clone() {
            let name = |key: &ListedKey| part.names.get(key.name);
            for counted in [KeySort::Denied, KeySort::Used] {
                for key in &part.list(counted, window).keys {
                    let Some(named) = name(key) else { continue };
                    let sum = sums.entry(named.name.clone()).or_default();
                    match counted {
                        KeySort::Denied => sum.denied = sum.denied.saturating_add(key.lower),
                        KeySort::Used => sum.used = sum.used.saturating_add(key.lower),
                    }
                }
            }
            let list = part.list(sort, window);
            for key in &list.keys {
                let Some(NamedKey { name, seen, .. }) = name(key) else {
                    continue;
                };
                let sum = sums.entry(name.clone()).or_default();
                sum.lower = sum.lower.saturating_add(key.lower);
                sum.above = sum
                    .above
                    .saturating_add(key.upper.saturating_sub(list.rest));
                sum.seen = sum.seen.max(*seen);
            }
        }
        let mut keys: Vec<TopKey> = sums
            .into_iter()
            // Listed only by the other count.
            .filter(|(_, sum)| sum.lower > 0)
            .map(|(name, sum)| (own_keys.get(&name).copied(), name, sum))
            .map(|(own, name, sum)| TopKey {
                name: own.map_or(name, |own| own.name.clone()),
                last: own.and_then(|own| own.last.clone()),
                denied: sum.denied,
                used: sum.used,
                lower: sum.lower,
                upper: sum.above.saturating_add(rest).max(sum.lower),
                seen: sum.seen,
            })
            .collect();
        keys.sort_by(|one, other| {
            let order = (other.lower, other.upper).cmp(&(one.lower, one.upper));
            order.then_with(|| one.name.cmp(&other.name))
        });
        keys.truncate(most);
        let weight = lists.fold(self.weight, |sum, list| sum.saturating_add(list.weight));
        let denied = parts.map(|part| part.distinct_denied(window));
        Self {
            keys,
            distinct_denied: DistinctSketch::union(
                std::iter::once(&self.distinct_denied).chain(denied),
            ),
            weight,
            rest,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::KeyPart;
    use crate::traces_tests::PlainRequests;

    fn name(value: &str) -> KeyName {
        KeyName::new([KeyPart::clear("user_id", value)])
    }

    fn top(keys: &[(&str, u64, u64)], rest: u64) -> TopKeys {
        let key = |(value, lower, upper): &(&str, u64, u64)| TopKey {
            name: name(value),
            last: None,
            denied: *lower,
            used: 0,
            lower: *lower,
            upper: *upper,
            seen: 7,
        };
        let keys: Vec<TopKey> = keys.iter().map(key).collect();
        TopKeys {
            weight: keys.iter().map(|key| key.lower).sum(),
            distinct_denied: DistinctSketch::at_least(keys.len() as u64),
            keys,
            rest,
            ..TopKeys::default()
        }
    }

    fn part(keys: &[(&str, u64, u64)], rest: u64) -> RulePart {
        let of_both = |_| [top(keys, rest), TopKeys::default()];
        RulePart::new("r".into(), PartSeries::default(), of_both, &PlainRequests)
    }

    fn merged(own: TopKeys, parts: &[RulePart]) -> Vec<(String, u64, u64)> {
        let asked = (KeySort::Denied, KeyWindow::Minute);
        let all = own.with_parts(parts.iter(), asked, 20);
        let row = |key: &TopKey| (key.name.parts()[0].value.to_string(), key.lower, key.upper);
        all.keys.iter().map(row).collect()
    }

    #[test]
    fn a_key_that_an_instance_does_not_list_may_have_its_smallest_listed_count() {
        let row = |value: &str, lower, upper| (value.to_owned(), lower, upper);
        // A third key may have had up to 5.
        let cut = part(&[("a", 10, 10), ("b", 5, 5)], 5);
        let own = top(&[("b", 7, 7), ("d", 3, 3)], 0);
        assert_eq!(
            merged(own.clone(), std::slice::from_ref(&cut)),
            [row("b", 12, 12), row("a", 10, 10), row("d", 3, 8)]
        );
        // One that lists all of its keys adds nothing.
        let whole = part(&[("a", 10, 10), ("b", 5, 5)], 0);
        assert_eq!(merged(own.clone(), &[whole])[2], row("d", 3, 3));
        // One with an error adds it.
        let vague = part(&[("a", 10, 12)], 2);
        assert_eq!(
            merged(own, &[vague, cut]),
            [row("a", 20, 22), row("b", 12, 14), row("d", 3, 10)]
        );
    }

    #[test]
    fn a_digest_is_the_same_key_with_and_without_its_beginning() {
        let secret = |shown| KeyName::new([KeyPart::digest("api_key", shown)]);
        let mut own = top(&[("x", 1, 1)], 0);
        own.keys[0].name = secret("abcd…0123456789ab");
        let mut other = part(&[("x", 2, 2)], 0);
        other.names[0].name = own.keys[0].name.published();
        assert_eq!(other.names[0].name, secret("0123456789ab"));
        assert_eq!(
            merged(own, &[other]),
            [("abcd…0123456789ab".to_owned(), 3, 3)]
        );
    }
}
