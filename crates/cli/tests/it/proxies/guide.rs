//! The pages of the guides: what they print is what is run.

use std::fs;
use std::path::Path;

pub(crate) struct Guide(String);

impl Guide {
    pub(crate) fn open(name: &str) -> Self {
        let page = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs/guides")
            .join(name);
        Self(fs::read_to_string(page).unwrap())
    }

    /// The whole page.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The blocks of a language, as they are printed.
    pub(crate) fn blocks(&self, language: &str) -> Vec<String> {
        let begin = format!("```{language}");
        let mut lines = self.0.lines();
        let mut blocks = Vec::new();
        while let Some(line) = lines.next() {
            if line == begin {
                let body = lines.by_ref().take_while(|line| *line != "```");
                blocks.push(body.collect::<Vec<_>>().join("\n") + "\n");
            }
        }
        blocks
    }

    /// The YAML block that begins with a line.
    pub(crate) fn yaml(&self, first: &str) -> String {
        let blocks = self.blocks("yaml");
        let found = blocks
            .into_iter()
            .find(|block| block.lines().next() == Some(first));
        found.unwrap_or_else(|| panic!("no block begins with {first}"))
    }
}
