//! The gate itself.

use tidegate::{Gate, MemoryStore};
use tidegate_testkit::block_on;

use super::Ask;
use super::scenario::{NOW, Scenario, Step};
use super::seen::{Seen, Times};

pub(super) struct Library {
    gate: Gate,
}

impl Library {
    pub(super) fn open(scenario: &Scenario) -> Self {
        Self {
            gate: Gate::new(MemoryStore::new(), scenario.rules()),
        }
    }
}

impl Ask for Library {
    fn times(&self) -> Times {
        Times::Exact
    }

    fn ask(&mut self, step: &Step) -> Seen {
        let Ok(attributes) = step.as_attributes() else {
            return Seen::refused();
        };
        Seen::of_decision(&block_on(self.gate.decide(&attributes.at(NOW))))
    }
}
