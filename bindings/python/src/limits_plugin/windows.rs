//! The windows of keys. `limits` asks for the usage of a key without saying what its window is.

use std::collections::HashMap;

use tidegate::limit::MAX_COUNT;
use tidegate::{LimitError, Micros, Timestamp};

use super::strategy::StrategyLimit;

/// How many keys that do not name their window are remembered.
const MOST: usize = 65_536;

/// The windows of keys that do not name theirs, or another one: a storage can be called with any key.
#[derive(Default)]
pub(super) struct CounterWindows {
    others: HashMap<Box<str>, OpenWindow>,
}

#[derive(Clone, Copy)]
struct OpenWindow {
    window: Micros,
    ends_at: Timestamp,
}

/// A key, its window and its end in microseconds.
pub(super) type ListedWindow = (String, u64, u64);

impl CounterWindows {
    /// The window in which a hit is counted: the one that is open for the key, else the given one.
    pub(super) fn to_count_in(
        &self,
        key: &str,
        given: Micros,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Micros, LimitError> {
        if let Some(named) = NamedLimit::of(key)
            && named.amount > MAX_COUNT
        {
            return Err(LimitError::TooLarge {
                what: "count",
                value: named.amount,
            });
        }
        let open = self.others.get(key);
        let open = open.filter(|open| open.window != given && open.ends_at > now());
        Ok(open.map_or(given, |open| open.window))
    }

    /// The window of a key, if it is known.
    pub(super) fn of(&self, key: &str) -> Option<Micros> {
        let other = self.others.get(key).map(|open| open.window);
        other.or_else(|| NamedLimit::of(key).map(|named| named.window))
    }

    /// A hit was counted in a window that ends then.
    pub(super) fn counted_in(&mut self, limit: &StrategyLimit, ends_at: Timestamp) {
        let (key, window) = (limit.key(), limit.window());
        if NamedLimit::of(key).is_some_and(|named| named.window == window) {
            if !self.others.is_empty() {
                self.others.remove(key);
            }
            return;
        }
        if self.others.len() >= MOST && !self.others.contains_key(key) {
            // The end of the newest window is about now, or later.
            let begun_at = ends_at - window;
            self.others.retain(|_, open| open.ends_at > begun_at);
            if self.others.len() >= MOST {
                self.others.clear();
            }
        }
        self.others
            .insert(key.into(), OpenWindow { window, ends_at });
    }

    pub(super) fn clear(&mut self) {
        self.others.clear();
    }

    pub(super) fn listed(&self) -> Vec<ListedWindow> {
        let mut list = Vec::with_capacity(self.others.len());
        for (key, open) in &self.others {
            list.push((key.to_string(), open.window.get(), open.ends_at.as_micros()));
        }
        list
    }

    pub(super) fn from_list(list: Vec<ListedWindow>) -> Self {
        let open = |(key, window, ends_at): ListedWindow| {
            let open = OpenWindow {
                window: Micros::new(window),
                ends_at: Timestamp::from_micros(ends_at),
            };
            (key.into(), open)
        };
        Self {
            others: list.into_iter().map(open).collect(),
        }
    }
}

/// The limit in a key that `RateLimitItem.key_for` made: `…/amount/multiples/granularity`.
struct NamedLimit {
    amount: u64,
    window: Micros,
}

impl NamedLimit {
    fn of(key: &str) -> Option<Self> {
        let mut parts = key.rsplitn(4, '/');
        let granularity = match parts.next()? {
            "second" => Micros::SECOND,
            "minute" => Micros::MINUTE,
            "hour" => Micros::HOUR,
            "day" => Micros::DAY,
            "month" => Micros::DAY.times(30),
            "year" => Micros::DAY.times(360),
            _ => return None,
        };
        let (multiples, amount) = (parts.next()?, parts.next()?);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(multiples) || !is_number(amount) {
            return None;
        }
        // What does not fit is more than any limit.
        let [multiples, amount] = [multiples, amount].map(|n| n.parse().unwrap_or(u64::MAX));
        Some(Self {
            amount,
            window: granularity.times(multiples),
        })
    }
}
