//! Traces: a span for the request at its front end, one for each decision, one for each call to the store.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tidegate::printable::hexadecimal;
use tidegate::{Clock as _, SystemClock};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::proto::{KeyValue, OtlpSpan, SpanKind, SpanStatus};

/// How many traces may wait to be sent.
pub(super) const QUEUE: usize = 2_048;
/// How many spans one trace may have: a batch makes many decisions.
const MOST_SPANS: usize = 64;

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

thread_local! {
    static RANDOM: Cell<u64> = Cell::new(RandomState::new().hash_one(1) | 1);
}

/// Decides which requests are traced, and queues their spans.
#[derive(Debug)]
pub(crate) struct Tracer {
    /// The share of requests without a parent that are traced, of 2^32.
    share: u64,
    traces: Sender<Vec<OtlpSpan>>,
    lost: AtomicU64,
}

/// A request that is traced.
#[derive(Debug)]
pub(crate) struct Trace {
    id: [u8; 16],
    parent: Option<[u8; 8]>,
    root: [u8; 8],
    started: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    spans: Vec<OtlpSpan>,
    /// The id of the decision that is being made.
    decision: Option<[u8; 8]>,
}

/// The description and the end of a span.
pub(crate) struct SpanEnd {
    pub(crate) took: Duration,
    pub(crate) is_error: bool,
    pub(crate) attributes: Vec<KeyValue>,
}

