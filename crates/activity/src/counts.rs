//! The six numbers that are counted of a rule and of all requests.

/// Counts of outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutcomeCounts {
    /// Allowed requests.
    pub allowed: u64,
    /// Denied requests.
    pub denied: u64,
    /// Requests that a shadow rule would have denied.
    pub shadow_denied: u64,
    /// Allowed requests that must wait before they go on.
    pub delayed: u64,
    /// Requests that were decided without the store.
    pub degraded: u64,
    /// The cost of admitted requests.
    pub cost: u64,
}

impl OutcomeCounts {
    /// The names of the counts, in the order of [`array`](Self::array).
    pub const NAMES: [&'static str; 6] = [
        "allowed",
        "denied",
        "shadow_denied",
        "delayed",
        "degraded",
        "cost",
    ];

    /// The counts in the order of [`NAMES`](Self::NAMES).
    pub fn array(&self) -> [u64; 6] {
        [
            self.allowed,
            self.denied,
            self.shadow_denied,
            self.delayed,
            self.degraded,
            self.cost,
        ]
    }

    /// The counts from an array in the order of [`NAMES`](Self::NAMES).
    pub fn from_array(counts: [u64; 6]) -> Self {
        let [allowed, denied, shadow_denied, delayed, degraded, cost] = counts;
        Self {
            allowed,
            denied,
            shadow_denied,
            delayed,
            degraded,
            cost,
        }
    }

    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// How many requests were decided.
    pub(crate) fn requests(&self) -> u64 {
        let decided = [self.allowed, self.denied, self.shadow_denied];
        decided.into_iter().fold(0, u64::saturating_add)
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// The counts since `earlier`. A counter that went backwards started again from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, |now, earlier| {
            now.checked_sub(earlier).unwrap_or(now)
        })
    }

    fn zip(&self, other: &Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let (mut counts, other) = (self.array(), other.array());
        for (count, other) in counts.iter_mut().zip(other) {
            *count = with(*count, other);
        }
        Self::from_array(counts)
    }
}
