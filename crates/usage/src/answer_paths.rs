//! Where the answers of a form have their numbers, and what says that they are final.

use crate::json::{NodeId, ROOT, WatchedPaths};
use crate::own_form::OwnForm;

/// The paths of a form in answers. Each number that is looked for is a slot.
#[derive(Debug)]
pub(crate) struct AnswerPaths {
    pub(crate) paths: WatchedPaths,
    /// For each node, the slots that its value is for.
    slots: Vec<SlotMask>,
    probes: Vec<(NodeId, FinalProbe)>,
    /// How many slots there are.
    pub(crate) slot_count: usize,
    pub(crate) input: SlotMask,
    pub(crate) cached: SlotMask,
    pub(crate) cache_write: SlotMask,
    pub(crate) output: SlotMask,
    /// The values of `type` after which usage does not change.
    pub(crate) final_types: &'static [&'static str],
    /// Whether `[DONE]` ends a stream.
    pub(crate) ends_by_done: bool,
}

/// A bit for each slot.
pub(crate) type SlotMask = u32;

/// A part of an answer that says whether its usage is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalProbe {
    /// An object with the usage of a chat completion.
    Usage,
    /// The choices of a chat completion.
    Choices,
    /// One of them.
    Choice,
    /// The type of an event.
    Type,
    /// Why a candidate ended.
    FinishReason,
}

impl AnswerPaths {
    fn new() -> Self {
        Self {
            paths: WatchedPaths::new(true),
            slots: Vec::new(),
            probes: Vec::new(),
            slot_count: 0,
            input: 0,
            cached: 0,
            cache_write: 0,
            output: 0,
            final_types: &[],
            ends_by_done: false,
        }
    }

    pub(crate) fn openai() -> Self {
        let mut all = Self::new();
        all.input = all.add(&under_response("prompt_tokens|input_tokens"));
        all.cached = all.add(&under_response(
            "prompt_tokens_details.cached_tokens|input_tokens_details.cached_tokens",
        ));
        all.output = all.add(&under_response("completion_tokens|output_tokens"));
        let usage = all.paths.add("usage");
        let choices = all.paths.add("choices");
        let choice = all.paths.add_element(choices);
        let kind = all.paths.add("type");
        all.probes = vec![
            (usage, FinalProbe::Usage),
            (choices, FinalProbe::Choices),
            (choice, FinalProbe::Choice),
            (kind, FinalProbe::Type),
        ];
        all.final_types = &[
            "response.completed",
            "response.incomplete",
            "response.failed",
        ];
        all.ends_by_done = true;
        all
    }

    pub(crate) fn anthropic() -> Self {
        let mut all = Self::new();
        let both = |name: &str| format!("usage.{name}|message.usage.{name}");
        let uncached = all.add(&both("input_tokens"));
        all.cache_write = all.add(&both("cache_creation_input_tokens"));
        all.cached = all.add(&both("cache_read_input_tokens"));
        all.input = uncached | all.cache_write | all.cached;
        all.output = all.add(&both("output_tokens"));
        let kind = all.paths.add("type");
        all.probes = vec![(kind, FinalProbe::Type)];
        all.final_types = &["message_delta"];
        all
    }

    pub(crate) fn gemini() -> Self {
        let mut all = Self::new();
        let mut sum = |names: &[&str]| {
            let masks = names.iter().map(|name| all.add(name));
            masks.fold(0, |sum, mask| sum | mask)
        };
        let input = sum(&[
            "usageMetadata.promptTokenCount",
            "usageMetadata.toolUsePromptTokenCount",
        ]);
        let cached = sum(&["usageMetadata.cachedContentTokenCount"]);
        let output = sum(&[
            "usageMetadata.candidatesTokenCount",
            "usageMetadata.thoughtsTokenCount",
        ]);
        (all.input, all.cached, all.output) = (input, cached, output);
        let candidates = all.paths.add("candidates");
        let candidate = all.paths.add_element(candidates);
        let reason = all.paths.add_key(candidate, "finishReason");
        all.probes = vec![(reason, FinalProbe::FinishReason)];
        all
    }

    pub(crate) fn own(form: &OwnForm) -> Self {
        let mut all = Self::new();
        let mut sum = |items: &[String]| {
            let masks = items.iter().map(|item| all.add(item));
            masks.fold(0, |sum, mask| sum | mask)
        };
        let (input, cached, output) = (sum(&form.input), sum(&form.cached), sum(&form.output));
        (all.input, all.cached, all.output) = (input, cached, output);
        all.ends_by_done = true;
        all
    }

    /// Adds a slot for a number, at any of the alternatives.
    fn add(&mut self, alternatives: &str) -> SlotMask {
        // Forms of one's own were checked to have no more.
        let bit = 1_u32.checked_shl(u32::try_from(self.slot_count).unwrap_or(u32::MAX));
        let Some(bit) = bit else { return 0 };
        self.slot_count += 1;
        for path in alternatives.split('|') {
            let node = usize::from(self.paths.add(path));
            self.slots.resize(self.paths.len(), 0);
            self.slots[node] |= bit;
        }
        bit
    }

    /// The slots that the value of a node is for.
    pub(crate) fn slots_of(&self, node: NodeId) -> SlotMask {
        self.slots.get(usize::from(node)).copied().unwrap_or(0)
    }

    pub(crate) fn probe_of(&self, node: NodeId) -> Option<FinalProbe> {
        debug_assert_ne!(node, ROOT, "the document itself is no probe");
        let found = self.probes.iter().find(|(probed, _)| *probed == node);
        found.map(|&(_, probe)| probe)
    }
}

/// Paths below `usage`, and below `response.usage`, where events of responses have it.
fn under_response(paths: &str) -> String {
    let all = paths
        .split('|')
        .flat_map(|path| [format!("usage.{path}"), format!("response.usage.{path}")]);
    all.collect::<Vec<_>>().join("|")
}
