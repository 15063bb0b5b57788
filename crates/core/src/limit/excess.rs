//! Fixed windows of the clock that may grant nothing, and of which more may be used than they grant.

use super::{Algorithm, Anchor, Limit, LimitError, Rate, Window, shape_of};
use crate::algorithm::{FixedWindow, Form};
use crate::time::Timestamp;

/// The largest count of a [fixed window](Limit::fixed_window) that a caller of Envoy's rate limit service may have.
pub const MAX_WINDOW_COUNT: u64 = u32::MAX as u64;

impl Limit {
    /// A fixed window of the clock that may grant nothing, or up to [`MAX_WINDOW_COUNT`]. What is charged
    /// [in full](crate::Scope::charged_in_full) may exceed it.
    ///
    /// ```
    /// use tidegate_core::{Anchor, Limit, Micros, Window};
    ///
    /// let limit = Limit::fixed_window(4_294_967_295, Window::Span(Micros::DAY), Anchor::Clock)?;
    /// assert_eq!(limit.shape(), "10/day".parse::<Limit>()?.shape());
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn fixed_window(count: u64, window: Window, anchor: Anchor) -> Result<Self, LimitError> {
        let (rate, algorithm) = (Rate::new(count, window), Algorithm::FixedWindow { anchor });
        if anchor == Anchor::FirstRequest {
            return Self::new(rate, algorithm);
        }
        if count > MAX_WINDOW_COUNT {
            let what = "count";
            return Err(LimitError::TooLarge { what, value: count });
        }
        let form = Form::FixedWindow(FixedWindow::new(count, rate.some_window()?, anchor));
        Ok(Self {
            rate,
            algorithm,
            form,
            shape: shape_of(algorithm, &form),
        })
    }

    /// Whether more can be used than it grants, where that is charged [in full](crate::Scope::charged_in_full).
    pub fn holds_excess(&self) -> bool {
        matches!(&self.form, Form::FixedWindow(form) if form.holds_excess())
    }

    /// When the window of the clock ends that is open at `at`; none if it has no such windows.
    pub fn window_end(&self, at: Timestamp) -> Option<Timestamp> {
        match &self.form {
            Form::FixedWindow(form) => form.ends_at(at),
            _ => None,
        }
    }
}
