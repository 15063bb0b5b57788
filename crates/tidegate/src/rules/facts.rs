//! The view of a request that rules match against.

use std::borrow::Cow;

use tidegate_core::Costs;

use super::applies::Unmet;
use crate::attributes::Attributes;
use crate::credentials::{CredentialProblem, InvalidCredentials};
use crate::reason::Reason;

/// A condition could not be evaluated for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConditionFailed;

/// The view of a request that rules match against, with one reading for each way in which a server may read its path.
pub(crate) struct Facts<'f, 'a> {
    pub(super) normal: Reading<'f, 'a>,
    others: Vec<Reading<'f, 'a>>,
}

/// Credentials of a request that are not valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusedCredentials<'f, 'a> {
    pub(crate) attributes: &'f Attributes<'a>,
    invalid: InvalidCredentials,
}

/// A request with one reading of its path.
pub(super) struct Reading<'f, 'a> {
    pub(super) attributes: &'f Attributes<'a>,
    #[cfg(feature = "cel")]
    pub(super) costs: &'f Costs,
    /// Overrides the attribute `path`.
    pub(super) path: Option<&'f str>,
    invalid: InvalidCredentials,
    /// The form that conditions ask; made once, when the first one does.
    #[cfg(feature = "cel")]
    pub(super) context: std::cell::OnceCell<super::condition::Evaluation>,
}

impl<'f, 'a> Facts<'f, 'a> {
    #[cfg_attr(
        not(feature = "cel"),
        expect(unused_variables, reason = "only conditions read the costs")
    )]
    pub(crate) fn of(
        attributes: &'f Attributes<'a>,
        costs: &'f Costs,
        invalid: InvalidCredentials,
    ) -> Self {
        let reading = |path| Reading {
            attributes,
            #[cfg(feature = "cel")]
            costs,
            path,
            invalid,
            #[cfg(feature = "cel")]
            context: std::cell::OnceCell::new(),
        };
        let others = attributes.other_paths.iter();
        Self {
            normal: reading(None),
            others: others.map(|path| reading(Some(path))).collect(),
        }
    }

    /// The request's credentials, if some are not valid.
    #[inline]
    pub(crate) fn refused(&self) -> Option<RefusedCredentials<'f, 'a>> {
        self.normal.refused()
    }

    /// Whether `test` holds for any of the readings: for parts of a rule that make it apply. If not, why it
    /// does not for the normal one, unless it cannot be evaluated for another.
    pub(super) fn any(
        &self,
        test: impl Fn(&Reading<'f, 'a>) -> Result<(), Unmet>,
    ) -> Result<(), Unmet> {
        let mut answer = test(&self.normal);
        for reading in &self.others {
            if answer.is_ok() {
                break;
            }
            answer = match test(reading) {
                Err(unmet) if unmet != Unmet::Unevaluable => answer,
                other => other,
            };
        }
        answer
    }

    /// Whether `test` holds for all of the readings: for parts of a rule that exempt a request.
    pub(super) fn all(
        &self,
        test: impl Fn(&Reading<'f, 'a>) -> Result<(), Unmet>,
    ) -> Result<(), Unmet> {
        std::iter::once(&self.normal)
            .chain(&self.others)
            .try_for_each(test)
    }
}

impl<'f, 'a> Reading<'f, 'a> {
    /// The request's credentials, if some are not valid.
    #[inline]
    pub(super) fn refused(&self) -> Option<RefusedCredentials<'f, 'a>> {
        let (attributes, invalid) = (self.attributes, self.invalid);
        (!attributes.refused().is_empty()).then_some(RefusedCredentials {
            attributes,
            invalid,
        })
    }

    pub(super) fn get(&self, name: &str) -> Option<&'f str> {
        match self.path {
            Some(path) if name == "path" => Some(path),
            _ => self.attributes.get(name),
        }
    }
}

impl RefusedCredentials<'_, '_> {
    /// The first attribute that the caller `reads` and that these credentials should provide, with the reason to deny.
    /// `None` if it reads none of them, or if invalid credentials count as missing.
    #[cold]
    pub(crate) fn reason(&self, reads: impl Fn(&str) -> bool) -> Option<(&str, Reason)> {
        let read = |(name, _): &&(Cow<'_, str>, CredentialProblem)| reads(name);
        let mut refused = self.attributes.refused().iter().filter(read);
        refused.find_map(|(name, problem)| Some((&**name, problem.reason(self.invalid)?)))
    }
}
