//! Words of objects, compared as they are.

/// A word that must not change.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    address: *const u64,
    mask: u64,
    expected: u64,
}

impl Word {
    /// A pointer-sized field.
    ///
    /// # Safety
    /// `address` is readable now, and whenever [`Word::holds`] is called.
    pub unsafe fn pointer<T>(address: *const *mut T) -> Word {
        let address: *const u64 = address.cast();
        // SAFETY: the caller's promise.
        Word { address, mask: u64::MAX, expected: unsafe { *address } }
    }

    /// A 64-bit field.
    ///
    /// # Safety
    /// As [`Word::pointer`].
    pub unsafe fn number(address: *const u64) -> Word {
        // SAFETY: the caller's promise.
        Word { address, mask: u64::MAX, expected: unsafe { *address } }
    }

    /// A 32-bit field that is followed by another four readable bytes.
    ///
    /// # Safety
    /// As [`Word::pointer`].
    pub unsafe fn half(address: *const u32) -> Word {
        let address: *const u64 = address.cast();
        let mask = u64::from_ne_bytes([255, 255, 255, 255, 0, 0, 0, 0]);
        // SAFETY: the caller's promise. The field may be at a multiple of four only.
        Word { address, mask, expected: unsafe { address.read_unaligned() } & mask }
    }

    /// # Safety
    /// As [`Word::pointer`].
    #[inline]
    pub unsafe fn holds(&self) -> bool {
        // SAFETY: the caller's promise.
        (unsafe { self.address.read_unaligned() } ^ self.expected) & self.mask == 0
    }

    /// Takes the word as it is now for what it must be.
    ///
    /// # Safety
    /// As [`Word::pointer`].
    pub unsafe fn renew(&mut self) {
        // SAFETY: the caller's promise.
        self.expected = unsafe { self.address.read_unaligned() } & self.mask;
    }
}
