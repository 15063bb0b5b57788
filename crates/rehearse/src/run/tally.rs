//! Counts by rule and by client.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use smol_str::SmolStr;
use tidegate::Reason;
use tidegate::gate::{ObservedCandidate, ObservedRule};
use tidegate::rules::Verdict;

use super::candidate::CandidateTally;

/// How many pairs of rule and client are counted exactly.
pub(super) const MOST_PAIRS: usize = 1_000_000;

/// What one rule said to one client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientTally {
    pub(crate) requests: u64,
    pub(crate) denied: u64,
    pub(crate) delayed: u32,
    pub(crate) longest_streak: u32,
    /// The denials in a row up to now.
    streak: u32,
    /// The factors of the scale by which it has a denied request, a bit for each.
    pub(crate) denied_by: u32,
    /// When the current streak began.
    streak_from: u64,
}

/// Denials of one client in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Streak {
    pub(crate) key: SmolStr,
    pub(crate) denied: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What one rule said.
#[derive(Debug, Default)]
pub(crate) struct RuleTally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) delayed: u64,
    pub(crate) cost: u64,
    /// What the rule or its candidate allowed and denied where it decided.
    pub(crate) enforced: [u64; 2],
    pub(crate) candidate: CandidateTally,
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    /// How many requests lacked which attribute of `per`.
    pub(crate) missing: BTreeMap<String, u64>,
    /// Requests that escaped the rule for that.
    pub(crate) escaped: u64,
    pub(crate) streak: Option<Streak>,
    indexes: HashMap<SmolStr, u32, RandomState>,
    clients: Vec<ClientTally>,
    /// Clients that were counted and had to make room: all of them, and those with a denied request.
    dropped: [u64; 2],
    /// The same for each factor of the scale.
    dropped_by: Vec<u64>,
}

impl RuleTally {
    /// How many clients it has, about as many if some had to make room.
    pub(crate) fn client_count(&self) -> u64 {
        self.clients.len() as u64 + self.dropped[0]
    }

    pub(crate) fn clients_denied(&self) -> u64 {
        self.clients
            .iter()
            .filter(|client| client.denied > 0)
            .count() as u64
            + self.dropped[1]
    }

    /// How many clients have a denied request by a factor of the scale.
    pub(crate) fn clients_denied_by(&self, factor: usize) -> u64 {
        let is_denied = |client: &&ClientTally| client.denied_by >> factor & 1 == 1;
        let dropped = self.dropped_by.get(factor).copied().unwrap_or(0);
        self.clients.iter().filter(is_denied).count() as u64 + dropped
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.dropped[0] == 0 && self.candidate.is_exact()
    }

    /// The clients in the order of a report: by most denied, then most requests, then key.
    pub(crate) fn top(&self, most: Option<usize>) -> Vec<(&str, ClientTally)> {
        let all = self.indexes.iter();
        let mut all: Vec<(&str, ClientTally)> = all
            .map(|(key, index)| (key.as_str(), self.clients[*index as usize]))
            .collect();
        let order = |one: &(&str, ClientTally), other: &(&str, ClientTally)| {
            let counts = |client: &ClientTally| (client.denied, client.requests);
            counts(&other.1)
                .cmp(&counts(&one.1))
                .then_with(|| one.0.cmp(other.0))
        };
        if let Some(most) = most
            && most < all.len()
        {
            if most == 0 {
                return Vec::new();
            }
            all.select_nth_unstable_by(most - 1, order);
            all.truncate(most);
        }
        all.sort_unstable_by(order);
        all
    }

