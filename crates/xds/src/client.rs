//! The client: one stream after the other, and the pauses between them.

use std::time::Duration;

use bytes::Bytes;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::error::XdsError;
use crate::pause::RetryPause;
use crate::proto::{DiscoveryRequest, DiscoveryResponse, ErrorDetail, XdsNode};
use crate::settings::XdsSettings;
use crate::stream::XdsStream;

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The code of a refusal: `INVALID_ARGUMENT`.
const REFUSED: i32 = 3;

/// The longest message of a refusal, in bytes: it is sent to the server and appears in its logs.
const LONGEST_REASON: usize = 4 << 10;

/// Follows the resources of a management server.
pub struct XdsClient {
    settings: XdsSettings,
    state: ClientState,
    retry: RetryPause,
    refusals: RetryPause,
    /// The last accepted version.
    accepted: String,
    /// The version that was refused last, if none was accepted since.
    refused: Option<String>,
}

enum ClientState {
    /// Connects at this time, or immediately.
    Waiting(Option<Instant>),
    Open(Box<CurrentStream>),
}

struct CurrentStream {
    stream: XdsStream,
    is_first: bool,
    /// The version and the nonce of the response that is not answered yet.
    unanswered: Option<(String, String)>,
    /// A refusal to be sent later.
    refusal: Option<(Instant, DiscoveryRequest)>,
}

/// What happened.
#[derive(Debug)]
pub enum XdsEvent {
    /// A stream is open and has sent its first request.
    Opened,
    /// All resources, for the caller to [accept](XdsClient::accept) or [refuse](XdsClient::refuse).
    Response(XdsResponse),
    /// A response of another type came, and was refused.
    Misfit(String),
    /// There is no stream. The next call connects again after the pause.
    Failed {
        /// Why.
        error: XdsError,
        /// How long the client waits.
        pause: Duration,
    },
}

/// All resources of a management server.
#[derive(Debug, Clone)]
pub struct XdsResponse {
    /// The version that the server gave them.
    pub version: String,
    /// Whether it is the first response of its stream.
    pub is_first: bool,
    /// The resources, in the order of the server.
    pub resources: Vec<Bytes>,
}

impl XdsClient {
    /// A client that connects when it is first asked what happens [next](Self::next).
    pub fn new(settings: XdsSettings) -> Self {
        Self {
            retry: RetryPause::new(settings.retry),
            refusals: RetryPause::of_refusals(settings.retry),
            settings,
            state: ClientState::Waiting(None),
            accepted: String::new(),
            refused: None,
        }
    }

    /// Waits for the next event. A response that the caller has not answered is accepted by this.
    ///
    /// Needs a Tokio runtime. Dropping the future loses at most an attempt to connect.
    pub async fn next(&mut self) -> XdsEvent {
        match self.step().await {
            Ok(event) => event,
            Err(error) => {
                let pause = self.retry.next();
                self.state = ClientState::Waiting(Some(sleep(pause).deadline()));
                XdsEvent::Failed { error, pause }
            }
        }
    }

    async fn step(&mut self) -> Result<XdsEvent, XdsError> {
        self.answer(None)?;
        let open = match &mut self.state {
            ClientState::Waiting(until) => {
                if let Some(until) = until {
                    sleep_until(*until).await;
                }
                let first = self.first_request();
                let opening = XdsStream::open(&self.settings, &first);
                let opened = timeout(PATIENCE, opening).await;
                let stream = opened.map_err(|_| XdsError::TimedOut(PATIENCE.as_secs()))??;
                self.state = ClientState::Open(Box::new(CurrentStream {
                    stream,
                    is_first: true,
                    unanswered: None,
                    refusal: None,
                }));
                return Ok(XdsEvent::Opened);
            }
            ClientState::Open(open) => open,
        };
        let response = open.next().await?;
        self.retry.reset();
        self.arrived(response)
    }

