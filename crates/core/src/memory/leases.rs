//! Which keys a lease holds places of, so that its name alone is enough to release it.

use std::collections::HashMap;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::slot::KeyHash;
use crate::lease::LeaseId;

/// The keys of one lease: one for each concurrency limit of the request.
pub(super) type LeaseKeys = SmallVec<[KeyHash; 2]>;

/// Every lease that has not been seen to end. Locked after stripes, never before.
#[derive(Debug)]
pub(super) struct LeaseRegister {
    parts: [Mutex<HashMap<LeaseId, LeaseKeys>>; 16],
}

impl LeaseRegister {
    pub(super) fn new() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
        }
    }

    pub(super) fn add(&self, lease: LeaseId, key: KeyHash) {
        self.part(lease).lock().entry(lease).or_default().push(key);
    }

    pub(super) fn keys(&self, lease: LeaseId) -> LeaseKeys {
        self.part(lease)
            .lock()
            .get(&lease)
            .cloned()
            .unwrap_or_default()
    }

    /// Forgets that `lease` holds a place of `key`.
    pub(super) fn remove(&self, lease: LeaseId, key: KeyHash) {
        let mut part = self.part(lease).lock();
        if let Some(keys) = part.get_mut(&lease) {
            keys.retain(|held| *held != key);
            if keys.is_empty() {
                part.remove(&lease);
            }
        }
    }

    /// How many leases there are.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    fn part(&self, lease: LeaseId) -> &Mutex<HashMap<LeaseId, LeaseKeys>> {
        &self.parts[(lease.as_u128() & 15) as usize]
    }
}