    /// Counts a request of which it said this. Returns the index of the client, and whether it is new.
    fn count(&mut self, observed: &ObservedRule<'_, '_>, time: u64) -> (Option<u32>, bool) {
        let is_denied = matches!(observed.verdict(), Verdict::Denied | Verdict::ShadowDenied);
        if is_denied {
            self.denied += 1;
        } else {
            self.allowed += 1;
        }
        if !observed.is_shadow() {
            self.enforced[usize::from(is_denied)] += 1;
        }
        let is_delayed = observed.is_delayed();
        self.delayed += u64::from(is_delayed);
        self.cost += observed.admitted();
        if let Some(reason) = observed.reason().map(Reason::name) {
            *self.reasons.entry(reason).or_default() += 1;
        }
        let Some(key) = observed.key() else {
            return (None, false);
        };
        let (index, is_new) = if let Some(index) = self.indexes.get(&*key) {
            (*index, false)
        } else {
            let index = u32::try_from(self.clients.len()).unwrap_or(u32::MAX);
            self.indexes.insert(SmolStr::new(&*key), index);
            self.clients.push(ClientTally::default());
            (index, true)
        };
        let client = &mut self.clients[index as usize];
        client.requests += 1;
        client.delayed = client.delayed.saturating_add(u32::from(is_delayed));
        if !is_denied {
            client.streak = 0;
            return (Some(index), is_new);
        }
        client.denied += 1;
        if client.streak == 0 {
            client.streak_from = time;
        }
        client.streak = client.streak.saturating_add(1);
        client.longest_streak = client.longest_streak.max(client.streak);
        let (denied, from) = (client.streak, client.streak_from);
        let is_longest = self.streak.as_ref().is_none_or(|longest| {
            (denied, std::cmp::Reverse(from)) > (longest.denied, std::cmp::Reverse(longest.from))
        });
        if is_longest {
            match &mut self.streak {
                // The same streak goes on.
                Some(longest) if longest.from == from && longest.key == *key => {
                    (longest.denied, longest.to) = (denied, time);
                }
                streak => {
                    let key = SmolStr::new(&*key);
                    *streak = Some(Streak {
                        key,
                        denied,
                        from,
                        to: time,
                    });
                }
            }
        }
        (Some(index), is_new)
    }

    /// Keeps the clients with more denied and more requests than this, and of the others their number.
    fn shrink(&mut self, least: (u64, u64), factors: usize) {
        let clients = std::mem::take(&mut self.clients);
        self.dropped_by.resize(factors, 0);
        let (kept, dropped, dropped_by) =
            (&mut self.clients, &mut self.dropped, &mut self.dropped_by);
        self.indexes.retain(|_, index| {
            let client = clients[*index as usize];
            if (client.denied, client.requests) > least {
                *index = u32::try_from(kept.len()).unwrap_or(u32::MAX);
                kept.push(client);
                return true;
            }
            dropped[0] += 1;
            dropped[1] += u64::from(client.denied > 0);
            for (factor, count) in dropped_by.iter_mut().enumerate() {
                *count += u64::from(client.denied_by >> factor & 1);
            }
            false
        });
    }
}

/// The tallies of all rules.
#[derive(Debug)]
pub(crate) struct Tallies {
    pub(crate) rules: Vec<RuleTally>,
    pairs: usize,
    factors: usize,
    pub(super) most_pairs: usize,
}

impl Tallies {
    pub(crate) fn new(rules: usize, factors: usize) -> Self {
        Self {
            rules: std::iter::repeat_with(RuleTally::default)
                .take(rules)
                .collect(),
            pairs: 0,
            factors,
            most_pairs: MOST_PAIRS,
        }
    }

    /// Counts what a rule said. Returns the index of its client, which holds until
    /// [`make_room`](Self::make_room).
    pub(crate) fn count(&mut self, observed: &ObservedRule<'_, '_>, time: u64) -> Option<u32> {
        let (index, is_new) = self.rules[observed.index()].count(observed, time);
        self.pairs += usize::from(is_new);
        index
    }

    /// Counts what the candidate of a rule said.
    pub(crate) fn count_candidate(&mut self, observed: &ObservedCandidate<'_, '_>) {
        let tally = &mut self.rules[observed.as_rule().index()];
        tally.candidate.count(observed);
        if observed.decides() {
            tally.enforced[usize::from(observed.is_denied())] += 1;
        }
    }

    /// Notes that a client has a denied request by a factor of the scale.
    pub(crate) fn denied_by(&mut self, rule: usize, client: u32, factor: usize) {
        self.rules[rule].clients[client as usize].denied_by |= 1 << factor;
    }

    /// Notes by which factors the clients of each rule have a denied request.
    pub(crate) fn all_denied_by(&mut self, denied_by: &[Vec<u32>]) {
        for (rule, denied_by) in self.rules.iter_mut().zip(denied_by) {
            for (client, factors) in rule.clients.iter_mut().zip(denied_by) {
                client.denied_by |= factors;
            }
        }
    }

    /// Whether there are too many clients to count them all.
    pub(crate) fn is_full(&self) -> bool {
        self.pairs > self.most_pairs
    }

    /// Drops the smaller half of the clients. The indexes of others change.
    pub(crate) fn make_room(&mut self) {
        let clients = self.rules.iter().flat_map(|rule| &rule.clients);
        let mut sizes: Vec<(u64, u64)> = clients
            .map(|client| (client.denied, client.requests))
            .collect();
        let middle = sizes.len() / 2;
        let (_, least, _) = sizes.select_nth_unstable(middle);
        let least = *least;
        for rule in &mut self.rules {
            rule.shrink(least, self.factors);
        }
        self.pairs = self.rules.iter().map(|rule| rule.clients.len()).sum();
    }
}
