//! Checks values by a JSON Schema.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// A JSON Schema that values are checked by.
pub struct JsonSchema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl JsonSchema {
    /// Compiles a schema. An error says why it is invalid.
    pub fn new(schema: Value) -> Result<Self, String> {
        const NAME: &str = "http://localhost/schema.json";
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        let added = compiler.add_resource(NAME, schema);
        added.map_err(|error| format!("{error:#}"))?;
        let index = compiler.compile(NAME, &mut schemas);
        let index = index.map_err(|error| format!("{error:#}"))?;
        Ok(Self { schemas, index })
    }

    /// Whether a value fits. An error says why it does not.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let checked = self.schemas.validate(value, self.index);
        checked.map_err(|error| format!("{error:#}\n{value:#}"))
    }
}
