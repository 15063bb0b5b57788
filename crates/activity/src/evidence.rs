//! Evidence about clients as it may be shown: the last decision of a client, and denied requests; and the samples of
//! these that a rule has.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::budget::MemoryBudget;
use crate::names::{KeyName, KeyPart};
use crate::seen_request::SeenRequest;

/// The most samples of a rule, and of one of its clients.
const MOST_SAMPLES: usize = 256;
const MOST_OF_CLIENT: usize = 10;
/// The most memory of a rule's samples. Clients choose how long their values are.
const MOST_BYTES: usize = 128 << 10;

/// The most samples of a client, and of a rule's requests without a client, that are taken in a second.
pub(crate) const CLIENT_EACH_SECOND: u8 = 25;
/// The most samples that are taken of all rules in a second.
pub(crate) const SAMPLES_EACH_SECOND: u32 = 100;
/// The most last requests of known clients that are renewed in a second, other than by samples.
pub(crate) const RENEWALS_EACH_SECOND: u32 = 25;

/// An attribute of a request: its value as it may be shown and, if that is not the value itself, the value. The value
/// stays in the memory of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAttribute {
    /// The attribute as it may be shown.
    pub shown: KeyPart,
    clear: Option<Box<str>>,
}

impl KeptAttribute {
    /// An attribute whose value may be shown.
    pub fn clear(name: &str, value: &str) -> Self {
        Self::new(KeyPart::clear(name, value), value)
    }

    /// An attribute whose value is shown as this digest.
    pub fn secret(name: &str, digest: &str, value: &str) -> Self {
        Self::new(KeyPart::digest(name, digest), value)
    }

    fn new(shown: KeyPart, value: &str) -> Self {
        let clear = (*shown.value != *value).then(|| value.into());
        Self { shown, clear }
    }

    /// The same as other instances know it.
    pub(crate) fn published(&self) -> Self {
        Self {
            shown: self.shown.published(),
            clear: None,
        }
    }

    /// As another instance published it.
    pub(crate) fn received(shown: KeyPart) -> Self {
        Self { shown, clear: None }
    }

    /// The value itself. Of an attribute that another instance published, what may be shown of it.
    pub fn value(&self) -> &str {
        self.clear.as_deref().unwrap_or(&self.shown.value)
    }
}

/// A decision for a request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastDecision {
    /// The time of the decision, in microseconds since 1970.
    pub at: u64,
    /// Whether the request was allowed.
    pub is_allowed: bool,
    /// The rule that decided, if any did.
    pub rule: Option<Box<str>>,
    /// Why it was denied, if it was.
    pub reason: Option<Cow<'static, str>>,
    /// After how many microseconds it would have been allowed. `None` if waiting does not help.
    pub retry_after: Option<u64>,
    /// Where the grant comes from: `limit`, `tier`, `override` or `temporary`.
    pub grant_from: Cow<'static, str>,
    /// What this rule grants to the client.
    pub grant: Box<str>,
    /// What the request cost.
    pub cost: u64,
    /// Who asked.
    pub front_end: Cow<'static, str>,
    /// The attributes of the request that the rules read.
    pub attributes: Box<[KeptAttribute]>,
}

impl LastDecision {
    /// An attribute of the request.
    pub fn attribute(&self, name: &str) -> Option<&KeptAttribute> {
        let mut attributes = self.attributes.iter();
        attributes.find(|attribute| *attribute.shown.attribute == *name)
    }

    /// The same as other instances know it.
    pub(crate) fn published(&self) -> Self {
        let attributes = self.attributes.iter().map(KeptAttribute::published);
        Self {
            attributes: attributes.collect(),
            ..self.clone()
        }
    }
}

/// A request that a rule denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedRequest {
    /// The time of the decision, in microseconds since 1970.
    pub at: u64,
    /// Why the rule denied it.
    pub reason: Cow<'static, str>,
    /// The client, as it may be shown.
    pub key: KeyName,
    /// The method, path and address of the request as they may be shown, as far as they are known.
    pub method: Option<Box<str>>,
    /// See `method`.
    pub path: Option<Box<str>>,
    /// See `method`.
    pub address: Option<Box<str>>,
    /// Who asked.
    pub front_end: Cow<'static, str>,
}

impl DeniedRequest {
    /// The same as other instances know it.
    pub(crate) fn published(&self) -> Self {
        Self {
            key: self.key.published(),
            ..self.clone()
        }
    }
}

/// Shows requests to people and to other instances.
pub trait ShowRequests {
    /// The decision about a request of this rule.
    fn decision(&self, rule: &str, request: &SeenRequest) -> LastDecision;

    /// A request that was denied.
    fn denied(&self, request: &SeenRequest) -> DeniedRequest;
}

/// A sample, with the hash of its key; zero if it has none.
type DeniedSample = (u64, Arc<SeenRequest>);

fn bytes_of(denied: &SeenRequest) -> usize {
    size_of::<DeniedSample>() + denied.bytes()
}

