//! Writes tables of keys as JSON Schema, draft 2020-12.
//!
//! A schema accepts everything that the reader accepts, and more: only the reader checks conditions that involve
//! several keys, or more than the form of a text.

use serde_json::{Map, Value, json};

use super::keys::{Key, Kind, Presence, value};

/// The notation that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaForm {
    /// A YAML file, where a number is text too.
    Yaml,
    /// A JSON body of the API, where it is not.
    Json,
}

/// A schema under construction. Collects the definitions that have names.
#[derive(Debug)]
pub struct Schema {
    form: SchemaForm,
    /// By name.
    pub definitions: Map<String, Value>,
}

impl Schema {
    /// None so far.
    pub fn new(form: SchemaForm) -> Self {
        Self {
            form,
            definitions: Map::new(),
        }
    }

    /// The schema of a file: its title, the root and the collected definitions.
    pub fn file(self, title: &str, root: Value) -> Value {
        let dialect = "https://json-schema.org/draft/2020-12/schema";
        let mut file = object(json!({"$schema": dialect, "title": title}));
        file.extend(object(root));
        file.insert("$defs".to_owned(), Value::Object(self.definitions));
        Value::Object(file)
    }

    /// A reference to the schema with a name.
    pub fn reference(&self, name: &str) -> Value {
        let definitions = match self.form {
            SchemaForm::Yaml => "#/$defs/",
            SchemaForm::Json => "#/components/schemas/",
        };
        json!({"$ref": format!("{definitions}{name}")})
    }

    /// A map with these keys.
    pub fn map<'k>(&mut self, keys: impl IntoIterator<Item = &'k Key>) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for key in keys {
            properties.insert(key.name.to_owned(), self.key(key));
            if key.presence == Presence::Required {
                required.push(key.name);
            }
        }
        let mut map = object(json!({"type": "object", "additionalProperties": false}));
        if !required.is_empty() {
            map.insert("required".to_owned(), json!(required));
        }
        map.insert("properties".to_owned(), Value::Object(properties));
        Value::Object(map)
    }

    fn key(&mut self, key: &Key) -> Value {
        let mut schema = Map::new();
        schema.insert("description".to_owned(), json!(key.about));
        let kind = self.kind(&key.kind);
        schema.extend(object(match key.presence {
            Presence::Optional => or_null(kind),
            Presence::Required | Presence::Filled => kind,
        }));
        if !key.default.is_empty() {
            schema.insert("default".to_owned(), value(key.default));
        }
        if !key.example.is_empty() {
            schema.insert("examples".to_owned(), json!([value(key.example)]));
        }
        Value::Object(schema)
    }

    fn kind(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::Text("") => json!({"type": self.text()}),
            Kind::Text(pattern) => json!({"type": self.text(), "pattern": pattern}),
            Kind::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
            Kind::Words(words) => json!({"enum": words}),
            Kind::Whole(least, most) => {
                json!({"type": "integer", "minimum": least, "maximum": most})
            }
            Kind::Flag => json!({"type": "boolean"}),
            Kind::List(least, item) => {
                let items = self.kind(item);
                match least {
                    0 => json!({"type": "array", "items": items}),
                    _ => json!({"type": "array", "minItems": least, "items": items}),
                }
            }
            Kind::OneOrMore(least, item) => {
                let list = self.kind(&Kind::List(*least, item));
                json!({"anyOf": [self.kind(item), list]})
            }
            Kind::Map(keys) => self.map(*keys),
            Kind::MapOf(names, values) => {
                let mut map =
                    object(json!({"type": "object", "additionalProperties": self.kind(values)}));
                if !names.is_empty() {
                    map.insert("propertyNames".to_owned(), json!({"pattern": names}));
                }
                Value::Object(map)
            }
            Kind::Any(kinds) => {
                let kinds = kinds.iter().map(|kind| self.kind(kind));
                json!({"anyOf": kinds.collect::<Vec<_>>()})
            }
            Kind::Named(name, kind) => {
                if !self.definitions.contains_key(*name) {
                    let schema = self.kind(kind);
                    self.definitions.insert((*name).to_owned(), schema);
                }
                self.reference(name)
            }
            Kind::Again(name) => self.reference(name),
            Kind::Free => json!({}),
        }
    }

    fn text(&self) -> Value {
        match self.form {
            SchemaForm::Yaml => json!(["string", "number", "boolean"]),
            SchemaForm::Json => json!("string"),
        }
    }
}

/// Allows `null` as well.
fn or_null(mut schema: Value) -> Value {
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    } else if let Some(Value::Array(kinds)) = schema.get_mut("anyOf") {
        kinds.push(json!({"type": "null"}));
    } else if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.push(json!("null"));
    } else if let Some(one) = schema.get_mut("type") {
        *one = json!([one, "null"]);
    } else if schema.get("$ref").is_some() {
        return json!({"anyOf": [schema, {"type": "null"}]});
    }
    schema
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
