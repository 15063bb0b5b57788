//! Where the requests of a form have what an estimate needs.

use crate::json::{NodeId, WatchedPaths};

/// The paths of a form in requests.
#[derive(Debug)]
pub(crate) struct RequestPaths {
    pub(crate) paths: WatchedPaths,
    /// The nodes of each maximum, the first maximum first.
    pub(crate) maximum: Vec<Vec<NodeId>>,
    pub(crate) times: Vec<NodeId>,
    pub(crate) model: NodeId,
    pub(crate) stream: NodeId,
    pub(crate) stream_options: NodeId,
    pub(crate) include_usage: NodeId,
}

impl RequestPaths {
    pub(crate) fn new(maximum: &[impl AsRef<str>], times: &[impl AsRef<str>]) -> Self {
        let mut paths = WatchedPaths::new(false);
        let mut nodes = |item: &str| -> Vec<NodeId> {
            let alternatives = item.split('|');
            alternatives.map(|path| paths.add(path)).collect()
        };
        let maximum = maximum.iter().map(|item| nodes(item.as_ref())).collect();
        let times = times.iter().flat_map(|item| nodes(item.as_ref())).collect();
        Self {
            maximum,
            times,
            model: paths.add("model"),
            stream: paths.add("stream"),
            stream_options: paths.add("stream_options"),
            include_usage: paths.add("stream_options.include_usage"),
            paths,
        }
    }
}
