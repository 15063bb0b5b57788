//! Before a request is decided: what it may cost by its body.

use std::fmt;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request};
use http_body::Body;
use tidegate::{CostUnit, Costs};
use tidegate_usage::{ModelPrice, ModelRequest, TokenEstimate, UsageForm, UsageSetting, UsageUnit};

use super::{DeniedBody, ModelBody, ModelCall, UsageResults, UsageSettings};
use crate::body_memory::{BodyMemoryUsedUp, PooledBytes};
use crate::described::{DenialForm, DescribedCall, ReceiptSlot};
use crate::layer::RateLimitLayer;
use crate::protocol::Protocol;
use crate::reply;

/// The attribute with the name of the model.
const MODEL: &str = "model";

/// The answer to a request that is not decided.
pub type RefusedCall = Box<Response<Bytes>>;

/// Reads what requests to language models may cost, and counts what became of that.
pub struct UsageReading {
    settings: UsageSettings,
    results: Arc<UsageResults>,
}

/// How the requests of a route are read.
#[derive(Debug, Clone, Copy)]
pub struct ModelRoute<'r> {
    /// The form of its bodies.
    pub form: &'r UsageForm,
    /// The path of the request, in its normal form.
    pub path: &'r str,
    /// Whether streams are asked to include their usage.
    pub adds_usage: bool,
}

/// Why the body of a request is not held.
#[derive(Debug)]
pub enum HoldRefusal {
    /// It cannot be read.
    NotRead(UnreadBody),
    /// The request is denied whatever it says; this is the answer.
    Denied(RefusedCall),
    /// The request will be denied when it is decided, whatever its body says. Of that, these bytes were read.
    Unread(Bytes),
}

impl From<UnreadBody> for HoldRefusal {
    fn from(error: UnreadBody) -> Self {
        Self::NotRead(error)
    }
}

/// Why a body is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadBody {
    /// It is compressed.
    #[error(
        "the body of the request is encoded, and its cost cannot be read; send it without `Content-Encoding`"
    )]
    Encoded,
    /// It is longer than may be.
    #[error(
        "the body of the request is longer than {0} bytes, which is the most that is read here"
    )]
    TooLong(usize),
    /// The bodies of others take all of the memory.
    #[error(transparent)]
    NoMemory(#[from] BodyMemoryUsedUp),
    /// It could not be received.
    #[error("the body of the request could not be read")]
    Broken,
}

impl UnreadBody {
    /// The status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoMemory(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken => StatusCode::BAD_REQUEST,
        }
    }
}

impl UsageReading {
    /// With these settings.
    pub fn new(settings: UsageSettings) -> Self {
        Self {
            settings,
            results: Arc::default(),
        }
    }

    /// What became of the usage of requests.
    pub fn results(&self) -> &Arc<UsageResults> {
        &self.results
    }

    /// Puts the words in which a client is denied into the extensions of its request, by the setting of its route and
    /// its path.
    pub fn set_denial_form(&self, usage: &UsageSetting, path: &str, head: &mut request::Parts) {
        let form = match self.settings.denied_body {
            DeniedBody::Problem => None,
            DeniedBody::Of(form) => Some(form),
            DeniedBody::Form => usage.form(path).map(UsageForm::name),
        };
        if let Some(form) = form {
            head.extensions.insert(DenialForm(form));
        }
    }

