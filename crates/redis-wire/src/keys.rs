//! The names of Redis keys: readable, distinct whatever a client sends, and in the cluster slot of the
//! key that they belong to.

mod slot;

use std::borrow::Cow;
use std::fmt::Write;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use foldhash::quality::RandomState;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tidegate_core::algorithm::Form;
use tidegate_core::{Algorithm, Anchor, Charge, Limit, PermitId, ReservationId, Scope};

use crate::namespace::{self, Namespace};
pub use slot::{slot_of, tag_of};

/// A key that is longer than this when written out is hashed.
const LONGEST: usize = 64;
/// What follows a state in the keys that belong to it.
const COMPANION: &str = ":leases";
const RESET_NOTE: &str = ":reset";

/// Writes the names of keys.
#[derive(Clone)]
pub struct RedisKeys {
    prefix: Box<str>,
    secret: KeySecret,
    hashers: [RandomState; 2],
}

/// The key of a state, with its short name and its slot.
#[derive(Debug, Clone)]
pub struct StateKey {
    /// The key itself.
    pub key: Arc<str>,
    /// Its short name.
    pub name: StateName,
    /// Its slot in a cluster.
    pub slot: u16,
}

/// A short name for a state within this process. Clients cannot make two states share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateName(pub u64, u64);

/// The secret under which keys are hashed that must not be readable. It must be the same on all instances
/// that share counters.
#[derive(Clone)]
pub struct KeySecret(Hmac<Sha256>);

/// Where a [`KeySecret`] comes from, in the order in which it is looked for.
#[derive(Clone, Copy)]
pub enum SecretFrom<'a> {
    /// The configured secret.
    Configured(&'a [u8]),
    /// The password of Redis, which instances share anyway.
    Password(&'a str),
    /// A public constant: keys that can be guessed can be recognised by their hash.
    Public,
}

impl<'a> SecretFrom<'a> {
    /// The secret itself.
    pub fn bytes(self) -> Cow<'a, [u8]> {
        match self {
            Self::Configured(secret) => Cow::Borrowed(secret),
            // Derived, so that the password itself is used for nothing else.
            Self::Password(password) => {
                let derived = KeySecret::keyed(password.as_bytes()).hash(b"tidegate key secret");
                Cow::Owned(derived.to_vec())
            }
            Self::Public => Cow::Borrowed(b"tidegate: public key secret"),
        }
    }
}

impl KeySecret {
    /// The secret from this source.
    pub fn new(from: SecretFrom<'_>) -> Self {
        Self::keyed(&from.bytes())
    }

    fn keyed(secret: &[u8]) -> Self {
        // HMAC accepts keys of any length; the type does not express that.
        let keyed = Hmac::new_from_slice(secret);
        Self(keyed.unwrap_or_else(|_| Hmac::new(&hmac::digest::Key::<Hmac<Sha256>>::default())))
    }

    fn hash(&self, key: &[u8]) -> [u8; 32] {
        let mut hash = self.0.clone();
        hash.update(key);
        hash.finalize().into_bytes().into()
    }
}

impl RedisKeys {
    /// Names in this namespace.
    pub fn new(namespace: Option<&Namespace>, secret: KeySecret) -> Self {
        Self {
            prefix: namespace::prefix(namespace).into(),
            secret,
            hashers: [RandomState::default(), RandomState::default()],
        }
    }

    /// The key of the state that a charge pays from.
    pub fn state_key(&self, charge: &Charge<'_>) -> StateKey {
        let key = self.state(charge.scope, charge.limit, charge.key);
        StateKey {
            name: self.name(key.as_bytes()),
            slot: slot_of(&key),
            key: key.into(),
        }
    }

    /// The short name of the state with this key.
    pub fn name(&self, key: &[u8]) -> StateName {
        let [first, second] = self.hashers.each_ref().map(|hasher| {
            let mut hasher = hasher.build_hasher();
            hasher.write(key);
            hasher.finish()
        });
        StateName(first, second)
    }

    /// The state of one key under one limit: `tg:{<key>}:<scope>:<shape>`.
    pub fn state(&self, scope: &Scope, limit: &Limit, key: &str) -> String {
        let mut name = String::with_capacity(self.prefix.len() + scope.name().len() + 48);
        name.push_str(&self.prefix);
        name.push_str(":{");
        self.write_key(scope, key, &mut name);
        name.push_str("}:");
        encode(scope.name(), &mut name);
        name.push(':');
        write_shape(limit, &mut name);
        name
    }

    /// A pattern for the keys of all states in scopes whose names begin so, and for the keys that belong to them. What is
    /// encoded has no character that means anything in a pattern.
    pub fn states_of(&self, beginning: &str) -> String {
        let mut pattern = [&*self.prefix, ":{*}:"].concat();
        encode(beginning, &mut pattern);
        pattern.push('*');
        pattern
    }

