//! The attributes of a request on the command line: `-a user_id=u1`.

use clap::Args;
use serde_json::{Map, Value, json};

/// Attributes, for the commands that ask about a client.
#[derive(Debug, Args)]
pub(crate) struct AttributeArgs {
    /// An attribute of the request, such as `user_id=u1`; may be given several times
    #[arg(long = "attr", short, value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<(String, String)>,
}

impl AttributeArgs {
    /// The attributes as the API takes them.
    pub(crate) fn to_json(&self) -> anyhow::Result<Value> {
        let mut attributes = Map::new();
        for (name, value) in &self.attributes {
            let before = attributes.insert(name.clone(), json!(value));
            if before.is_some() {
                anyhow::bail!("the attribute `{name}` is given twice; keep one");
            }
        }
        Ok(Value::Object(attributes))
    }
}

pub(super) fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE, for example `user_id=u1`".to_owned()),
    }
}
