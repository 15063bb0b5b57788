//! Reads a JSON body as a document. Bodies have no lines worth naming: problems name the field.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Entry, Node, Place, Scalar, ScalarKind, Value};

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

fn node(value: Value) -> Node {
    Node {
        value,
        place: Place::Nowhere,
    }
}

fn scalar(text: String, kind: ScalarKind) -> Node {
    node(Value::Scalar(Scalar { text, kind }))
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(node(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(scalar(value.to_string(), ScalarKind::Boolean))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(scalar(value.to_string(), ScalarKind::Number))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(scalar(value.to_string(), ScalarKind::Number))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        // `60.0` is displayed as `60`: to JSON both are the same number.
        Ok(scalar(value.to_string(), ScalarKind::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(scalar(value.to_owned(), ScalarKind::Text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(item) = list.next_element()? {
            nodes.push(item);
        }
        Ok(node(Value::List(nodes)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry()? {
            entries.push(Entry {
                key,
                key_place: Place::Nowhere,
                value,
            });
        }
        Ok(node(Value::Map(entries)))
    }
}
