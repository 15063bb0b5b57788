//! `GET /v1/activity/stream`: the activity of each second, as Server-Sent Events.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::poll_fn;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::MissedTickBehavior;

use super::ApiBody;
use super::activity::{activity_question, current, need_activity};
use super::call::ApiCall;
use crate::activity::{ActivityQuestion, ServerActivity};
use crate::admin::{Admin, MOST_STREAMS};
use crate::problem::HttpProblem;

/// How many events may wait for a reader. One that has fallen further behind is dropped.
const WAITING: usize = 4;

/// A comment is sent after this many events, for proxies and readers that expect a heartbeat.
const HEARTBEAT_EVERY: u32 = 15;
const HEARTBEAT: &[u8] = b": heartbeat\n\n";

/// Opens a stream.
pub(super) fn open(call: &ApiCall) -> Result<Response<ApiBody>, HttpProblem> {
    let admin = &call.api.admin;
    let activity = need_activity(admin)?;
    let question = activity_question(&call.parts)?;
    let body = if call.parts.method == Method::HEAD {
        Either::Left(Full::default())
    } else {
        let permit = Arc::clone(&admin.streams).try_acquire_owned();
        let permit = permit.map_err(|_| too_many())?;
        let (sender, mut events) = mpsc::channel(WAITING);
        let frame = |event: Option<Bytes>| event.map(|event| Ok(Frame::data(event)));
        let events = poll_fn(move |cx| events.poll_recv(cx).map(frame));
        let (admin, activity) = (Arc::clone(admin), Arc::clone(activity));
        let stream = ActivityStream {
            activity,
            question,
            sender,
            _permit: permit,
        };
        tokio::spawn(stream.run(admin));
        Either::Right(StreamBody::new(events).boxed_unsync())
    };
    let mut reply = Response::new(body);
    let media_type = HeaderValue::from_static("text/event-stream");
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    Ok(reply)
}

fn too_many() -> HttpProblem {
    let detail = format!(
        "{MOST_STREAMS} streams of activity are open, which is the most; close one, or use `GET /v1/activity`"
    );
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
}

/// The sender's side of a stream.
struct ActivityStream {
    activity: Arc<ServerActivity>,
    question: ActivityQuestion,
    sender: mpsc::Sender<Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl ActivityStream {
    /// Sends an event each second until the reader is gone or too slow, or the server drains.
    async fn run(self, admin: Arc<Admin>) {
        let sending = async {
            let mut seconds = tokio::time::interval(Duration::from_secs(1));
            seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
            for number in 0_u32.. {
                seconds.tick().await;
                if number.is_multiple_of(HEARTBEAT_EVERY) && !self.send(HEARTBEAT.into()) {
                    break;
                }
                if !self.send(self.event(&admin).await) {
                    break;
                }
            }
        };
        tokio::select! {
            () = sending => {}
            () = admin.decider.drains() => {}
            // Does not wait for the next second: another reader can connect immediately.
            () = self.sender.closed() => {}
        }
    }

    /// False if the reader is gone or too slow.
    fn send(&self, event: Bytes) -> bool {
        self.sender.try_send(event).is_ok()
    }

    /// The current event, which streams with the same question share.
    async fn event(&self, admin: &Admin) -> Bytes {
        let events = &self.activity.events;
        if let Some(event) = events.find(&self.question) {
            return event;
        }
        let json = current(admin, &self.activity, self.question).await;
        let event = Bytes::from(format!("data: {json}\n\n"));
        events.keep(self.question, event.clone());
        event
    }
}
