//! Requests on their way from the thread that reads a file to the one that decides: many in one allocation.

use std::borrow::Cow;

use smol_str::SmolStr;
use tidegate::gate::Part;
use tidegate::{Attributes, Costs, CredentialProblem, Timestamp};

/// Requests of one file, in the order of its lines.
#[derive(Debug, Default)]
pub(crate) struct RequestBatch {
    text: String,
    names: Vec<SmolStr>,
    attributes: Vec<BatchAttribute>,
    requests: Vec<KeptRequest>,
    parts: Vec<BatchPart>,
}

/// One request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeptRequest {
    /// When it arrived, in microseconds.
    pub(crate) time: u64,
    /// How long it took, in microseconds, if that is known.
    pub(crate) duration: Option<u64>,
    /// The number of its line, from 1.
    pub(crate) line: u64,
    /// The latest time of the lines before it, also of those that are not decided.
    pub(crate) newest_before: u64,
    /// The range of its parts; most have one. The batch sets it.
    pub(crate) parts: (u32, u32),
}

#[derive(Debug, Clone)]
struct BatchPart {
    attributes: (u32, u32),
    costs: Costs,
}

#[derive(Debug, Clone, Copy)]
struct BatchAttribute {
    name: u16,
    start: u32,
    length: u32,
    refused: Option<CredentialProblem>,
}

/// A point in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchMark {
    text: usize,
    attributes: usize,
    requests: usize,
    parts: usize,
}

fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl RequestBatch {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// How much text it has.
    pub(crate) fn size(&self) -> usize {
        self.text.len()
    }

    /// Where it ends now, to [return to](Self::return_to).
    pub(crate) fn mark(&self) -> BatchMark {
        BatchMark {
            text: self.text.len(),
            attributes: self.attributes.len(),
            requests: self.requests.len(),
            parts: self.parts.len(),
        }
    }

    /// Removes everything that was added since.
    pub(crate) fn return_to(&mut self, mark: BatchMark) {
        self.text.truncate(mark.text);
        self.attributes.truncate(mark.attributes);
        self.requests.truncate(mark.requests);
        self.parts.truncate(mark.parts);
    }

    /// Adds a request without the parts that it will have.
    pub(crate) fn begin(&mut self, request: KeptRequest) {
        let parts = index(self.parts.len());
        self.requests.push(KeptRequest {
            parts: (parts, parts),
            ..request
        });
    }

    /// Adds a part to the last request: those attributes of it that are wanted.
    pub(crate) fn push_part(&mut self, attributes: &Attributes<'_>, wants: &dyn Fn(&str) -> bool) {
        let first = index(self.attributes.len());
        for (name, value) in attributes.iter().filter(|(name, _)| wants(name)) {
            self.push_attribute(name, value, None);
        }
        for (name, problem) in attributes.refused() {
            self.push_attribute(name, "", Some(*problem));
        }
        self.parts.push(BatchPart {
            attributes: (first, index(self.attributes.len())),
            costs: attributes.costs().clone(),
        });
        if let Some(request) = self.requests.last_mut() {
            request.parts.1 = index(self.parts.len());
        }
    }

    fn push_attribute(&mut self, name: &str, value: &str, refused: Option<CredentialProblem>) {
        let known = self.names.iter().position(|known| known == name);
        let name = known.unwrap_or_else(|| {
            self.names.push(SmolStr::new(name));
            self.names.len() - 1
        });
        let Ok(name) = u16::try_from(name) else {
            return;
        };
        self.attributes.push(BatchAttribute {
            name,
            start: index(self.text.len()),
            length: index(value.len()),
            refused,
        });
        self.text.push_str(value);
    }

    pub(crate) fn requests(&self) -> &[KeptRequest] {
        &self.requests
    }

    fn attributes_of(&self, part: &BatchPart, time: u64) -> Attributes<'_> {
        let mut attributes = Attributes::new().at(Timestamp::from_micros(time));
        if part.costs.plain() != Some(1) {
            attributes.set_cost(part.costs.clone());
        }
        let (first, end) = part.attributes;
        for kept in &self.attributes[first as usize..end as usize] {
            let name = self.names[usize::from(kept.name)].as_str();
            let start = kept.start as usize;
            let value = &self.text[start..start + kept.length as usize];
            match (kept.refused, name) {
                (Some(problem), _) => attributes.refuse(name, problem),
                // If it has the form of an address, that is kept besides the text. A recording may have its digest.
                (None, "ip") if attributes.insert(name, value).is_ok() => {}
                (None, _) => attributes.push(Cow::Borrowed(name), Cow::Borrowed(value)),
            }
        }
        attributes
    }

    /// The attributes of a request that has one part, at this time.
    pub(crate) fn attributes(&self, request: &KeptRequest, time: u64) -> Option<Attributes<'_>> {
        let (first, end) = request.parts;
        (end == first + 1).then(|| self.attributes_of(&self.parts[first as usize], time))
    }

    /// The parts of a request, at this time.
    pub(crate) fn parts(&self, request: &KeptRequest, time: u64) -> Vec<Part<'_>> {
        let (first, end) = request.parts;
        let parts = self.parts[first as usize..end as usize].iter();
        parts
            .map(|part| Part::new(self.attributes_of(part, time)))
            .collect()
    }
}
