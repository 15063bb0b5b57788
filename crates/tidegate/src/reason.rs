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
    /// The request has credentials that are not valid, and the rule reads an attribute that they should give.
    InvalidCredentials,
    /// The credentials cannot be verified, because no key was ever loaded.
    KeysUnavailable,
    /// The rule counts money, and the model of the request has no price.
    Unpriced,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::OverLimit,
        Self::Blocked,
        Self::MissingAttribute,
        Self::TooExpensive,
        Self::StoreUnavailable,
        Self::InvalidCredentials,
        Self::KeysUnavailable,
        Self::Unpriced,
    ];

    /// The name in answers, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::OverLimit => "over_limit",
            Self::Blocked => "blocked",
            Self::MissingAttribute => "missing_attribute",
            Self::TooExpensive => "too_expensive",
            Self::StoreUnavailable => "store_unavailable",
            Self::InvalidCredentials => "invalid_credentials",
            Self::KeysUnavailable => "keys_unavailable",
            Self::Unpriced => "unpriced",
        }
    }

    /// Whether the request is denied for its credentials, before anything is charged but rules that count by
    /// `ip` alone.
    pub fn is_about_credentials(self) -> bool {
        matches!(self, Self::InvalidCredentials | Self::KeysUnavailable)
    }

    /// The HTTP status for a client that is denied. A client without the attributes that identify it gets 401
    /// in place of 400.
    pub fn status(self) -> u16 {
        match self {
            Self::OverLimit | Self::TooExpensive => 429,
            Self::Blocked | Self::Unpriced => 403,
            Self::MissingAttribute => 400,
            Self::InvalidCredentials => 401,
            Self::StoreUnavailable | Self::KeysUnavailable => 503,
        }
    }
}