    fn arrived(&mut self, response: DiscoveryResponse) -> Result<XdsEvent, XdsError> {
        let wanted = self.settings.type_url;
        let mut types = response.resources.iter().map(|any| any.type_url.as_str());
        let is_other = |found: &&str| *found != wanted;
        // A response without any resource need not name the type.
        let of_response = Some(response.type_url.as_str());
        let of_response = of_response.filter(|found| !found.is_empty());
        let other = of_response
            .filter(is_other)
            .or_else(|| types.find(is_other));
        let misfit = other.map(|other| {
            format!(
                "the response has resources of the type `{other}`, and `{wanted}` was asked for"
            )
        });
        if let ClientState::Open(open) = &mut self.state {
            open.unanswered = Some((response.version_info.clone(), response.nonce));
            // A change that came meanwhile.
            open.refusal = None;
        }
        if let Some(message) = misfit {
            self.answer(Some(&message))?;
            return Ok(XdsEvent::Misfit(message));
        }
        let is_first = match &mut self.state {
            ClientState::Open(open) => std::mem::take(&mut open.is_first),
            ClientState::Waiting(_) => false,
        };
        let resources = response.resources.into_iter().map(|any| any.value.into());
        Ok(XdsEvent::Response(XdsResponse {
            version: response.version_info,
            is_first,
            resources: resources.collect(),
        }))
    }

    /// Accepts the last response, whose resources are in use now.
    pub fn accept(&mut self) {
        // A server that does not read is noticed with the next response.
        let _ = self.answer(None);
    }

    /// Refuses the last response, with the reason for the server. Its earlier resources stay in use.
    ///
    /// A server that sends the same version again immediately gets the next refusal after a pause.
    pub fn refuse(&mut self, reason: &str) {
        let _ = self.answer(Some(reason));
    }

    /// Answers a response that is not answered yet.
    fn answer(&mut self, refused: Option<&str>) -> Result<(), XdsError> {
        let ClientState::Open(open) = &mut self.state else {
            return Ok(());
        };
        let Some((version, nonce)) = open.unanswered.take() else {
            return Ok(());
        };
        let request = |version: &str, error_detail| DiscoveryRequest {
            version_info: version.to_owned(),
            type_url: self.settings.type_url.to_owned(),
            response_nonce: nonce,
            error_detail,
            ..DiscoveryRequest::default()
        };
        let Some(reason) = refused else {
            self.refusals.reset();
            self.refused = None;
            let request = request(&version, None);
            self.accepted = version;
            return open.stream.send(&request);
        };
        let reason = &reason[..reason.floor_char_boundary(LONGEST_REASON)];
        let detail = ErrorDetail {
            code: REFUSED,
            message: reason.to_owned(),
        };
        let request = request(&self.accepted, Some(detail));
        if self.refused.replace(version.clone()) == Some(version) {
            let at = sleep(self.refusals.next()).deadline();
            open.refusal = Some((at, request));
            return Ok(());
        }
        open.stream.send(&request)
    }

    /// Every stream begins anew: a server that was restarted may use a version again for other resources.
    fn first_request(&self) -> DiscoveryRequest {
        let settings = &self.settings;
        let entry = |(key, value): &(String, String)| {
            let kind = Some(Kind::StringValue(value.clone()));
            (key.clone(), Value { kind })
        };
        let fields = settings.metadata.iter().map(entry).collect();
        DiscoveryRequest {
            node: Some(XdsNode {
                id: settings.node.clone(),
                metadata: (!settings.metadata.is_empty()).then_some(Struct { fields }),
                user_agent_name: "tidegate".to_owned(),
            }),
            type_url: settings.type_url.to_owned(),
            ..DiscoveryRequest::default()
        }
    }
}

impl CurrentStream {
    /// The next response, after a refusal that is due.
    async fn next(&mut self) -> Result<DiscoveryResponse, XdsError> {
        if let Some((at, request)) = &self.refusal {
            tokio::select! {
                response = self.stream.next() => return response,
                () = sleep_until(*at) => {}
            }
            self.stream.send(request)?;
            self.refusal = None;
        }
        self.stream.next().await
    }
}
