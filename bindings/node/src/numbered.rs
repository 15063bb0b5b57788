//! What JavaScript knows by numbers.

/// Values by number. Numbers are used again.
pub(crate) struct Numbered<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Numbered<T> {
    pub(crate) const fn new() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, value: T) -> usize {
        if let Some(number) = self.free.pop() {
            self.values[number] = Some(value);
            return number;
        }
        self.values.push(Some(value));
        self.values.len() - 1
    }

    #[inline]
    pub(crate) fn get(&mut self, number: usize) -> Option<&mut T> {
        self.values.get_mut(number)?.as_mut()
    }

    pub(crate) fn take(&mut self, number: usize) -> Option<T> {
        let value = self.values.get_mut(number)?.take();
        if value.is_some() {
            self.free.push(number);
        }
        value
    }
}
