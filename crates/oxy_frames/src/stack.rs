//! How much of the C stack is left.
//!
//! The engine's own stack frames are larger than the interpreter's, which counts calls and not bytes.

use std::cell::Cell;

/// What has to be left for a frame to be evaluated by us: a step, and whatever C code it calls.
const RESERVE_BYTES: usize = 512 * 1024;

thread_local! {
    /// The lowest address that may be used, 0 if it isn't known, or 1 before anyone has asked.
    static LIMIT: Cell<usize> = const { Cell::new(1) };
}

/// How many bytes of this thread's C stack are left, at most those below the caller.
pub(crate) fn bytes_left() -> usize {
    let limit = match LIMIT.get() {
        1 => {
            let limit = lowest_address();
            LIMIT.set(limit);
            limit
        }
        limit => limit,
    };
    let here = 0u8;
    (&raw const here as usize).saturating_sub(limit)
}

/// Whether there is enough to evaluate another frame.
pub(crate) fn has_room(bytes_left: usize) -> bool {
    bytes_left > RESERVE_BYTES
}

/// The lowest address of this thread's stack, its guard pages excluded.
#[cfg(target_os = "linux")]
fn lowest_address() -> usize {
    // SAFETY: the attributes are initialised by `pthread_getattr_np`, and only read if it succeeded.
    unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 0;
        }
        let (mut lowest, mut size) = (std::ptr::null_mut(), 0);
        let found = libc::pthread_attr_getstack(&attributes, &mut lowest, &mut size) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        if found { lowest as usize } else { 0 }
    }
}

#[cfg(target_os = "macos")]
fn lowest_address() -> usize {
    // SAFETY: asks about the calling thread.
    unsafe {
        let thread = libc::pthread_self();
        (libc::pthread_get_stackaddr_np(thread) as usize).saturating_sub(libc::pthread_get_stacksize_np(thread))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn lowest_address() -> usize {
    0
}
