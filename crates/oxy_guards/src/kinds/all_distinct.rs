//! `AllDistinct`: sources lead to pairwise different objects.

use pyo3::ffi::PyObject;
use smallvec::SmallVec;

/// Above this length, sorting beats comparing each with each.
const PAIRS_MAX: usize = 24;

pub fn holds(values: &[*mut PyObject]) -> bool {
    if values.len() <= PAIRS_MAX {
        return values.iter().enumerate().all(|(i, value)| !values[..i].contains(value));
    }
    let mut sorted: SmallVec<[*mut PyObject; 256]> = values.into();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

/// The positions of the first two values that are one object.
pub fn repeated(values: &[*mut PyObject]) -> Option<(usize, usize)> {
    (0..values.len()).find_map(|i| values[..i].iter().position(|value| *value == values[i]).map(|first| (first, i)))
}

pub fn difference(first: &str, second: &str) -> String {
    format!("expected different objects, but {first} and {second} are one")
}
