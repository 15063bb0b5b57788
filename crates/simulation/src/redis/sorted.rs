//! A sorted set: members by score, then by their bytes.

use std::collections::{BTreeMap, BTreeSet};

/// A score in the order of its value. Scores are never NaN here: Redis refuses those.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score(pub(crate) f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Score {
    /// As Redis writes it.
    pub(crate) fn text(self) -> Vec<u8> {
        if self.0.is_infinite() {
            let text: &[u8] = if self.0 > 0.0 { b"inf" } else { b"-inf" };
            return text.to_vec();
        }
        format!("{}", self.0).into_bytes()
    }
}

/// One end of a range of scores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScoreBound {
    pub(crate) score: f64,
    pub(crate) is_open: bool,
}

impl ScoreBound {
    /// Reads `5`, `(5`, `-inf` and the like.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let (text, is_open) = match text.strip_prefix('(') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let score = text.parse().ok().filter(|score: &f64| !score.is_nan())?;
        Some(Self { score, is_open })
    }
}

/// A sorted set.
#[derive(Debug, Clone, Default)]
pub(crate) struct SortedSet {
    scores: BTreeMap<Vec<u8>, Score>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

impl SortedSet {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<Score> {
        self.scores.get(member).copied()
    }

    /// Whether the member is new.
    pub(crate) fn insert(&mut self, member: &[u8], score: f64) -> bool {
        // One zero, so that both have the same place.
        let score = Score(if score == 0.0 { 0.0 } else { score });
        let before = self.scores.insert(member.to_vec(), score);
        if let Some(before) = before {
            self.order.remove(&(before, member.to_vec()));
        }
        self.order.insert((score, member.to_vec()));
        before.is_none()
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else {
            return false;
        };
        self.order.remove(&(score, member.to_vec()))
    }

    /// Members by rank, both ends included; negative ranks count from the end.
    pub(crate) fn by_rank(&self, first: i64, last: i64) -> Vec<(Score, Vec<u8>)> {
        let length = i64::try_from(self.len()).unwrap_or(i64::MAX);
        let from_start = |rank: i64| if rank < 0 { rank + length } else { rank };
        let (first, last) = (from_start(first).max(0), from_start(last).min(length - 1));
        let (Ok(first), Ok(last)) = (usize::try_from(first), usize::try_from(last)) else {
            return Vec::new();
        };
        let count = (last + 1).saturating_sub(first);
        self.order.iter().skip(first).take(count).cloned().collect()
    }

    /// Members by score, both ends included unless they are open.
    pub(crate) fn by_score(&self, least: ScoreBound, most: ScoreBound) -> Vec<(Score, Vec<u8>)> {
        let is_in = |score: f64| {
            let above = if least.is_open {
                score > least.score
            } else {
                score >= least.score
            };
            let below = if most.is_open {
                score < most.score
            } else {
                score <= most.score
            };
            above && below
        };
        let members = self.order.iter().filter(|(score, _)| is_in(score.0));
        members.cloned().collect()
    }
}
