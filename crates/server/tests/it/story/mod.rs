//! One story through every front end: the decision is the same for all of them.
//!
//! `story.yaml` is the story, `scenario.rs` reads it, each front end has a file of its own. To add one:
//!
//! 1. write a file like `resp.rs`: how it is opened for a [`Scenario`], and its [`Ask`];
//! 2. give it a variant in [`StoryFrontEnd`], and an arm in [`StoryFrontEnd::open`];
//! 3. give it a test at the end of this file.
//!
//! `escapes.rs` plays another one, for the front ends that read the client's own headers, query and cookies.
//! `spellings.rs` asks through the same front ends about paths and hosts in spellings that could mean two things.

mod carried;
mod escapes;
mod grpc;
mod http;
mod library;
mod middleware;
mod resp;
mod scenario;
mod seen;
mod spellings;

use scenario::{Scenario, Step};
use seen::{Seen, Times};

/// The front ends of the story. (A new one: here, in `open`, and a test below.)
#[derive(Debug, Clone, Copy)]
enum StoryFrontEnd {
    /// The gate, called by a program that embeds it.
    Library,
    /// The layer before a service.
    Middleware,
    /// `POST /v1/check`.
    Http,
    /// `TG.CHECK`.
    Resp,
    /// `ShouldRateLimit`.
    Grpc,
    /// `/v1/authorize`.
    Authorize,
    /// The request itself.
    Gateway,
}

/// A client of a front end.
trait Ask {
    /// Whether it can say what a request costs. If not, steps with a cost are left out.
    fn says_cost(&self) -> bool {
        true
    }

    /// Whether the decision is made at the time that the scenario says, so that waits are exact.
    fn times(&self) -> Times;

    /// Asks, and returns what came back.
    fn ask(&mut self, step: &Step) -> Seen;
}

impl StoryFrontEnd {
    fn open(self, scenario: &Scenario) -> Box<dyn Ask> {
        match self {
            Self::Library => Box::new(library::Library::open(scenario)),
            Self::Middleware => Box::new(middleware::Middleware::open(scenario)),
            Self::Http => Box::new(http::Http::open(scenario)),
            Self::Resp => Box::new(resp::Resp::open(scenario)),
            Self::Grpc => Box::new(grpc::Grpc::open(scenario)),
            Self::Authorize => Box::new(carried::Authorize::open(scenario)),
            Self::Gateway => Box::new(carried::Gateway::open(scenario)),
        }
    }
}

#[track_caller]
fn play(front_end: StoryFrontEnd) {
    let scenario = Scenario::read();
    let mut asking = front_end.open(&scenario);
    let mut played = 0;
    for step in &scenario.story {
        if step.cost.is_some() && !asking.says_cost() {
            continue;
        }
        let seen = asking.ask(step);
        let differs = seen.differs_from(&step.expect, asking.times());
        assert!(
            differs.is_empty(),
            "{front_end:?}, step `{}`: {}",
            step.name,
            differs.join("; ")
        );
        played += 1;
    }
    assert!(played > 20, "only {played} steps");
}

#[test]
fn the_story_through_the_library() {
    play(StoryFrontEnd::Library);
}

#[test]
fn the_story_through_the_middleware() {
    play(StoryFrontEnd::Middleware);
}

#[test]
fn the_story_through_http() {
    play(StoryFrontEnd::Http);
}

#[test]
fn the_story_through_the_protocol_of_redis() {
    play(StoryFrontEnd::Resp);
}

#[test]
fn the_story_through_grpc() {
    play(StoryFrontEnd::Grpc);
}

#[test]
fn the_story_through_forward_auth() {
    play(StoryFrontEnd::Authorize);
}

#[test]
fn the_story_through_the_gateway() {
    play(StoryFrontEnd::Gateway);
}
