//! A request that is described before it is decided, because its cost is known only once its body was read.

use std::sync::Arc;

use http::request;
use parking_lot::Mutex;
use tidegate::gate::{Receipt, RulesInForce, UnitLimit};
use tidegate::{AttributeError, Attributes, Costs, Gate};
use tidegate_usage::FormName;

use crate::future::DescribedRequest;

/// A request that is described and not decided yet. It is decided by the rules that it was described for.
pub struct DescribedCall {
    pub(crate) gate: Arc<Gate>,
    pub(crate) attributes: Attributes<'static>,
    pub(crate) rules: RulesInForce,
}

impl DescribedCall {
    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: String) -> Result<(), AttributeError> {
        self.attributes.set(name, value)
    }

    /// Sets what the request costs.
    pub fn set_costs(&mut self, costs: Costs) {
        self.attributes.set_cost(costs);
    }

    /// Says that the model of the request has no price: rules that count money deny it.
    pub fn set_unpriced(&mut self) {
        self.attributes.set_unpriced();
    }

    /// Whether a rule may apply that counts another unit than requests. `unknown` is an attribute that the request will
    /// have.
    pub fn may_count_units(&self, unknown: &str) -> bool {
        self.gate
            .may_count_units(&self.rules, &self.attributes, unknown)
    }

    /// Whether the request will be denied without a call of the store, whatever it costs and whatever the attribute
    /// `unknown` will be.
    pub fn is_denied_outright(&self, unknown: &str) -> bool {
        self.gate
            .denies_outright(&self.rules, &self.attributes, unknown)
    }

    /// How much the rules that count other units than requests can grant.
    pub fn unit_limits(&self) -> Vec<UnitLimit> {
        self.gate.unit_limits(&self.rules, &self.attributes)
    }

    /// Keeps it in the extensions of its request, for the layer to decide by.
    pub fn keep(self, request: &mut request::Parts) {
        request.extensions.insert(DescribedRequest {
            attributes: self.attributes,
            rules: self.rules,
            is_pinned: true,
        });
    }
}

/// As an extension of a request: its costs are an estimate. Once the service has answered, its receipt is left here, to
/// be settled by the caller of the layer.
#[derive(Debug, Clone, Default)]
pub struct ReceiptSlot(Arc<Mutex<SlotState>>);

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Undecided,
    Admitted,
    Answered(Box<Receipt>),
}

impl ReceiptSlot {
    /// Whether the request was admitted, and may have been sent.
    pub fn is_admitted(&self) -> bool {
        !matches!(*self.0.lock(), SlotState::Undecided)
    }

    /// The receipt, if the request was admitted and answered.
    pub fn take(&self) -> Option<Box<Receipt>> {
        let state = std::mem::replace(&mut *self.0.lock(), SlotState::Admitted);
        match state {
            SlotState::Answered(receipt) => Some(receipt),
            _ => None,
        }
    }

    pub(crate) fn admit(&self) {
        *self.0.lock() = SlotState::Admitted;
    }

    pub(crate) fn answer(&self, receipt: Box<Receipt>) {
        *self.0.lock() = SlotState::Answered(receipt);
    }
}

/// As an extension of a request: the wire form of a language model in which its client is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenialForm(pub FormName);
