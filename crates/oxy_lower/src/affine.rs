//! Affine index expressions over kernel dimensions: base + Σ coefficient·dimension.

use smallvec::SmallVec;

/// Invariant: terms are sorted by dimension, with positive coefficients over dimensions of extent > 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Affine {
    pub base: i64,
    pub terms: SmallVec<[(u32, i64); 3]>,
}

/// One index expression per dimension of a tensor.
pub type Idx = SmallVec<[Affine; 6]>;

/// Why an index can't be expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It could if kernel dimension `dim` were two: its extent / `inner`, and `inner`.
    Split { dim: u32, inner: i64 },
    /// It is not affine.
    NotAffine,
}

impl Affine {
    pub fn constant(base: i64) -> Affine {
        Affine { base, terms: SmallVec::new() }
    }

    pub fn term(dim: u32, coefficient: i64) -> Affine {
        Affine { base: 0, terms: SmallVec::from_slice(&[(dim, coefficient)]) }
    }

    /// self + factor·other
    pub fn add_scaled(&mut self, other: &Affine, factor: i64) {
        if factor == 0 {
            return;
        }
        self.base += other.base * factor;
        for &(dim, coefficient) in &other.terms {
            match self.terms.binary_search_by_key(&dim, |t| t.0) {
                Ok(i) => self.terms[i].1 += coefficient * factor,
                Err(i) => self.terms.insert(i, (dim, coefficient * factor)),
            }
        }
    }

    /// The largest value.
    pub fn max(&self, extents: &[i64]) -> i64 {
        self.base + self.terms.iter().map(|(dim, c)| c * (extents[*dim as usize] - 1)).sum::<i64>()
    }

    /// Quotient and remainder by a positive number.
    pub fn div_rem(&self, divisor: i64, extents: &[i64]) -> Result<(Affine, Affine), Obstacle> {
        let mut quotient = Affine::constant(self.base.div_euclid(divisor));
        let mut rest = Affine::constant(self.base.rem_euclid(divisor));
        for &(dim, c) in &self.terms {
            if c % divisor == 0 {
                quotient.terms.push((dim, c / divisor));
            } else {
                rest.terms.push((dim, c));
            }
        }
        if rest.max(extents) < divisor {
            return Ok((quotient, rest));
        }
        for &(dim, c) in &rest.terms {
            let extent = extents[dim as usize];
            if c < divisor && divisor % c == 0 && c * extent > divisor && extent % (divisor / c) == 0 {
                return Err(Obstacle::Split { dim, inner: divisor / c });
            }
        }
        Err(Obstacle::NotAffine)
    }
}

/// The index into a dense tensor (`sizes` stored with `layout`) at an address.
pub fn delinearize(address: Affine, sizes: &[i64], layout: &[i64], extents: &[i64]) -> Result<Idx, Obstacle> {
    let mut order: SmallVec<[usize; 6]> = (0..sizes.len()).filter(|d| sizes[*d] > 1).collect();
    order.sort_by_key(|d| std::cmp::Reverse(layout[*d]));
    let mut idx: Idx = SmallVec::from_elem(Affine::default(), sizes.len());
    let mut rest = address;
    for d in order {
        let (quotient, remainder) = rest.div_rem(layout[d], extents)?;
        if quotient.base < 0 || quotient.max(extents) >= sizes[d] {
            return Err(Obstacle::NotAffine);
        }
        idx[d] = quotient;
        rest = remainder;
    }
    if rest == Affine::default() { Ok(idx) } else { Err(Obstacle::NotAffine) }
}

/// offset + Σ strides·idx
pub fn address(idx: &[Affine], strides: &[i64], offset: i64) -> Affine {
    let mut sum = Affine::constant(offset);
    for (affine, stride) in idx.iter().zip(strides) {
        sum.add_scaled(affine, *stride);
    }
    sum
}

/// Whether the tensor's elements fill a block of memory without gaps or overlaps.
pub fn is_dense(sizes: &[i64], strides: &[i64]) -> bool {
    let mut order: SmallVec<[usize; 6]> = (0..sizes.len()).filter(|d| sizes[*d] != 1).collect();
    if order.iter().any(|d| sizes[*d] == 0) {
        return true;
    }
    order.sort_by_key(|d| strides[*d]);
    let mut expected = 1;
    for d in order {
        if strides[d] != expected {
            return false;
        }
        expected *= sizes[d];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(base: i64, terms: &[(u32, i64)]) -> Affine {
        Affine { base, terms: SmallVec::from_slice(terms) }
    }

    #[test]
    fn merges_and_splits() {
        // [2, 8, 32] seen as [16, 32]: the row index i of 16 needs a split at 8.
        let address = sum(0, &[(0, 32), (1, 1)]);
        assert_eq!(
            delinearize(address, &[2, 8, 32], &[256, 32, 1], &[16, 32]),
            Err(Obstacle::Split { dim: 0, inner: 8 })
        );
        // After the split all is affine.
        let address = sum(0, &[(0, 256), (1, 32), (2, 1)]);
        let idx = delinearize(address, &[2, 8, 32], &[256, 32, 1], &[2, 8, 32]);
        assert_eq!(idx.map(|i| i[1].clone()), Ok(Affine::term(1, 1)));
    }

    #[test]
    fn follows_slices_and_transposes() {
        // Columns 2..4 of a [4, 6], transposed.
        let address = sum(2, &[(0, 1), (1, 6)]);
        let idx = delinearize(address, &[4, 6], &[6, 1], &[2, 4]);
        assert_eq!(idx.map(|i| i.to_vec()), Ok(vec![Affine::term(1, 1), sum(2, &[(0, 1)])]));
        // Out of range: not a view of this tensor.
        assert_eq!(delinearize(sum(24, &[]), &[4, 6], &[6, 1], &[]), Err(Obstacle::NotAffine));
    }

    #[test]
    fn knows_dense_layouts() {
        assert!(is_dense(&[2, 3, 4, 5], &[60, 1, 15, 3]));
        assert!(!is_dense(&[2, 3], &[4, 1]));
        assert!(!is_dense(&[2, 3], &[0, 1]));
        assert!(is_dense(&[1, 3], &[77, 1]));
    }
}
