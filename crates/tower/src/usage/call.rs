//! A request to a language model whose estimate was charged: its answer says what it costs.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Response, StatusCode};
use http_body::Body;
use tidegate::Gate;
use tidegate::gate::Receipt;
use tidegate_usage::{
    AnswerEnd, AnswerKind, AnswerReader, ModelPrice, TokenCounts, UsageForm, UsageResult,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::reading::costs_by_unit;
use super::{Unanswered, UsageBody, UsageNote, UsageResults};
use crate::described::ReceiptSlot;

/// A request to a language model whose cost is an estimate. Dropped before it was answered, it keeps the estimate.
pub struct ModelCall {
    pub(super) form: UsageForm,
    pub(super) slot: ReceiptSlot,
    pub(super) times: u64,
    /// Whether its stream has an event that the client did not ask for.
    pub(super) leaves_out_usage: bool,
    pub(super) estimate: TokenCounts,
    pub(super) price: Option<ModelPrice>,
    pub(super) results: Arc<UsageResults>,
    pub(super) note: Option<Arc<dyn UsageNote>>,
    /// Until it is answered.
    pub(super) is_open: bool,
}

impl Drop for ModelCall {
    fn drop(&mut self) {
        if self.is_open && self.slot.is_admitted() {
            self.results.count(UsageResult::Cut);
            let price = self.price.as_ref();
            let costs = costs_by_unit(|unit| self.estimate.cost(unit, price));
            if let (Some(note), Some(costs)) = (&self.note, costs) {
                note.settled(UsageResult::Cut, &costs);
            }
        }
    }
}

impl ModelCall {
    /// Settles an answer, now or at the end of its body, which passes on once that is done.
    pub async fn attend<B: Body<Data = Bytes>>(
        mut self: Box<Self>,
        gate: &Arc<Gate>,
        answer: Response<B>,
    ) -> Response<UsageBody<B>> {
        self.is_open = false;
        // A request that was denied was charged nothing.
        let Some(receipt) = self.slot.take() else {
            return answer.map(UsageBody::plain);
        };
        let mut settling = Settling {
            gate: Arc::clone(gate),
            receipt: Some(receipt),
            estimate: self.estimate,
            price: self.price,
            results: Arc::clone(&self.results),
            note: self.note.take(),
        };
        let status = answer.status();
        let unanswered = answer.extensions().get::<Unanswered>().copied();
        let is_failed = !status.is_success() && status != StatusCode::SWITCHING_PROTOCOLS;
        let now = match unanswered {
            Some(Unanswered { may_be_sent: true }) => Some((UsageResult::Cut, self.estimate)),
            _ if is_failed => Some((UsageResult::Failed, TokenCounts::default())),
            _ if status == StatusCode::SWITCHING_PROTOCOLS => {
                Some((UsageResult::Missing, self.estimate))
            }
            _ if is_encoded(&answer) => Some((UsageResult::Encoded, self.estimate)),
            _ => None,
        };
        if let Some((result, counts)) = now {
            settling.settle_and_wait(result, &counts).await;
            return answer.map(UsageBody::plain);
        }
        let kind = answer.headers().get(CONTENT_TYPE);
        let kind = AnswerKind::of(kind.map(http::HeaderValue::as_bytes));
        let mut reader = AnswerReader::new(&self.form, kind, self.times);
        if answer.body().is_end_stream() {
            let (result, counts) = reader.charge(AnswerEnd::Complete, &self.estimate);
            settling.settle_and_wait(result, &counts).await;
            return answer.map(UsageBody::plain);
        }
        let (mut head, body) = answer.into_parts();
        if self.leaves_out_usage && kind == AnswerKind::Events {
            reader = reader.leave_out_usage();
            head.headers.remove(CONTENT_LENGTH);
        }
        Response::from_parts(head, UsageBody::read(body, reader, settling))
    }
}

fn is_encoded<B>(answer: &Response<B>) -> bool {
    let encoding = answer.headers().get(CONTENT_ENCODING);
    encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// A charge that is settled once.
pub(super) struct Settling {
    gate: Arc<Gate>,
    /// Until it is settled.
    receipt: Option<Box<Receipt>>,
    pub(super) estimate: TokenCounts,
    price: Option<ModelPrice>,
    results: Arc<UsageResults>,
    note: Option<Arc<dyn UsageNote>>,
}

impl Settling {
    /// Settles, unless that was done. If it has to wait for the store, it goes on in a task of its own, which is
    /// returned: a client that leaves does not interrupt it.
    pub(super) fn settle(
        &mut self,
        result: UsageResult,
        counts: &TokenCounts,
    ) -> Option<JoinHandle<()>> {
        let receipt = self.receipt.take()?;
        self.results.count(result);
        let price = self.price.as_ref();
        let costs = costs_by_unit(|unit| counts.cost(unit, price))?;
        if let Some(note) = &self.note {
            note.settled(result, &costs);
        }
        let gate = Arc::clone(&self.gate);
        let mut settling = Box::pin(async move {
            if let Err(error) = gate.settle(receipt, costs).await {
                tracing::debug!(%error, "what a request cost could not be settled");
            }
        });
        let runtime = Handle::try_current().ok();
        let mut context = Context::from_waker(Waker::noop());
        match settling.as_mut().poll(&mut context) {
            Poll::Ready(()) => None,
            Poll::Pending => Some(runtime?.spawn(settling)),
        }
    }

    /// Whether it is not settled yet.
    pub(super) fn is_open(&self) -> bool {
        self.receipt.is_some()
    }

    async fn settle_and_wait(&mut self, result: UsageResult, counts: &TokenCounts) {
        if let Some(settled) = self.settle(result, counts) {
            // A task that panicked has settled nothing: the estimate stays.
            let _ = settled.await;
        }
    }
}