    /// The form in which the body of a request is read. None if it says nothing that a rule counts.
    pub fn form<'u>(
        &self,
        usage: &'u UsageSetting,
        path: &str,
        head: &request::Parts,
        described: &DescribedCall,
    ) -> Option<&'u UsageForm> {
        let form = usage.form(path).filter(|_| head.method == Method::POST)?;
        described.may_count_units(MODEL).then_some(form)
    }

    /// Holds the body of a request, as far as it has arrived. Before more of it is awaited, the request is denied if that
    /// follows from what is known without the store.
    pub async fn hold<B>(
        &self,
        head: &request::Parts,
        (layer, described): (&RateLimitLayer, &DescribedCall),
        body: &mut B,
    ) -> Result<ModelBody, HoldRefusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut whole = self.begin(&head.headers);
        // A client that waits for `100 Continue` sends nothing before, and everything after.
        if !head.headers.contains_key(EXPECT)
            && let Ok(so_far) = &mut whole
            && let Err(error) = so_far.read_arrived(body).await
        {
            whole = Err(error);
        }
        if whole.as_ref().is_ok_and(ModelBody::is_whole) {
            return Ok(whole?);
        }
        if described.is_denied_outright(MODEL) {
            let read = whole.ok().map(ModelBody::into_parts);
            return Err(HoldRefusal::Unread(read.unwrap_or_default().0));
        }
        if let Some(denied) = layer.deny_unread(described, head, MODEL) {
            return Err(HoldRefusal::Denied(denied));
        }
        Ok(whole?)
    }

    /// Memory for a body that is read, unless its headers say that it cannot be.
    fn begin(&self, headers: &HeaderMap) -> Result<ModelBody, UnreadBody> {
        let encoding = headers.get(CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(UnreadBody::Encoded);
        }
        let limit = self.settings.body_limit;
        let length = headers.get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > limit) {
            return Err(UnreadBody::TooLong(limit));
        }
        let bytes = PooledBytes::new(&self.settings.body_memory);
        Ok(ModelBody::new(bytes, limit))
    }

    /// Sets what a request costs by its whole body, and changes it so that its answer can be read. None if the body is
    /// not that of a request to a language model.
    pub fn model_call(
        &self,
        route: ModelRoute<'_>,
        body: &mut ModelBody,
        described: &mut DescribedCall,
        head: &mut request::Parts,
    ) -> Option<Box<ModelCall>> {
        let mut asked = ModelRequest::read(route.form, route.path, body.bytes())?;
        if !route.adds_usage {
            asked.include_usage = None;
        }
        let model = asked.model.take();
        let prices = (self.settings.prices)();
        let price = prices.price(model.as_deref().unwrap_or_default());
        if let Some(model) = model.clone()
            && described.attribute(MODEL).is_none()
        {
            // A name that cannot be an attribute is none.
            let _ = described.set(MODEL, model);
        }
        let mut estimate = asked.estimate(&self.settings.estimate);
        // A request that says its maximum keeps it.
        if asked.maximum.is_none() {
            for limit in described.unit_limits() {
                let unit = UsageUnit::named(limit.unit.as_str());
                if let (Some(unit), false) = (unit, limit.is_shadow) {
                    estimate.fit(unit, limit.most, price.as_ref());
                }
            }
        }
        if price.is_none() {
            described.set_unpriced();
        }
        let costs = estimated_costs(&estimate, price.as_ref());
        let note = self.settings.notes.as_ref().and_then(|notes| notes());
        if let Some(note) = &note {
            note.estimated(model.as_deref(), &costs);
        }
        described.set_costs(costs);
        let edit = asked.include_usage.as_ref();
        if let Some(edit) = edit {
            body.edit(edit);
            if let Some(length) = head.headers.get_mut(CONTENT_LENGTH) {
                *length = HeaderValue::from(body.bytes().len());
            }
        }
        let identity = HeaderValue::from_static("identity");
        head.headers.insert(ACCEPT_ENCODING, identity);
        let slot = ReceiptSlot::default();
        head.extensions.insert(slot.clone());
        Some(Box::new(ModelCall {
            form: route.form.clone(),
            slot,
            times: asked.times,
            leaves_out_usage: edit.is_some(),
            estimate: estimate.counts(),
            price,
            results: Arc::clone(&self.results),
            note,
            is_open: true,
        }))
    }

    /// The costs of a request whose body is not read: it costs nothing but itself.
    pub fn unread_costs() -> Costs {
        Costs::by_unit([]).unwrap_or(Costs::from(1))
    }

    /// The answer to a request whose body is not read, in the words of its form.
    pub fn refuse(error: UnreadBody, head: &request::Parts) -> RefusedCall {
        let (status, protocol) = (error.status(), Protocol::of_call(head));
        let detail = error.to_string();
        Box::new(match error {
            UnreadBody::NoMemory(_) => reply::busy("refused", &detail, &protocol),
            _ => reply::denied_with(status, "refused", &detail, &protocol),
        })
    }
}

impl fmt::Debug for UsageReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

fn estimated_costs(estimate: &TokenEstimate, price: Option<&ModelPrice>) -> Costs {
    costs_by_unit(|unit| estimate.cost(unit, price)).unwrap_or(Costs::from(1))
}

/// The costs in all units that have one, none of which is too large.
pub(super) fn costs_by_unit(cost: impl Fn(UsageUnit) -> Option<u64>) -> Option<Costs> {
    /// By name, as costs are kept.
    static UNITS: LazyLock<Vec<(CostUnit, UsageUnit)>> = LazyLock::new(|| {
        let units = UsageUnit::ALL.into_iter();
        let units = units.filter_map(|unit| Some((CostUnit::new(unit.name()).ok()?, unit)));
        let mut units: Vec<_> = units.collect();
        units.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        units
    });
    let costs = UNITS.iter();
    let costs = costs.filter_map(|(named, unit)| Some((named.clone(), cost(*unit)?)));
    Costs::of_units(costs).ok()
}
