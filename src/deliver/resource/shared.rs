//! What the senders of an arbiter share while they are in use.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::{Rc, Weak},
};

/// Values by their key. A value is dropped with its last user.
pub(super) struct Shared<T: ?Sized>(RefCell<BTreeMap<String, Weak<T>>>);

impl<T: ?Sized> Shared<T> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(BTreeMap::new()))
    }

    /// The value of `key`, made if it is not in use.
    pub(super) fn get<E>(
        &self,
        key: String,
        make: impl FnOnce() -> Result<Rc<T>, E>,
    ) -> Result<Rc<T>, E> {
        if let Some(used) = self.0.borrow().get(&key).and_then(Weak::upgrade) {
            return Ok(used);
        }
        let made = make()?;
        let mut values = self.0.borrow_mut();
        values.retain(|_, value| value.strong_count() > 0);
        values.insert(key, Rc::downgrade(&made));
        Ok(made)
    }
}
