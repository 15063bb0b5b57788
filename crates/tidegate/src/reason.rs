//! Why a limit denies a request, by the names that answers, logs and metrics use.

/// Why a limit denies a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The limit is used up.
    OverLimit,
    /// The rule grants nothing to this client.
    Blocked,
    /// An attribute of `per` is missing, and the rule says `missing: deny`.
    MissingAttribute,
    /// The cost is more than the limit can ever grant.
    TooExpensive,
    /// The store could not answer.
    StoreUnavailable,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::OverLimit,
        Self::Blocked,
        Self::MissingAttribute,
        Self::TooExpensive,
        Self::StoreUnavailable,
    ];

    /// The name in answers, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::OverLimit => "over_limit",
            Self::Blocked => "blocked",
            Self::MissingAttribute => "missing_attribute",
            Self::TooExpensive => "too_expensive",
            Self::StoreUnavailable => "store_unavailable",
        }
    }
}
