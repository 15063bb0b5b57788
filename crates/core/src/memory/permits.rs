//! The keys that each permit is held for, so that its id alone is enough to release it.

use std::collections::HashMap;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::MemoryStore;
use super::slot::KeyHash;
use crate::outcome::{Outcomes, Retry};
use crate::permit::PermitId;
use crate::store::{Charge, Request};
use crate::time::Micros;

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

    /// Forgets that `permit` is held for `key`.
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

impl MemoryStore {
    /// The answer to a request with a permit for which there is no memory, as [`Self::without_room`] says.
    pub(super) fn denied_permits(&self, request: &Request<'_>) -> Option<Outcomes> {
        let takes_permit = |charge: &Charge<'_>| charge.limit.is_concurrency() && charge.cost > 0;
        if !request.charges.iter().any(takes_permit) || self.has_room_for_permit() {
            return None;
        }
        let mut outcomes = self.peek(request);
        if !outcomes.iter().all(|outcome| outcome.allowed) {
            return None;
        }
        let asked = outcomes.iter_mut().zip(request.charges);
        for (outcome, _) in asked.filter(|(_, charge)| takes_permit(charge)) {
            outcome.allowed = false;
            outcome.remaining = 0;
            outcome.retry = Retry::After(Micros::SECOND);
        }
        Some(outcomes)
    }
}