    /// Whether a key of [`states_of`](Self::states_of) is a state, and does not belong to one.
    pub fn is_state(key: &str) -> bool {
        !key.ends_with(COMPANION) && !key.ends_with(RESET_NOTE)
    }

    /// The key with the details of the permits in the state of a concurrency limit.
    pub fn companion(state: &str) -> String {
        [state, COMPANION].concat()
    }

    /// The key that says when a state was last charged before it was reset.
    pub fn reset_note(state: &str) -> String {
        [state, RESET_NOTE].concat()
    }

    /// The register of permits: which states they are held in. Its slot is part of their id.
    pub fn register(&self, permit: PermitId) -> String {
        let tag = slot::tag_of(slot_of_permit(permit));
        format!("{}:{{{tag}}}:lease:{permit}", self.prefix)
    }

    /// The record of a stored reservation in this slot.
    pub fn hold(&self, slot: u16, id: ReservationId) -> String {
        let tag = slot::tag_of(slot);
        format!("{}:{{{tag}}}:hold:{id}", self.prefix)
    }

    /// The ends of reservations in this slot whose times are supplied.
    pub fn ends(&self, slot: u16) -> String {
        let tag = slot::tag_of(slot);
        format!("{}:{{{tag}}}:ends", self.prefix)
    }

    /// The id of a reservation whose record is in this slot.
    pub fn reservation_in(slot: u16, id: ReservationId) -> ReservationId {
        let rest = id.as_u128() & ((1 << PERMIT_BITS) - 1);
        ReservationId::from_u128(u128::from(slot) << PERMIT_BITS | rest)
    }

    /// A new id of permits whose register is in the same slot as this state, of an id that cannot be guessed.
    pub fn permit_for(state: &str, random: PermitId) -> PermitId {
        let slot = u128::from(slot_of(state)) << PERMIT_BITS;
        let rest = random.as_u128() & ((1 << PERMIT_BITS) - 1);
        PermitId::from_u128(slot | rest)
    }

    fn write_key(&self, scope: &Scope, key: &str, name: &mut String) {
        if key.is_empty() {
            // With an empty tag, Redis would hash the whole name for the slot.
            name.push('*');
            return;
        }
        if !scope.has_secret_keys() {
            let start = name.len();
            encode(key, name);
            if name.len() - start <= LONGEST {
                return;
            }
            name.truncate(start);
        }
        name.push('~');
        for byte in &self.secret.hash(key.as_bytes())[..16] {
            push_hex(*byte, name);
        }
    }
}

impl std::fmt::Debug for RedisKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Bits of the id of permits below those of the slot.
const PERMIT_BITS: u32 = 128 - 14;

/// The slot of the register of permits with this id.
pub fn slot_of_permit(permit: PermitId) -> u16 {
    u16::try_from(permit.as_u128() >> PERMIT_BITS).unwrap_or(0)
}

/// Percent-encodes everything except letters, digits and `._@-`.
fn encode(text: &str, name: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'@' | b'-') {
            name.push(char::from(byte));
        } else {
            name.push('%');
            push_hex(byte, name);
        }
    }
}

fn push_hex(byte: u8, name: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for digit in [byte >> 4, byte & 15] {
        name.push(char::from(DIGITS[usize::from(digit)]));
    }
}

/// [`Limit::shape`] in readable form.
fn write_shape(limit: &Limit, name: &mut String) {
    let window = |name: &mut String, kind: &str, window: &dyn std::fmt::Display| {
        // Writing to a string does not fail.
        let _ = write!(name, "{kind}:{window}");
    };
    match limit.form() {
        Form::Bucket(form) if form.has_common_parts() => name.push_str("cell"),
        Form::Bucket(form) => {
            let is_leaky = matches!(limit.algorithm(), Algorithm::LeakyBucket { .. });
            window(name, if is_leaky { "lb" } else { "tb" }, &form.window());
        }
        Form::FixedWindow(form) => {
            let kind = match form.anchor() {
                Anchor::Clock => "fw",
                Anchor::FirstRequest => "fwf",
                Anchor::Epoch => "fwe",
            };
            window(name, kind, &form.window());
        }
        Form::SlidingCounter(form) => window(name, "swc", &form.window()),
        Form::SlidingLog(form) => window(name, "log", &form.window()),
        Form::SlidingSlots(form) => {
            let slots = form.window().get() / form.slot().get().max(1);
            window(name, "sws", &form.window());
            let _ = write!(name, "/{slots}");
            if form.counted() > slots {
                name.push('s');
            }
        }
        Form::Concurrency(_) => name.push_str("con"),
    }
}

#[cfg(test)]
mod tests;
