//! The paths that a scanner looks for, as a tree of keys.

/// A node of the tree.
pub(crate) type NodeId = u16;

/// The node of the document itself.
pub(crate) const ROOT: NodeId = 0;

/// A tree of keys. A node is a path; what it is for is known to the code that added it.
#[derive(Debug, Clone)]
pub(crate) struct WatchedPaths {
    nodes: Vec<WatchedNode>,
    longest_key: usize,
}

#[derive(Debug, Clone, Default)]
struct WatchedNode {
    keys: Vec<(String, NodeId)>,
    /// The node of the elements, if the value is an array.
    element: Option<NodeId>,
}

impl WatchedPaths {
    /// A tree without paths. With `elements`, a document may be an array whose elements are documents.
    pub(crate) fn new(elements: bool) -> Self {
        let root = WatchedNode {
            keys: Vec::new(),
            element: elements.then_some(ROOT),
        };
        Self {
            nodes: vec![root],
            longest_key: 0,
        }
    }

    /// The node of a path of keys separated by `.`.
    pub(crate) fn add(&mut self, path: &str) -> NodeId {
        path.split('.')
            .fold(ROOT, |node, key| self.add_key(node, key))
    }

    /// The node of the elements of the array at a node.
    pub(crate) fn add_element(&mut self, node: NodeId) -> NodeId {
        let made = self.push();
        self.nodes[usize::from(node)].element = Some(made);
        made
    }

    /// The node of a key below a node.
    pub(crate) fn add_key(&mut self, node: NodeId, key: &str) -> NodeId {
        if let Some(known) = self.child(node, key.as_bytes()) {
            return known;
        }
        let made = self.push();
        self.longest_key = self.longest_key.max(key.len());
        let keys = &mut self.nodes[usize::from(node)].keys;
        keys.push((key.to_owned(), made));
        made
    }

    fn push(&mut self) -> NodeId {
        let id = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        self.nodes.push(WatchedNode::default());
        id
    }

    pub(super) fn child(&self, node: NodeId, key: &[u8]) -> Option<NodeId> {
        let keys = &self.nodes.get(usize::from(node))?.keys;
        let found = keys.iter().find(|(name, _)| name.as_bytes() == key);
        found.map(|&(_, child)| child)
    }

    pub(super) fn element(&self, node: NodeId) -> Option<NodeId> {
        self.nodes.get(usize::from(node))?.element
    }

    /// Keys that are longer match nothing.
    pub(super) fn longest_key(&self) -> usize {
        self.longest_key
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}
