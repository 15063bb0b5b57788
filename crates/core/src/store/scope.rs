//! The names of the states of rules, and how a store treats them.

/// The attributes whose values are secret whatever the settings say: keys, and credentials in headers.
#[doc(hidden)]
pub const ALWAYS_SECRET: [&str; 5] = [
    "api_key",
    "authorization",
    "header.authorization",
    "header.cookie",
    "header.proxy-authorization",
];

/// A name for the states of one rule, apart from those of every other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of its own"
)]
pub struct Scope {
    name: Box<str>,
    id: u64,
    has_secret_keys: bool,
    is_leased: bool,
    gives_back: bool,
    is_charged_in_full: bool,
}

impl Scope {
    /// The scope with this name.
    pub fn new(name: &str) -> Self {
        use std::hash::BuildHasher;
        // Fixed: names are chosen by operators and never by clients. Part of what snapshots name counters by.
        let id = foldhash::quality::FixedState::with_seed(1).hash_one(name);
        Self {
            name: name.into(),
            id,
            has_secret_keys: false,
            is_leased: false,
            gives_back: false,
            is_charged_in_full: false,
        }
    }

    /// A scope with another name, which a store treats the same.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        let Self { name, id, .. } = Self::new(name);
        Self { name, id, ..*self }
    }

    /// The same scope, whose keys must not be readable where they are kept.
    #[must_use]
    pub fn with_secret_keys(self) -> Self {
        Self {
            has_secret_keys: true,
            ..self
        }
    }

    /// The same scope, of whose limits an instance may take some in advance and decide from that.
    #[must_use]
    pub fn leased(self) -> Self {
        Self {
            is_leased: true,
            ..self
        }
    }

    /// The same scope, to which reservations that are never settled are given back when they end.
    #[must_use]
    pub fn giving_back(self) -> Self {
        Self {
            gives_back: true,
            ..self
        }
    }

    /// The same scope, where costs that are [settled](crate::RemoteStore::settle) are charged in full, also beyond the
    /// limit, by limits that [hold that](crate::Limit::holds_excess).
    #[must_use]
    pub fn charged_in_full(self) -> Self {
        Self {
            is_charged_in_full: true,
            ..self
        }
    }

    /// Whether its keys must not be readable where they are kept.
    pub fn has_secret_keys(&self) -> bool {
        self.has_secret_keys
    }

    /// Whether an instance may take some of its limits in advance.
    pub fn is_leased(&self) -> bool {
        self.is_leased
    }

    /// Whether reservations that are never settled are given back when they end; else they stay charged.
    pub fn gives_back(&self) -> bool {
        self.gives_back
    }

    /// Whether costs that are settled may exceed the limit.
    pub fn is_charged_in_full(&self) -> bool {
        self.is_charged_in_full
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A number that stands for the name within this process, and in its snapshots.
    pub fn id(&self) -> u64 {
        self.id
    }
}