/// The newest samples of a rule's denied requests, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct DeniedSamples {
    samples: VecDeque<DeniedSample>,
    bytes: usize,
}

impl DeniedSamples {
    /// Adds a sample, unless there is no memory for it. The oldest of a client with too many makes room, else the
    /// oldest of all.
    pub(crate) fn add(&mut self, hash: u64, denied: &Arc<SeenRequest>, budget: &MemoryBudget) {
        let of_client = |(other, _): &DeniedSample| *other == hash;
        let count = self.samples.iter().filter(|one| of_client(one)).count();
        if count >= MOST_OF_CLIENT {
            let oldest = self.samples.iter().position(of_client);
            self.remove(oldest.unwrap_or(0), budget);
        } else if self.samples.len() >= MOST_SAMPLES {
            self.remove(0, budget);
        }
        let bytes = bytes_of(denied);
        while self.bytes + bytes > MOST_BYTES && !self.samples.is_empty() {
            self.remove(0, budget);
        }
        if budget.take(bytes) {
            self.bytes += bytes;
            self.samples.push_back((hash, Arc::clone(denied)));
        }
    }

    fn remove(&mut self, index: usize, budget: &MemoryBudget) {
        if let Some((_, removed)) = self.samples.remove(index) {
            let bytes = bytes_of(&removed);
            self.bytes -= bytes;
            budget.give(bytes);
        }
    }

    pub(crate) fn clear(&mut self, budget: &MemoryBudget) {
        budget.give(self.bytes);
        *self = Self::default();
    }

    /// The newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Arc<SeenRequest>> {
        self.samples.iter().rev().map(|(_, denied)| denied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen_request::RequestTexts;

    fn denied(at: u64) -> Arc<SeenRequest> {
        let attributes = [("path", "/v1/orders")];
        Arc::new(SeenRequest {
            at,
            is_allowed: false,
            decided_by: None,
            reason: Some("over_limit"),
            denied_for: Some("over_limit"),
            retry_after: Some(1),
            grant_from: "limit",
            grant: "1/s".into(),
            cost: 1,
            front_end: "http",
            texts: RequestTexts::new([("user_id", "u1")].into_iter(), attributes.into_iter()),
        })
    }

    fn times(samples: &DeniedSamples, hash: u64) -> Vec<u64> {
        let all = samples.samples.iter();
        all.filter(|(other, _)| *other == hash)
            .map(|(_, denied)| denied.at)
            .collect()
    }

    #[test]
    fn of_each_client_the_newest_ten_stay_and_of_all_the_newest_256() {
        let budget = MemoryBudget::new(1 << 20);
        let mut samples = DeniedSamples::default();
        for at in 0..25 {
            samples.add(1, &denied(at), &budget);
            samples.add(2, &denied(100 + at), &budget);
        }
        assert_eq!(times(&samples, 1), (15..25).collect::<Vec<_>>());
        assert_eq!(times(&samples, 2), (115..125).collect::<Vec<_>>());
        for hash in 0..1_000 {
            samples.add(10 + hash, &denied(200 + hash), &budget);
        }
        assert_eq!(samples.samples.len(), MOST_SAMPLES);
        assert_eq!(times(&samples, 1), []);
        assert_eq!(samples.newest().next().unwrap().at, 1_199);
        let each = bytes_of(&denied(0));
        assert_eq!(budget.used(), MOST_SAMPLES * each);
        samples.clear(&budget);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn long_values_leave_room_for_fewer_samples() {
        let budget = MemoryBudget::new(1 << 20);
        let mut samples = DeniedSamples::default();
        let long = "x".repeat(8_000);
        for hash in 1..=100 {
            let mut request = SeenRequest::clone(&denied(hash));
            let path = [("path", long.as_str())];
            request.texts = RequestTexts::new(std::iter::empty(), path.into_iter());
            samples.add(hash, &Arc::new(request), &budget);
            assert!(budget.used() <= MOST_BYTES, "{}", budget.used());
        }
        assert!(samples.samples.len() >= 10);
        assert_eq!(samples.newest().next().unwrap().at, 100);
    }

    #[test]
    fn without_memory_there_are_no_samples() {
        let budget = MemoryBudget::new(10);
        let mut samples = DeniedSamples::default();
        samples.add(1, &denied(1), &budget);
        assert_eq!(samples.newest().count(), 0);
    }

    #[test]
    fn what_others_get_of_a_secret_is_its_digest_alone() {
        let secret = "sk_live_0123456789abcdef";
        let attribute = KeptAttribute::secret("api_key", "sk_l…0123456789ab", secret);
        assert_eq!(attribute.value(), secret);
        let published = attribute.published();
        assert_eq!(published.value(), "0123456789ab");
        let long = "x".repeat(300);
        let attribute = KeptAttribute::clear("path", &long);
        assert_eq!(attribute.value(), long);
        assert_eq!(attribute.shown.value.len(), 128);
    }
}
