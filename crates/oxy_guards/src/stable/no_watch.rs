//! Where CPython has no dictionary watchers: nothing is watched, so that version tags are compared.

use super::record::Use;
use crate::program::Raw;

/// The record's part in watching.
pub struct Watch;

impl Watch {
    /// `None`: dictionaries can't be watched.
    ///
    /// # Safety
    /// Attached; the dictionaries are live.
    pub unsafe fn start(_uses: &[(Raw, Vec<Use>, bool)]) -> Option<Watch> {
        None
    }

    #[inline]
    pub fn is_stale(&self) -> bool {
        false
    }
}
