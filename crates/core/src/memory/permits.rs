//! Which keys a permit holds places of, so that its name alone is enough to release it.

use std::collections::HashMap;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::slot::KeyHash;
use crate::permit::PermitId;

/// The keys of one permit: one for each concurrency limit of the request.
pub(super) type PermitKeys = SmallVec<[KeyHash; 2]>;

/// Every permit that has not been seen to end. Locked after stripes, never before.
#[derive(Debug)]
pub(super) struct PermitRegister {
    parts: [Mutex<HashMap<PermitId, PermitKeys>>; 16],
}

impl PermitRegister {
    pub(super) fn new() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
        }
    }

    pub(super) fn add(&self, permit: PermitId, key: KeyHash) {
        self.part(permit)
            .lock()
            .entry(permit)
            .or_default()
            .push(key);
    }

    pub(super) fn keys(&self, permit: PermitId) -> PermitKeys {
        self.part(permit)
            .lock()
            .get(&permit)
            .cloned()
            .unwrap_or_default()
    }

    /// Forgets that `permit` holds a place of `key`.
    pub(super) fn remove(&self, permit: PermitId, key: KeyHash) {
        let mut part = self.part(permit).lock();
        if let Some(keys) = part.get_mut(&permit) {
            keys.retain(|held| *held != key);
            if keys.is_empty() {
                part.remove(&permit);
            }
        }
    }

    /// How many permits there are.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    fn part(&self, permit: PermitId) -> &Mutex<HashMap<PermitId, PermitKeys>> {
        &self.parts[(permit.as_u128() & 15) as usize]
    }
}
