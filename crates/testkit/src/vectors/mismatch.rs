//! How a replay says that an answer differs from the known one, or could not be had.
//!
//! The steps of a line know only the [`VectorProblem`]; `replay` adds where it was.

use std::fmt;

use tidegate_core::{LimitError, StoreError};

/// An answer that differs from the known one, or that could not be had.
#[derive(Debug, Clone)]
pub struct Mismatch {
    /// The line.
    pub id: String,
    /// The step, counted from one; zero for what the line says outside its steps.
    pub step: usize,
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            step,
            field,
            problem,
        } = self;
        write!(f, "`{id}` step {step}, `{field}`: {problem}")
    }
}

/// A [`Mismatch`] before it is known where.
pub(super) struct VectorProblem {
    pub(super) field: String,
    pub(super) text: String,
}

impl VectorProblem {
    pub(super) fn new(field: &str, text: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            text: text.into(),
        }
    }
}

impl From<StoreError> for VectorProblem {
    fn from(error: StoreError) -> Self {
        Self::new("store", error.to_string())
    }
}

impl From<LimitError> for VectorProblem {
    fn from(error: LimitError) -> Self {
        Self::new("limit", error.to_string())
    }
}
