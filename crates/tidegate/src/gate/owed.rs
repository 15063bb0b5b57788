//! What was admitted without the store and is still to be charged there.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tidegate_core::{Limit, Scope, Timestamp};

use crate::rules::Share;

/// How many keys are remembered at the most.
pub(super) const MAX_KEYS: usize = 100_000;

/// What one key took of one limit.
#[derive(Debug, Clone)]
pub(super) struct Debt {
    pub(super) share: Arc<Share>,
    pub(super) amount: u64,
    /// The time of the last request, if it brought its own.
    pub(super) at: Option<Timestamp>,
    /// When the store may have room for it, if it had none the last time.
    pub(super) not_before: Option<Timestamp>,
}

/// Names the states of a rule's limit, whatever its count: scope and shape.
type DebtKind = (u64, u64);

/// Everything that is owed, and in which order it came.
#[derive(Debug, Default)]
pub(super) struct Owed {
    by_kind: HashMap<DebtKind, HashMap<Arc<str>, Debt>>,
    /// The oldest first. Some of these may be settled already.
    order: VecDeque<(DebtKind, Arc<str>)>,
    keys: usize,
    lost: u64,
}

impl Owed {
    /// Remembers more of what a key took. If there is no room, the oldest is forgotten.
    pub(super) fn add(&mut self, key: &str, debt: Debt) {
        let kind = kind(&debt.share.scope, &debt.share.whole);
        let known = self.by_kind.get_mut(&kind).and_then(|of| of.get_mut(key));
        if let Some(known) = known {
            let amount = known.amount.saturating_add(debt.amount);
            *known = Debt { amount, ..debt };
            return;
        }
        while self.keys >= MAX_KEYS && self.take_oldest().is_some() {
            self.lost += 1;
        }
        if self.order.len() >= 2 * MAX_KEYS {
            let by_kind = &self.by_kind;
            self.order.retain(|(kind, key)| {
                let of = by_kind.get(kind);
                of.is_some_and(|of| of.contains_key(key))
            });
        }
        let key: Arc<str> = key.into();
        self.order.push_back((kind, Arc::clone(&key)));
        self.by_kind.entry(kind).or_default().insert(key, debt);
        self.keys += 1;
    }

    /// Takes out what a key owes of a limit.
    pub(super) fn take(&mut self, scope: &Scope, limit: &Limit, key: &str) -> Option<Debt> {
        self.remove(kind(scope, limit), key)
    }

    /// Takes out what has been owed for the longest time.
    pub(super) fn take_oldest(&mut self) -> Option<(Arc<str>, Debt)> {
        while let Some((kind, key)) = self.order.pop_front() {
            if let Some(debt) = self.remove(kind, &key) {
                return Some((key, debt));
            }
        }
        None
    }

    fn remove(&mut self, kind: DebtKind, key: &str) -> Option<Debt> {
        let of = self.by_kind.get_mut(&kind)?;
        let debt = of.remove(key)?;
        if of.is_empty() {
            self.by_kind.remove(&kind);
        }
        self.keys -= 1;
        if self.keys == 0 {
            // What is left there is settled, and need not be looked at again.
            self.order = VecDeque::new();
        }
        Some(debt)
    }

    /// How many keys owe something.
    pub(super) fn len(&self) -> usize {
        self.keys
    }

    /// How many keys had to be forgotten.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

fn kind(scope: &Scope, limit: &Limit) -> DebtKind {
    (scope.id(), limit.shape())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debt(rule: &str, amount: u64) -> Debt {
        let limit: Limit = "10/minute".parse().unwrap();
        let share = Share {
            scope: Scope::new(rule),
            part: limit.clone(),
            whole: limit,
        };
        Debt {
            share: Arc::new(share),
            amount,
            at: None,
            not_before: None,
        }
    }

    #[test]
    fn what_a_key_owes_is_added_up_and_taken_once() {
        let mut owed = Owed::default();
        for (rule, key, amount) in [("a", "x", 1), ("a", "x", 2), ("b", "x", 4), ("a", "y", 8)] {
            owed.add(key, debt(rule, amount));
        }
        assert_eq!(owed.len(), 3);
        let limit = "99/minute".parse().unwrap();
        let hour = "10/hour".parse().unwrap();
        let mut take = |limit| Some(owed.take(&Scope::new("a"), limit, "x")?.amount);
        assert_eq!(take(&hour), None, "another window");
        assert_eq!(take(&limit), Some(3), "another count");
        assert_eq!(take(&limit), None);
        let mut rest = || owed.take_oldest().map(|(key, debt)| (key, debt.amount));
        assert_eq!(rest(), Some(("x".into(), 4)));
        assert_eq!(rest(), Some(("y".into(), 8)));
        assert_eq!(rest(), None);
        assert_eq!((owed.len(), owed.lost()), (0, 0));
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let mut owed = Owed::default();
        for key in 0..MAX_KEYS + 3 {
            owed.add(&key.to_string(), debt("a", 1));
        }
        assert_eq!((owed.len(), owed.lost()), (MAX_KEYS, 3));
        assert_eq!(owed.take_oldest().unwrap().0.as_ref(), "3");
    }

    #[test]
    fn what_was_settled_takes_no_memory() {
        let mut owed = Owed::default();
        owed.add("stays", debt("a", 1));
        let limit = "10/minute".parse().unwrap();
        for _ in 0..3 * MAX_KEYS {
            owed.add("x", debt("a", 1));
            owed.take(&Scope::new("a"), &limit, "x").unwrap();
        }
        assert!(owed.order.len() <= 2 * MAX_KEYS);
        assert_eq!(owed.take_oldest().unwrap().0.as_ref(), "stays");
    }
}