impl Tracer {
    /// A tracer for this share of the requests, from 0 to 1, and where the spans arrive.
    pub(crate) fn new(share: f64) -> (Self, Receiver<Vec<OtlpSpan>>) {
        let (traces, waiting) = channel(QUEUE);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to 2^32"
        )]
        let share = (share.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        let lost = AtomicU64::new(0);
        let new = Self {
            share,
            traces,
            lost,
        };
        (new, waiting)
    }

    /// How many traces were lost because too many waited to be sent.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Begins the trace of a request, if it is sampled: by its parent, else by chance. `None` with a share of 0,
    /// because any client can send a parent.
    pub(crate) fn begin(&self, headers: &HeaderMap) -> Option<Trace> {
        if self.share == 0 {
            return None;
        }
        let parent = headers.get(&TRACEPARENT).and_then(Parent::read);
        let is_traced = match &parent {
            Some(parent) => parent.is_sampled,
            None => (random() >> 32) < self.share,
        };
        is_traced.then(|| Trace {
            id: parent.as_ref().map_or_else(
                || (u128::from(random()) << 64 | u128::from(random())).to_be_bytes(),
                |parent| parent.trace,
            ),
            parent: parent.map(|parent| parent.span),
            root: random().to_be_bytes(),
            started: now_nanos(),
            inner: Mutex::default(),
        })
    }

    /// Ends a trace and queues its spans. Never waits.
    pub(crate) fn end(&self, trace: &Trace, name: String, end: SpanEnd) {
        let mut spans = std::mem::take(&mut trace.inner.lock().spans);
        spans.push(OtlpSpan {
            parent_span_id: trace.parent.map(Vec::from).unwrap_or_default(),
            start_time_unix_nano: trace.started,
            end_time_unix_nano: trace.started.saturating_add(nanos(end.took)),
            ..trace.span(name, SpanKind::Server, trace.root, end)
        });
        if self.traces.try_send(spans).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Trace {
    /// Its id as 32 hexadecimal digits, and the header for the next server.
    pub(crate) fn traceparent(&self) -> (HeaderName, HeaderValue) {
        let text = format!(
            "00-{}-{}-01",
            hexadecimal(&self.id),
            hexadecimal(&self.root)
        );
        // Hexadecimal digits and dashes are a valid value.
        let value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
        (TRACEPARENT.clone(), value)
    }

    /// A call to the store has ended, which was part of the decision that is being made.
    pub(crate) fn called_store(&self, end: SpanEnd) {
        let mut inner = self.inner.lock();
        let decision = *inner.decision.get_or_insert_with(|| random().to_be_bytes());
        let id = random().to_be_bytes();
        let span = self.ended(
            self.span("store".to_owned(), SpanKind::Client, id, end),
            decision,
        );
        inner.add(span);
    }

    /// A decision was made.
    pub(crate) fn decided(&self, end: SpanEnd) {
        let mut inner = self.inner.lock();
        let decision = inner.decision.take();
        let id = decision.unwrap_or_else(|| random().to_be_bytes());
        let span = self.ended(
            self.span("decision".to_owned(), SpanKind::Internal, id, end),
            self.root,
        );
        inner.add(span);
    }

    /// A span that ends now, below another.
    fn ended(&self, span: OtlpSpan, parent: [u8; 8]) -> OtlpSpan {
        let (took, now) = (span.end_time_unix_nano, now_nanos());
        OtlpSpan {
            parent_span_id: parent.to_vec(),
            start_time_unix_nano: now.saturating_sub(took).max(self.started),
            end_time_unix_nano: now,
            ..span
        }
    }

    /// A span whose end is how long it took.
    fn span(&self, name: String, kind: SpanKind, id: [u8; 8], end: SpanEnd) -> OtlpSpan {
        OtlpSpan {
            trace_id: self.id.to_vec(),
            span_id: id.to_vec(),
            name,
            kind: kind.into(),
            end_time_unix_nano: nanos(end.took),
            attributes: end.attributes,
            status: end.is_error.then_some(SpanStatus { code: 2 }),
            ..OtlpSpan::default()
        }
    }
}

impl Inner {
    fn add(&mut self, span: OtlpSpan) {
        if self.spans.len() < MOST_SPANS {
            self.spans.push(span);
        }
    }
}

/// The span of a caller, from `traceparent`.
struct Parent {
    trace: [u8; 16],
    span: [u8; 8],
    is_sampled: bool,
}

impl Parent {
    fn read(value: &HeaderValue) -> Option<Self> {
        let text = value.to_str().ok()?;
        let mut parts = text.split('-');
        let (version, trace) = (parts.next()?, bytes::<16>(parts.next()?)?);
        let (span, flags) = (bytes::<8>(parts.next()?)?, bytes::<1>(parts.next()?)?);
        let is_known = version == "00" && parts.next().is_none();
        let is_valid = trace != [0; 16] && span != [0; 8];
        (is_known && is_valid).then_some(Self {
            trace,
            span,
            is_sampled: flags[0] & 1 == 1,
        })
    }
}

/// The bytes of lower-case hexadecimal digits.
fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 2 * N || !digits.bytes().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Never zero, which is no id (xorshift64*).
pub(super) fn random() -> u64 {
    RANDOM.with(|random| {
        let mut next = random.get();
        next ^= next >> 12;
        next ^= next << 25;
        next ^= next >> 27;
        random.set(next);
        next.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

fn now_nanos() -> u64 {
    SystemClock.now().as_micros().saturating_mul(1_000)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(traceparent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(&TRACEPARENT, HeaderValue::try_from(traceparent).unwrap());
        headers
    }

    #[test]
    fn a_parent_decides_whether_a_request_is_traced() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        let with = |flags: &str| format!("00-{id}-b7ad6b7169203331-{flags}");
        for share in [0.000_000_1, 1.0] {
            let (tracer, _waiting) = Tracer::new(share);
            assert_eq!(tracer.begin(&HeaderMap::new()).is_some(), share > 0.5);
            let begun = tracer.begin(&headers(&with("01"))).unwrap();
            assert_eq!(hexadecimal(&begun.id), id);
            assert_eq!(
                begun.parent.map(|parent| hexadecimal(&parent)),
                Some("b7ad6b7169203331".to_owned())
            );
            assert!(
                begun
                    .traceparent()
                    .1
                    .to_str()
                    .unwrap()
                    .starts_with(&format!("00-{id}-"))
            );
            assert!(tracer.begin(&headers(&with("00"))).is_none());
            for unreadable in [
                "",
                "00-0-0-01",
                &with("1"),
                &with("01-x"),
                &with("01").replace('a', "A"),
            ] {
                let begun = tracer.begin(&headers(unreadable));
                assert_eq!(begun.is_some(), share > 0.5, "{unreadable}");
            }
        }
    }

    #[test]
    fn with_a_share_of_0_no_parent_has_a_request_traced() {
        let (tracer, _waiting) = Tracer::new(0.0);
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(tracer.begin(&headers(parent)).is_none());
    }

    #[test]
    fn a_store_call_is_below_its_decision_and_both_below_the_request() {
        let (tracer, mut waiting) = Tracer::new(1.0);
        let trace = tracer.begin(&HeaderMap::new()).unwrap();
        let end = || SpanEnd {
            took: Duration::from_micros(5),
            is_error: false,
            attributes: Vec::new(),
        };
        trace.called_store(end());
        trace.decided(end());
        trace.decided(SpanEnd {
            is_error: true,
            ..end()
        });
        tracer.end(&trace, "GET".to_owned(), end());
        let spans = waiting.try_recv().unwrap();
        let [store, first, second, root] = &spans[..] else {
            panic!("{spans:?}")
        };
        assert_eq!(store.parent_span_id, first.span_id);
        assert_eq!(
            (&first.parent_span_id, &second.parent_span_id),
            (&root.span_id, &root.span_id)
        );
        assert!(root.parent_span_id.is_empty() && first.span_id != second.span_id);
        assert_eq!(second.status, Some(SpanStatus { code: 2 }));
        assert!(
            spans
                .iter()
                .all(|span| span.start_time_unix_nano <= span.end_time_unix_nano)
        );
    }

    #[test]
    fn a_full_queue_loses_traces_and_counts_them() {
        let (tracer, _waiting) = Tracer::new(1.0);
        let end = || SpanEnd {
            took: Duration::ZERO,
            is_error: false,
            attributes: Vec::new(),
        };
        for _ in 0..QUEUE + 3 {
            let trace = tracer.begin(&HeaderMap::new()).unwrap();
            tracer.end(&trace, String::new(), end());
        }
        assert_eq!(tracer.lost(), 3);
    }
}
